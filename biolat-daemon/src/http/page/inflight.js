// I/Os that have not completed. A drive that hangs completes nothing: its latencies do not show it.

/** Age of the oldest I/O, in seconds, beyond which a drive hangs. */
const HUNG = 10;
const ageOf = ({ inflight }) => inflight?.oldest_seconds ?? 0;
const isHung = (device) => ageOf(device) > HUNG;
const inFlight = ({ inflight }) => (inflight ? inflight.read + inflight.write : null);
const age = (seconds) => (seconds < 1 ? latency(seconds) : duration(seconds));
const oldest = (device) => (ageOf(device) > 0 ? `${device.inflight.exact ? '' : '≥ '}${age(ageOf(device))}` : NONE);

/** Why a drive hangs, by its own I/O in the passes so far. */
function overdue(device, passes, taken) {
  const { name, phases, inflight } = device, long = duration(ageOf(device)), since = taken - ageOf(device);
  const ios = inFlight(device) ? `${name}: ${many(inFlight(device), 'I/O')} in flight` : `${name}: I/O in the scheduler`;
  if (!inflight.exact) return `${ios}, none completed for at least ${long}`;
  const completed = (pass) => new Sum().addPass(pass, name, null).all[TOTAL] > 0;
  if (passes.some((pass) => pass.from >= since && completed(pass))) return `${ios}, the oldest for ${long}, while others complete`;
  const known = phases.includes('total') && passes.some((pass) => pass.from <= since) && !passes.some((pass) => pass.to > since && completed(pass));
  return known ? `${ios}, none completed for ${long}` : `${ios}, the oldest for ${long}`;
}

// I/Os in flight. A hung drive completes nothing, so its latencies do not show that it hangs.

/** Age of the oldest I/O, in seconds, above which a drive counts as hung. */
const HUNG = 10;
const ageOf = ({ inflight }) => inflight.oldest_seconds;
const isHung = (device) => ageOf(device) > HUNG;
const inFlight = ({ inflight }) => inflight.read + inflight.write;
const age = (seconds) => (seconds < 1 ? latency(seconds) : duration(seconds));
const oldest = (device) => (ageOf(device) > 0 ? `${device.inflight.exact ? '' : '≥ '}${age(ageOf(device))}` : NONE);

/** Describes the I/O in flight of a hung drive, and whether other I/O completes according to the deltas. */
function overdue(device, deltas, taken) {
  const { name, phases, inflight } = device, long = duration(ageOf(device)), since = taken - ageOf(device);
  const ios = inFlight(device) ? `${name}: ${many(inFlight(device), 'I/O')} in flight` : `${name}: I/O in the scheduler`;
  if (!inflight.exact) return `${ios}, none completed for at least ${long}`;
  const completed = (delta) => new Sum().addDelta(delta, name, null).all[TOTAL] > 0;
  if (deltas.some((delta) => delta.from >= since && completed(delta))) return `${ios}, the oldest for ${long}, while others complete`;
  const known = phases.includes('total') && deltas.some((delta) => delta.from <= since) && !deltas.some((delta) => delta.to > since && completed(delta));
  return known ? `${ios}, none completed for ${long}` : `${ios}, the oldest for ${long}`;
}

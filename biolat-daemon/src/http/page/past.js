// The past: intervals of the daemon's history. Each becomes a pass, as the difference of two snapshots does.

/** Ranges until now, in seconds. */
const RANGES = [600, 7200, 21600, 93600], DAY = RANGES.at(-1);
const MOST_COLUMNS = 320;
/** Columns of a request: the page draws, and responds, between two. */
const PART = 40;

/** The shortest step that makes at most so many columns of a time. */
const stepOf = (seconds, most = MOST_COLUMNS) => STEPS.find((step) => seconds / step <= most) ?? 86400;

/** The pass of an interval: its counters are differences. */
function passOf({ began, taken, devices = [], summary = [], slow, lost, failures }) {
  const pass = { from: began, to: taken, devices: new Map(), workloads: new Map(), seen: devices, summary, slow, lost, failures, daemon: { cpu: null } };
  for (const device of devices) {
    // A drive may have been replaced by one of the same name.
    const kept = pass.devices.get(device.name) ?? { ops: [], unseen: 0, cpus: [] };
    for (const op of device.ops) {
      kept.ops.push([op.op, opBetween(null, op, Uint32Array)]);
      // Its histograms are not needed any more.
      for (const phase of PHASES) delete op[phase];
      op.sizes = undefined;
    }
    kept.unseen += sum(device.unseen);
    pass.devices.set(device.name, kept);
  }
  return pass;
}

const middleOf = ({ from, to }) => (from + to) / 2;

/** A range of the history. It is fetched in parts; later, what has come since. */
class Past {
  passes = [];
  from = 0;
  to = 0;
  step = 1;
  loading = false;
  /** Why there is nothing to show; empty if there is something. */
  problem = '';
  /** From when on there is a history; null before it is known, or if there is none. */
  completeFrom = null;
  #key = '';
  #loadedAt = -Infinity;
  #abort = null;
  #devices = { of: null, list: [] };

  constructor(onChange, detail = '', part = PART) {
    Object.assign(this, { onChange, detail, part });
  }

  /** Loads a range: all of it if the key is another one, otherwise what is new, at most once a step. */
  load(key, from, to, step, isGrowing = true) {
    if (key === this.#key && (this.loading || this.problem === OFF || (!isGrowing && this.problem === '') || now() - this.#loadedAt < Math.max(step, 1))) return;
    this.#abort?.abort();
    this.#abort = new AbortController();
    if (key !== this.#key) {
      this.passes = [];
      this.problem = '';
    }
    this.#key = key;
    const start = Math.floor(from / step) * step, end = Math.ceil(to / step) * step;
    Object.assign(this, { from: start, to, step, loading: true });
    this.passes = this.passes.filter((pass) => pass.to > start);
    this.#fetch(start, end, this.#abort.signal);
  }

  forget() {
    this.#abort?.abort();
    this.#key = '';
    this.passes = [];
    this.loading = false;
  }

  async #fetch(from, to, signal) {
    const { step } = this, last = this.passes.at(-1);
    // The last one may have grown.
    let start = last ? Math.floor(middleOf(last) / step) * step : from;
    try {
      while (start < to) {
        const end = Math.min(to, start + step * this.part);
        const answer = await askHistory(`from=${start}&to=${end}&step=${step}${this.detail}`, signal);
        this.completeFrom = answer.complete_from;
        this.passes = [...this.passes.filter((pass) => middleOf(pass) < start), ...answer.intervals.map(passOf)];
        start = this.completeFrom === null ? to : Math.max(end, Math.floor(Math.min(this.completeFrom, to) / step) * step);
        this.loading = start < to;
        this.problem = '';
        this.onChange();
      }
    } catch (error) {
      if (signal.aborted) return;
      this.problem = error.constructor === Error ? error.message : 'The history cannot be read: the connection is lost.';
    }
    if (signal.aborted) return;
    this.loading = false;
    this.#loadedAt = now();
    this.onChange();
  }

  /** The latest snapshot with the devices of the range, and what they did in it; without what is not kept. */
  snapshot(latest) {
    if (this.#devices.of !== this.passes) this.#devices = { of: this.passes, list: this.#sumDevices(latest) };
    return { ...latest, devices: this.#devices.list, workloads: undefined };
  }

  #sumDevices(latest) {
    const live = new Map(latest.devices.map((device) => [device.name, device])), all = new Map();
    for (const { seen } of this.passes) {
      for (const device of seen) {
        const { name, inflight, unseen } = device, had = all.get(name);
        const audited = Object.fromEntries(Object.keys(live.get(name)?.unseen ?? {}).map((group) => [group, 0]));
        const one = { ...device, ops: [...(had?.ops ?? []), ...device.ops], unseen: had?.unseen ?? audited, inflight: { ...inflight } };
        for (const [group, count] of Object.entries(unseen)) one.unseen[group] = (one.unseen[group] ?? 0) + count;
        for (const part of ['read', 'write']) one.inflight[part] = Math.max(inflight[part], had?.inflight[part] ?? 0);
        if (had && ageOf(had) > ageOf(device)) Object.assign(one.inflight, { oldest_seconds: ageOf(had), exact: had.inflight.exact });
        all.set(name, one);
      }
    }
    return [...all.values()];
  }
}

const OFF = 'The history is off: biolat was started with --history off.';

/** The answer of the daemon; it is asked again while too many others read the history. */
async function askHistory(query, signal) {
  for (let attempt = 0; ; attempt++) {
    const response = await fetch(`${API}history?${query}`, { cache: 'no-store', signal });
    if (response.ok) return response.json();
    if (response.status === 404) throw new Error(OFF);
    if (response.status !== 503 || attempt === 5) throw new Error(`The history cannot be read: ${(await response.text()).trim()}.`);
    await new Promise((resume) => { setTimeout(resume, 1000); });
  }
}

/** A time of the last day: with its date, if that is not today's. */
function moment(seconds, fine = true) {
  const time = new Date(seconds * 1000), today = new Date((history.latest?.taken ?? seconds) * 1000);
  return `${time.toDateString() === today.toDateString() ? '' : `${date(time)} `}${clock(seconds, fine)}`;
}

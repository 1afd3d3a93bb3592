// The past: intervals of the daemon's history, as deltas.

/** Lengths of ranges up to now, in seconds. */
const RANGES = [600, 7200, 21600, 93600], DAY = RANGES.at(-1);
/** Maximum of `--history`, in seconds. */
const MAX_HISTORY = 168 * 3600;
const MAX_COLUMNS = 320;
/** Columns per request. The page is drawn and stays responsive between requests. */
const PART = 40;

/** The shortest step that divides a time into at most this many columns. */
const stepOf = (seconds, most = MAX_COLUMNS) => STEPS.find((step) => seconds / step <= most) ?? 86400;

/** Whether an interval has sizes and workloads, which the daemon drops first if memory is short. */
const hasDetail = ({ devices = [], workloads }) => workloads !== undefined || devices.every((device) => isVolume(device) || device.ops.every(({ sizes }) => sizes));

/** Converts an interval, whose counters are already differences, to a delta. */
function deltaOf(interval) {
  const { began, taken, seconds, devices = [], summary = [], slow, slow_dropped, lost, failures } = interval;
  // If the clock was set back during the interval, it appears to end before it begins.
  const from = began < taken ? began : taken - seconds;
  const delta = {
    from, to: taken, seconds, devices: new Map(), workloads: workloadsBetween(null, interval, new Set()), hasDetail: hasDetail(interval),
    seen: devices, summary, slow, slow_dropped, lost, failures, daemon: { cpu: null },
  };
  for (const device of devices) {
    // A drive may have been replaced by one with the same name.
    const kept = delta.devices.get(device.name) ?? { ops: [], unseen: 0, cpus: [], isVolume: isVolume(device) };
    for (const op of device.ops) {
      kept.ops.push([op.op, opBetween(null, op, Uint32Array)]);
      // The histograms are no longer needed.
      delete op.latency;
      op.sizes &&= {};
    }
    kept.unseen += sum(device.unseen);
    delta.devices.set(device.name, kept);
  }
  return delta;
}

const middleOf = ({ from, to }) => (from + to) / 2;

/** A range of the history. It is fetched in parts, and later extended by new intervals. */
class Past {
  deltas = [];
  from = 0;
  to = 0;
  step = 1;
  loading = false;
  /** Why there is nothing to show, or empty. */
  problem = '';
  /** Time from which the history is complete; null if unknown or if there is no history. */
  completeFrom = null;
  #key = '';
  #loadedAt = -Infinity;
  #abort = null;
  #devices = { of: null, list: [] };

  constructor(onChange, detail = '', part = PART) {
    Object.assign(this, { onChange, detail, part });
  }

  /** Loads a range: all of it if the key has changed, otherwise only new intervals, at most once per step. */
  load(key, from, to, step, isGrowing = SAVED === null) {
    const again = this.problem === OFF ? OFF_RETRY : Math.max(step, 1);
    if (key === this.#key && (this.loading || (!isGrowing && this.problem === '') || now() - this.#loadedAt < again)) return;
    this.#abort?.abort();
    this.#abort = new AbortController();
    if (key !== this.#key) {
      this.deltas = [];
      this.problem = '';
    }
    this.#key = key;
    const start = Math.floor(from / step) * step, end = Math.ceil(to / step) * step;
    Object.assign(this, { from: start, to, step, loading: true });
    // If the clock was set back, drops intervals after the range, because those times will occur again.
    this.deltas = this.deltas.filter((delta) => delta.to > start && delta.from < end);
    this.#fetch(start, end, this.#abort.signal);
  }

  forget() {
    this.#abort?.abort();
    this.#key = '';
    this.deltas = [];
    this.loading = false;
    this.problem = '';
    this.completeFrom = null;
  }

  async #fetch(from, to, signal) {
    const { step } = this, last = this.deltas.at(-1);
    // The last interval may have grown since.
    let start = last ? Math.floor(middleOf(last) / step) * step : from;
    try {
      while (start < to) {
        const end = Math.min(to, start + step * this.part);
        const { completeFrom, deltas } = await this.#read(start, end, signal);
        // If the start of the history has changed, intervals before it are dropped: it may be the history of another daemon.
        const begin = completeFrom === this.completeFrom ? -Infinity : completeFrom ?? Infinity;
        this.completeFrom = completeFrom;
        const kept = this.deltas.filter((delta) => middleOf(delta) < start && delta.to > begin), ends = new Set(kept.map(({ to }) => to));
        // If no interval has its middle in a part, the daemon returns the longer interval around it, which may already be there.
        this.deltas = [...kept, ...deltas.filter(({ to }) => !ends.has(to))];
        start = this.completeFrom === null ? to : end;
        this.problem = '';
        if (start < to) this.onChange();
      }
    } catch (error) {
      if (signal.aborted) return;
      this.problem = error.constructor === Error ? error.message : 'The history cannot be read: the connection is lost.';
      if (this.problem === OFF) Object.assign(this, { deltas: [], completeFrom: null });
    }
    if (signal.aborted) return;
    this.loading = false;
    this.#loadedAt = now();
    this.onChange();
  }

  /** Makes the next load fetch new intervals at once, because the daemon may have been restarted. */
  expire() {
    this.#loadedAt = -Infinity;
  }

  async #read(from, to, signal) {
    const { complete_from: completeFrom, intervals } = await askHistory(`from=${from}&to=${to}&step=${this.step}${this.detail}`, signal);
    return { completeFrom, deltas: intervals.map(deltaOf) };
  }

  /** Time from which there is history; 0 if unknown. Intervals begin earlier only if the clock was set back. */
  get begin() {
    return Math.min(this.completeFrom ?? 0, ...this.deltas.map(({ from }) => from));
  }

  /** The latest snapshot, with the devices of the range and their I/O in it. */
  snapshot(latest) {
    if (this.#devices.of !== this.deltas) this.#devices = { of: this.deltas, list: this.#sumDevices(latest) };
    return { ...latest, devices: this.#devices.list };
  }

  #sumDevices(latest) {
    const live = new Map(latest.devices.map((device) => [device.name, device])), all = new Map();
    for (const { seen } of this.deltas) {
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
/** Seconds until the page asks whether the history is still off: biolat may have been restarted. */
const OFF_RETRY = 30;
/** Milliseconds; the daemon ends a response after two minutes. */
const RESPONSE_TIMEOUT = 130e3;
/** Statuses after which the page tries again: too many clients read the history or check passwords. */
const BUSY = [429, 503];

/** Requests a part of the history from the daemon. */
async function askHistory(query, signal = null) {
  for (let attempt = 0; ; attempt++) {
    const signals = [signal, AbortSignal.timeout(RESPONSE_TIMEOUT)].filter(Boolean);
    const response = await fetch(`${API}history?${query}`, { cache: 'no-store', signal: AbortSignal.any(signals) });
    if (response.ok) return response.json();
    if (response.status === 404) throw new Error(OFF);
    // For other statuses the body may be a proxy's error page.
    const why = response.status === 400 ? (await response.text()).trim() : `biolat responded with status ${response.status}`;
    if (!BUSY.includes(response.status) || attempt === 5) throw new Error(`The history cannot be read: ${why}.`);
    await new Promise((resume) => { setTimeout(resume, 1000); });
  }
}

/** Formats a time, with the date unless it is today; always with the date in a saved history. */
function moment(seconds, fine = true) {
  const time = new Date(seconds * 1000), today = new Date((history.latest?.taken ?? seconds) * 1000);
  return `${!SAVED && time.toDateString() === today.toDateString() ? '' : `${date(time)} `}${clock(seconds, fine)}`;
}

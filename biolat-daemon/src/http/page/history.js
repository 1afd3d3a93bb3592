// The live history: differences between consecutive snapshots, called deltas.

const MAX_DELTAS = 600;
/** Limit of memory, in words of 4 bytes. With hundreds of busy devices, it makes the history shorter. */
const MAX_WORDS = 16e6;
/** Words that the objects of a workload's growth take in addition. */
const OBJECT = 50;
/** Longest time between two snapshots that is shown, in seconds, unless 20 intervals are longer. */
const MAX_GAP = 60;

const EMPTY = { count: 0, seconds: 0, zero: 0, overflow: 0, buckets: [] };

/** Appends the number of cells that grew, then index and growth of each. */
function appendGrowth(words, before, now) {
  const had = new Map(before.buckets), start = words.push(0);
  const add = (index, count) => { if (count > 0) words.push(index - ZERO, count); };
  add(ZERO, now.zero - before.zero);
  for (const [index, count] of now.buckets) add(index, count - (had.get(index) ?? 0));
  add(OVER, now.overflow - before.overflow);
  words[start - 1] = (words.length - start) / 2;
}

/** Maps a histogram of wide buckets to cells: each bucket is counted in its last cell. */
const lastCells = ({ buckets, ...rest }) => ({ ...rest, buckets: buckets.map(([index, count]) => [index * WIDE, count]) });

/** Growth of each size band. */
function bandsBetween(before, now, Words) {
  const words = [];
  const [had, has] = [before, now].map((sizes) => new Map(sizes?.bands.map(({ size, device }) => [size, lastCells(device)])));
  for (const [name] of BANDS) appendGrowth(words, had.get(name) ?? EMPTY, has.get(name) ?? EMPTY);
  return {
    seconds: BANDS.map(([name]) => (has.get(name)?.seconds ?? 0) - (had.get(name)?.seconds ?? 0)),
    words: Words.from(words),
  };
}

const difference = (now, before = {}) =>
  Object.fromEntries(Object.entries(now).map(([name, count]) => [name, Math.max(0, count - (before[name] ?? 0))]));

/** Growth of an op, with its histograms in one array. Within a delta, counts fit into 32 bits; since the start they may not. */
function opBetween(before, now, Words = before ? Uint32Array : Float64Array) {
  const words = [];
  for (const phase of PHASES) appendGrowth(words, before ? before.latency[phase] : EMPTY, now.latency[phase]);
  return {
    bytes: now.bytes - (before?.bytes ?? 0),
    errors: sum(difference(now.errors, before?.errors)),
    seconds: PHASES.map((phase) => now.latency[phase].seconds - (before?.latency[phase].seconds ?? 0)),
    words: Words.from(words),
    // Null for ops without bands, such as flush.
    bands: now.sizes?.bands.length ? bandsBetween(before?.sizes, now.sizes, Words) : null,
  };
}

/** A workload's usage in the form of a device's op. It has only a histogram of total latencies. */
const opOf = ({ bytes, errors, queue_seconds, device_seconds, total }) => ({
  bytes, errors: { errors }, latency: {
    admission: EMPTY, queue: { ...EMPTY, seconds: queue_seconds }, device: { ...EMPTY, seconds: device_seconds }, total: lastCells(total),
  },
});

/** Growth of workloads, by cgroup. Counters of the devices in `started` began at zero. */
function workloadsBetween(before, now, started) {
  const had = new Map(before?.workloads?.map((workload) => [workload.cgroup, workload])), all = new Map();
  for (const workload of now.workloads ?? []) {
    const { cgroup, name, kind, since } = workload, was = had.get(cgroup), last = was?.since === since ? was : null;
    // One object shared by all deltas. `gone` applies once the workload is no longer in the latest snapshot.
    workload.who = was?.who?.name === name ? was.who : { cgroup, name, kind, gone: true };
    // A renamed cgroup: its earlier I/O does not belong to this delta.
    if (before && !last && since < before.taken - now.interval) continue;
    const usage = [];
    for (const use of workload.usage) {
      const { device, op, total } = use;
      const used = started.has(device) ? null : last?.usage.find((other) => other.device === device && other.op === op);
      if (total.count === (used?.total.count ?? 0)) continue;
      const { bytes, errors, seconds, words } = opBetween(used && opOf(used), opOf(use));
      // A plain array, because a typed one is larger for so few numbers.
      usage.push({ device, op, bytes, errors, seconds, words: [...words] });
    }
    if (usage.length) all.set(workload.who.cgroup, { who: workload.who, usage });
  }
  return all;
}

/** The delta of two snapshots. A daemon or device that is new in the second one started at zero. */
function between(before, now) {
  const same = before.started === now.started;
  const had = new Map(same ? before.devices.map((device) => [device.name, device]) : []);
  const from = same ? before.taken : now.started, to = now.taken;
  const delta = { from, to, seconds: to - from, devices: new Map(), words: 0 }, started = new Set();
  for (const device of now.devices) {
    const known = had.get(device.name);
    const last = known?.since === device.since ? known : null;
    if (!last) started.add(device.name);
    const ops = new Map();
    for (const op of device.ops) {
      const growth = opBetween(last?.ops.find((other) => other.op === op.op), op);
      if (growth.words.length > PHASES.length || growth.bytes > 0 || growth.errors > 0) {
        ops.set(op.op, growth);
        delta.words += (growth.words.byteLength + (growth.bands?.words.byteLength ?? 0)) / 4;
      }
    }
    const unseen = sum(difference(device.unseen, last?.unseen));
    const cpus = (last ? Uint32Array : Float64Array).from(device.completions, (count, cpu) => Math.max(0, count - (last?.completions[cpu] ?? 0)));
    // Idle devices are omitted: of hundreds of devices, most are idle.
    if (ops.size || unseen) {
      delta.devices.set(device.name, { ops, unseen, cpus, isVolume: isVolume(device) });
      delta.words += cpus.byteLength / 4;
    }
  }
  delta.workloads = workloadsBetween(same ? before : null, now, started);
  for (const { usage } of delta.workloads.values()) for (const { words } of usage) delta.words += words.length + OBJECT;
  delta.lost = difference(now.lost, same ? before.lost : {});
  const was = same ? before : null, { collections } = now.daemon;
  delta.daemon = {
    // Null after a restart: CPU time before the first collection does not belong to this delta.
    cpu: was?.process && now.process ? now.process.cpu_seconds - was.process.cpu_seconds : null,
    collections: collections.count - (was?.daemon.collections.count ?? 0),
    seconds: collections.seconds - (was?.daemon.collections.seconds ?? 0),
    runs: now.probe && now.probe.runs - (was?.probe?.runs ?? 0),
    runSeconds: now.probe && now.probe.seconds - (was?.probe?.seconds ?? 0),
  };
  return delta;
}

class History {
  deltas = [];
  latest = null;
  #words = 0;

  /** Adds a snapshot; returns false if it is already known. */
  add(snapshot) {
    const before = this.latest;
    if (before && before.started === snapshot.started && snapshot.taken === before.taken) return false;
    this.latest = snapshot;
    if (!before) return true;
    const delta = between(before, snapshot), length = delta.seconds;
    // A long gap is not shown: a single mean over it would crowd out the detail that follows.
    if (length > Math.max(MAX_GAP, 20 * snapshot.interval)) return true;
    // The clock was set back: time would run backwards on the heatmap.
    if (length <= 0 || (this.deltas.length && delta.from < this.deltas.at(-1).to - 1)) this.#forget(this.deltas.length);
    if (length <= 0) return true;
    this.deltas.push(delta);
    this.#words += delta.words;
    let over = Math.max(0, this.deltas.length - MAX_DELTAS), words = this.#words;
    for (let at = 0; at < this.deltas.length - 1 && (at < over || words > MAX_WORDS); at++) {
      words -= this.deltas[at].words;
      over = Math.max(over, at + 1);
    }
    this.#forget(over);
    return true;
  }

  #forget(count) {
    for (const delta of this.deltas.splice(0, count)) this.#words -= delta.words;
  }
}

/** Adds up histograms stored as words. */
function addWords(words, counts, all) {
  let at = 0;
  for (let place = 0; place < counts.length; place++) {
    for (let left = words[at++]; left > 0; left--, at += 2) {
      counts[place][words[at]] += words[at + 1];
      all[place] += words[at + 1];
    }
  }
}

/** Whether a device is a volume. Its I/Os are also counted on the drives below, so no sum includes them. */
const isVolume = ({ volume }) => volume !== undefined;

/** Devices of a delta that had I/O: one of them, or all drives. */
const devicesOf = (delta, device) => (device === null ? [...delta.devices.values()].filter(({ isVolume }) => !isVolume) : [delta.devices.get(device)].filter(Boolean));

/** Whether an item matches the selected device and op. */
const isOf = (each, device, op) => (device ?? each.device) === each.device && (op ?? each.op) === each.op;

/** Sum over deltas, for one or all devices, ops and workloads. */
class Sum {
  counts = PHASES.map(() => new Float64Array(CELLS));
  all = PHASES.map(() => 0);
  seconds = PHASES.map(() => 0);
  bytes = 0;
  errors = 0;

  add(growth) {
    this.bytes += growth.bytes;
    this.errors += growth.errors;
    growth.seconds.forEach((seconds, phase) => { this.seconds[phase] += seconds; });
    addWords(growth.words, this.counts, this.all);
    return this;
  }

  addDelta(delta, device, op, workload = null) {
    if (workload !== null) {
      for (const growth of delta.workloads.get(workload)?.usage ?? []) if (isOf(growth, device, op)) this.add(growth);
      return this;
    }
    for (const { ops } of devicesOf(delta, device)) {
      for (const [kind, growth] of ops) if (op === null || kind === op) this.add(growth);
    }
    return this;
  }

  /** Adds all I/O since biolat first saw the device. */
  addDevice(device, op) {
    for (const each of device.ops) if (op === null || each.op === op) this.add(opBetween(null, each));
    return this;
  }

  quantile(phase, q) {
    return quantile(this.counts[phase], this.all[phase], q);
  }

  /** Share of the total latency spent in the queue; null if the kernel does not record it. */
  get queueShare() {
    return this.seconds[QUEUE] + this.seconds[DEVICE] > 0 ? this.seconds[QUEUE] / this.seconds[TOTAL] : null;
  }

  /** Admission's share of the overall time, total latency included; null if the kernel does not record it. */
  get admissionShare() {
    const [wait, total] = [ADMISSION, TOTAL].map((phase) => this.seconds[phase] / this.all[phase]);
    return wait + total > 0 ? wait / (wait + total) : null;
  }
}

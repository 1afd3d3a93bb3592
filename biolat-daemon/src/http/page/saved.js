// A saved history: a file of `biolat-daemon report --save`. The browser reads it and sends it nowhere.

const SAVED_FORMAT = 'biolat history', SAVED_VERSION = 1;
/** What a browser can hold, in numbers of histograms of 4 bytes each, and how many intervals. */
const MOST_SAVED_WORDS = 100e6, MOST_SAVED_DELTAS = 100e3;
/** The longest line that `report` reads, in characters. */
const LONGEST_LINE = 32 * 2 ** 20;

class TooLarge extends Error {}
const notSaved = (name) => new Error(`${name} is not a history that biolat-daemon report --save has written.`);

/** The lines of a file, which may be compressed. */
async function* linesOf(file) {
  const [one, other] = new Uint8Array(await file.slice(0, 2).arrayBuffer()), isGzip = one === 0x1f && other === 0x8b;
  const bytes = isGzip ? file.stream().pipeThrough(new DecompressionStream('gzip')) : file.stream();
  const reader = bytes.pipeThrough(new TextDecoderStream()).getReader();
  // The parts of a line are joined once: a line may be long, and a part is short.
  let parts = [], length = 0;
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const [first, ...others] = part.value.split('\n');
      parts.push(first);
      length += first.length;
      if (length > LONGEST_LINE) throw new TooLarge();
      if (others.length === 0) continue;
      yield parts.join('');
      parts = [others.pop()];
      length = parts[0].length;
      yield* others;
    }
  } finally {
    // Whoever reads it may have had enough.
    reader.cancel().catch(() => {});
  }
  if (length > 0) yield parts.join('');
}

/** The upper bound of the longest latency; of the overflow, its finite bound. */
const longest = ({ zero, buckets, overflow }) =>
  (overflow > 0 ? lower(OVER) : buckets.length > 0 ? upper(buckets.at(-1)[0]) : zero > 0 ? upper(ZERO) : 0);

/** What the API has with `detail=summary`. */
function summaryOf({ devices }) {
  return devices.flatMap(({ name: device, ops, inflight }) => {
    const list = ops.map(({ op, errors, latency }) => ({ device, op, errors: sum(errors), slowest_seconds: longest(latency.total) })), oldest = ageOf({ inflight });
    if (oldest > 0 && list.every((each) => each.slowest_seconds < oldest)) list.push({ device, op: 'in flight', errors: 0, slowest_seconds: oldest });
    return list;
  });
}

/** Histograms as consecutive words. */
function wordsOf(histograms) {
  const words = [];
  for (const counts of histograms) {
    const start = words.push(0);
    counts.forEach((count, cell) => { if (count > 0) words.push(cell, count); });
    words[start - 1] = (words.length - start) / 2;
  }
  return Float64Array.from(words);
}

/** The sum of bands of sizes, as `sumBands` adds them up. */
const bandsOf = (bands) => ({ seconds: bands.map(({ seconds }) => seconds), words: wordsOf(bands.map(({ counts }) => counts)) });

/** The sum of what an op or a workload did in several deltas. */
function sumGrowth(list) {
  if (list.length === 1) return list[0];
  const { bytes, errors, seconds, counts } = list.reduce((sum, growth) => sum.add(growth), new Sum());
  const banded = list.filter(({ bands }) => bands).map((growth) => ({ devices: new Map([['', { ops: new Map([['', growth]]) }]]) }));
  return { bytes, errors, seconds, words: wordsOf(counts), bands: banded.length ? bandsOf(sumBands(banded, null, null)) : null };
}

/** What each workload did in several deltas. */
function sumWorkloads(deltas) {
  const all = new Map();
  for (const { workloads } of deltas) {
    for (const [cgroup, { who, usage }] of workloads) {
      const { uses } = all.get(cgroup) ?? all.set(cgroup, { who, uses: new Map() }).get(cgroup);
      for (const use of usage) {
        const key = `${use.device}\n${use.op}`;
        (uses.get(key) ?? uses.set(key, []).get(key)).push(use);
      }
    }
  }
  const sums = (uses) => [...uses.values()].map((list) => ({ ...list[0], ...sumGrowth(list) }));
  return new Map([...all].map(([cgroup, { who, uses }]) => [cgroup, { who, usage: sums(uses) }]));
}

/** Several deltas as one. */
function sumDeltas(deltas) {
  if (deltas.length === 1) return deltas[0];
  const [{ from: began }] = deltas, { to } = deltas.at(-1), seconds = sum(deltas.map((delta) => delta.seconds)), all = new Map(), lost = {};
  for (const delta of deltas) {
    for (const [name, { ops, unseen }] of delta.devices) {
      const device = all.get(name) ?? { ops: new Map(), unseen: 0, cpus: [] };
      for (const [op, growth] of ops) (device.ops.get(op) ?? device.ops.set(op, []).get(op)).push(growth);
      device.unseen += unseen;
      all.set(name, device);
    }
    for (const [reason, count] of Object.entries(delta.lost)) lost[reason] = (lost[reason] ?? 0) + count;
  }
  for (const { ops } of all.values()) for (const [op, list] of ops) ops.set(op, sumGrowth(list));
  const [seen, slow, summary] = ['seen', 'slow', 'summary'].map((part) => deltas.flatMap((delta) => delta[part]));
  return {
    ...deltas[0], from: began < to ? began : to - seconds, to, seconds, devices: all, seen, slow, summary, lost,
    // As in the API: without those of a part, there are none of the sum.
    ...(deltas.every((delta) => delta.hasDetail) ? { workloads: sumWorkloads(deltas) } : { workloads: new Map(), hasDetail: false }),
    slow_dropped: sum(deltas.map((delta) => delta.slow_dropped)), failures: sum(deltas.map((delta) => delta.failures)),
  };
}

class SavedHistory {
  deltas = [];
  /** What is wrong with the file, although it can be shown; empty if nothing is. */
  problem = '';

  constructor(name, { format, format_version: version, saved, history, snapshot }) {
    if (format !== SAVED_FORMAT) throw notSaved(name);
    if (version !== SAVED_VERSION) throw new Error(`${name} was saved by a newer biolat: open it in the page of that version.`);
    const { host, interval } = history;
    const none = { version: 1, host, interval, taken: saved, started: 0, devices: [], workloads: null, lost: {}, daemon: { failures: 0, overruns: 0, collections: { count: 0, seconds: 0 } } };
    Object.assign(this, { name, saved, latest: snapshot ?? none });
  }

  /** The deltas of a range, summed by steps, as the API selects them. */
  range(from, to, step) {
    const within = this.deltas.filter((delta) => middleOf(delta) >= from && middleOf(delta) < to), middle = (from + to) / 2, steps = [];
    if (within.length === 0) return this.deltas.filter((delta) => delta.from <= middle && middle < delta.to).slice(0, 1);
    let last = null;
    for (const delta of within) {
      const number = Math.floor((middleOf(delta) - from) / step);
      if (number === last) steps.at(-1).push(delta);
      else steps.push([delta]);
      last = number;
    }
    return steps.map(sumDeltas);
  }
}

/** Reads a file, as far as it is readable. */
async function readSaved(file) {
  let saved = null, words = 0, isWhole = false, isTooLarge = false;
  try {
    for await (const line of linesOf(file)) {
      const value = JSON.parse(line);
      if (saved === null) {
        saved = new SavedHistory(file.name, value);
        continue;
      }
      if (value.end) {
        isWhole = value.end.intervals === saved.deltas.length;
        break;
      }
      if (saved.deltas.length === MOST_SAVED_DELTAS) throw new TooLarge();
      const delta = deltaOf({ ...value, summary: summaryOf(value) });
      words += (1 + delta.slow.length + delta.summary.length) * OBJECT;
      for (const { ops } of delta.devices.values()) for (const [, growth] of ops) words += growth.words.length + (growth.bands?.words.length ?? 0) + OBJECT;
      for (const { usage } of delta.workloads.values()) for (const growth of usage) words += growth.words.length + OBJECT;
      if (words > MOST_SAVED_WORDS) throw new TooLarge();
      saved.deltas.push(delta);
    }
  } catch (error) {
    isTooLarge = error instanceof TooLarge;
    // Errors of this module are sentences; what the browser says of text that is no JSON is none.
    if (saved === null) throw error.message.startsWith(file.name) ? error : notSaved(file.name);
  }
  if (saved === null || saved.deltas.length === 0) throw new Error(`${file.name} has no intervals${isTooLarge ? ' that a browser can hold' : ''}.`);
  if (!isWhole) saved.problem = `${file.name} is ${isTooLarge ? 'too large for a browser' : 'damaged'}: it is shown up to ${moment(saved.deltas.at(-1).to)}.`;
  return saved;
}

/** Shows a saved history in place of the daemon's. */
async function openFile(file) {
  if (!file || !history.latest) return;
  fileNote = `Reading ${file.name} …`;
  draw();
  try {
    saved = await readSaved(file);
    fileNote = '';
    paused = { deltas: [], latest: saved.latest };
    showFile({ last: DAY });
  } catch (error) {
    fileNote = error.message;
    draw();
  }
}
function closeFile() {
  saved = paused = null;
  fileNote = '';
  showFile(null);
}
function showFile(range) {
  past.forget();
  day.past.forget();
  at('pause').setAttribute('aria-pressed', saved !== null);
  setText(at('pause'), saved ? 'Close file' : 'Pause');
  showState();
  choose({ device: null, op: null, workload: null, range });
}

const hasFile = ({ dataTransfer }) => dataTransfer?.types.includes('Files');
addEventListener('dragover', (event) => { if (hasFile(event)) event.preventDefault(); });
addEventListener('drop', (event) => {
  if (!hasFile(event)) return;
  event.preventDefault();
  openFile(event.dataTransfer.files[0]);
});
at('open').onclick = () => at('file').click();
at('file').onchange = ({ target }) => {
  openFile(target.files[0]);
  // The same file can be opened again.
  target.value = '';
};

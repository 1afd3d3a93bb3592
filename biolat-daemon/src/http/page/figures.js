// Buckets, percentiles and number formats.

/** Characters that control, reorder or hide text, as in `sanitize.rs`: names of cgroups and devices can contain any. */
const REPLACED = /(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{DI}]/gu;
const visible = (text) => (typeof text === 'string' ? text.replace(REPLACED, '\ufffd') : text);

// The zero bucket's index is one below the first bucket, the overflow's one above the last.
const ZERO = -160, OVER = 81, CELLS = OVER - ZERO + 1;
const PHASES = ['queue', 'device', 'total', 'admission'], QUEUE = 0, DEVICE = 1, TOTAL = 2, ADMISSION = 3;

/** Size bands in ascending order: the API's names and their descriptions. */
const BANDS = Object.entries({
  le_4KiB: 'up to 4 KiB', le_16KiB: '4 to 16 KiB', le_64KiB: '16 to 64 KiB', le_256KiB: '64 to 256 KiB', le_1MiB: '256 KiB to 1\u00a0MiB',
  gt_1MiB: 'above 1 MiB',
});

const lower = (index) => (index <= ZERO ? 0 : 2 ** ((index - 1) / 8));
const upper = (index) => (index >= OVER ? Infinity : 2 ** (index / 8));
/** Buckets of size bands and workloads are this many cells wide, and have the index of their last cell. */
const WIDE = 4;
const isEnd = (index) => index <= ZERO || index >= OVER;
/** Number of cells in a bucket. */
const cellsOf = (index, wide) => (isEnd(index) ? 1 : wide);
/** Geometric middle of a bucket; for the zero bucket and the overflow, their finite bound. */
const middle = (index, wide = 1) => (index <= ZERO ? upper(ZERO) : index >= OVER ? lower(OVER) : 2 ** ((index - wide / 2) / 8));

/** Index of the bucket that contains a quantile; null without counts. */
function quantile(counts, all, q) {
  const rank = Math.ceil(all * q);
  let sum = 0;
  for (let cell = 0; all > 0 && cell < CELLS; cell++) {
    sum += counts[cell];
    if (sum >= rank) return cell + ZERO;
  }
  return null;
}

/** Label of an axis line. */
const tick = (seconds) =>
  (seconds < 0.9995e-3 ? `${Math.round(seconds * 1e6)} µs` : seconds < 0.9995 ? `${Math.round(seconds * 1e3)} ms` : `${seconds} s`);

const NONE = '–';
const digits = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));

function latency(seconds) {
  if (seconds < 0.9995e-3) return `${digits(seconds * 1e6)} µs`;
  if (seconds < 0.9995) return `${digits(seconds * 1e3)} ms`;
  return seconds < 120 ? `${digits(seconds)} s` : `${digits(seconds / 60)} min`;
}
const bounds = (index, wide = 1) =>
  index <= ZERO ? `at most ${latency(upper(index))}` :
  index >= OVER ? `above ${latency(lower(index))}` : `${latency(lower(index - wide + 1))} to ${latency(upper(index))}`;

/** A percentile and the bounds of its bucket, as text. */
const percentile = (index, wide = 1) => (index === null ? [NONE, ''] :
  [`${index <= ZERO ? '≤ ' : index >= OVER ? '> ' : ''}${latency(middle(index, wide))}`, bounds(index, wide)]);

function number(value) {
  if (value === null) return NONE;
  if (value >= 1e6) return `${digits(value / 1e6)} M`;
  if (value >= 1e4) return `${digits(value / 1e3)} k`;
  return value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value >= 0.1 ? value.toFixed(1) : value.toPrecision(1);
}
const megabytes = (bytes) => (bytes === null ? NONE : bytes === 0 ? '0' : bytes < 1e4 ? '< 0.01' : digits(bytes / 1e6));
const percent = (share) => (share === null ? NONE : `${share > 0 && share < 0.0995 ? (share * 100).toPrecision(2) : (share * 100).toFixed(0)} %`);
const memory = (bytes) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
const many = (count, what) => `${number(count)} ${what}${count === 1 ? '' : 's'}`;
const sum = (counts) => Object.values(counts).reduce((all, count) => all + count, 0);

function duration(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}
const two = (value) => String(value).padStart(2, '0');
const date = (time) => `${two(time.getMonth() + 1)}-${two(time.getDate())}`;
function clock(seconds, fine = true) {
  const time = new Date(seconds * 1000);
  return `${two(time.getHours())}:${two(time.getMinutes())}${fine ? `:${two(time.getSeconds())}` : ''}`;
}

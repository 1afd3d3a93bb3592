// The strip of the whole day: the slowest I/O of each step, errors, restarts, and times without data. A click or drag selects
// the range that the page shows.

const DAY_COLUMNS = 800;
/** Latency in seconds above which an I/O is a stall. */
const STALL = 1;
/** Half the length of the range that a click selects, in seconds. */
const AROUND = 300;

class Day {
  columns = [];
  /** The column that the pointer or keyboard is at. */
  #column = null;
  /** Start of the range that is being selected, in CSS pixels; null if there is none. */
  #start = null;

  constructor(onChange, onRange) {
    this.past = new Past(onChange, '&detail=summary', 200);
    this.canvas = at('day');
    this.onRange = onRange;
    this.canvas.onpointerdown = ({ button, offsetX, pointerId }) => {
      if (button !== 0) return;
      this.#start = offsetX;
      // A drag can end outside the strip.
      this.canvas.setPointerCapture(pointerId);
    };
    this.canvas.onpointermove = (event) => this.#point(event);
    this.canvas.onpointerup = (event) => this.#release(event.offsetX);
    this.canvas.onpointercancel = this.canvas.onpointerleave = this.canvas.onblur = () => this.clear();
  }

  /** Loads the day up to now, at most once per step; or all of a saved history. */
  follow({ taken }) {
    if (this.past.loading) return;
    const length = Math.min(DAY, Math.max(600, taken - this.past.begin));
    const { from, to } = WHOLE ?? { from: taken - length, to: taken };
    const step = Math.max(5, stepOf(to - from, DAY_COLUMNS));
    this.past.load(`${step}`, from, to, step);
  }

  draw(snapshot, device, op, range) {
    const { past } = this;
    // Old columns stay until new ones are loaded.
    if (past.deltas.length > 0) at('day-of').hidden = false;
    else if (!past.loading) at('day-of').hidden = true;
    if (past.deltas.length === 0) return;
    const from = Math.max(past.from, Math.floor(past.begin)), to = Math.max(past.to, from + 60);
    const { context, width, height, ink, line } = prepare(this.canvas), bottom = height - 16;
    const x = (time) => ((time - from) / (to - from)) * width;
    Object.assign(this, { from, to, x, width });
    this.columns = past.deltas.map((delta) => dayColumn(delta, device, op));
    hatch(context, line, [0, ...this.columns.flatMap((column) => [x(column.from), x(column.to)]), width], 0, bottom);
    const colours = Object.fromEntries(['stall', 'slow', 'failed', 'start'].map((kind) => [kind, getComputedStyle(at(`day-${kind}`)).color]));
    for (const column of this.columns) {
      if (column.slowest === 0) continue;
      // The scale goes from 100 µs to 10 s.
      const high = Math.max(2, Math.min(1, (Math.log10(column.slowest) + 4) / 5) * (bottom - 8));
      context.fillStyle = isStall(column) ? colours.stall : column.slow ? colours.slow : ink;
      context.globalAlpha = isStall(column) || column.slow ? 1 : 0.45;
      // Highlighted columns are at least two pixels wide.
      const wide = Math.max(x(column.to) - x(column.from), context.globalAlpha === 1 ? 2 : 0.5);
      context.fillRect(x(column.from), bottom - high, wide, high);
    }
    context.globalAlpha = 1;
    context.fillStyle = colours.failed;
    for (const column of this.columns.filter(({ errors }) => errors > 0)) diamond(context, x(middleOf(column)), 4);
    const { started } = snapshot, began = started > from + 1 && started < to;
    context.fillStyle = colours.start;
    if (began) context.fillRect(x(started) - 1, 0, 2, bottom);
    this.#axis(context, ink, line, bottom);
    const none = (test) => !this.columns.some(test);
    at('day-stall').hidden = none(isStall);
    at('day-slow').hidden = none((column) => column.slow && !isStall(column));
    at('day-failed').hidden = none(({ errors }) => errors > 0);
    at('day-start').hidden = !began;
    setText(at('day-title'), SAVED ? `${moment(from, false)} – ${moment(to, false)},` : to - from > DAY - 600 ? 'The last day' : `Since ${moment(from, false)}`);
    this.canvas.ariaLabel = `Slowest I/O of ${selection()} since ${moment(from, false)}: ${many(this.columns.filter(isStall).length, 'time')} above 1 s, ` +
      `${many(this.columns.filter(({ errors }) => errors > 0).length, 'time')} with errors. Arrow keys move between these, Enter selects one.`;
    const isAll = range && range.to - range.from > 0.9 * (to - from);
    place(at('day-range'), range && !isAll && [x(Math.max(from, range.from)), x(Math.min(to, range.to))]);
  }

  #axis(context, ink, line, bottom) {
    const { from, to, x, width } = this;
    context.fillStyle = line;
    context.fillRect(0, bottom, width, 1);
    context.fillStyle = ink;
    context.textBaseline = 'middle';
    context.textAlign = 'center';
    for (const [time, text] of timeTicks(from, to, width)) {
      const half = context.measureText(text).width / 2;
      if (x(time) > half && x(time) < width - half) context.fillText(text, x(time), bottom + 10);
    }
  }

  /** Describes a column in words, and marks it. */
  #read(column) {
    this.#column = column;
    const { from, to, slowest, errors, failures, name } = column;
    const text = [`${moment(from)} – ${clock(to)}`, slowest > 0 ? `${name} up to ${latency(slowest)}` : 'no I/O', errors > 0 && many(errors, 'error'),
      failures > 0 && many(failures, 'failed collection')].filter(Boolean).join(', ');
    setText(at('day-reading'), text);
    place(at('day-cursor'), [this.x(from), this.x(to)]);
  }

  #inside = (left) => Math.max(0, Math.min(left, this.width));

  #at(left) {
    const time = this.from + (left / this.width) * (this.to - this.from);
    return this.columns.findLast((column) => column.from <= time && time < column.to);
  }

  #point({ offsetX, buttons }) {
    const left = this.#inside(offsetX), start = this.#start;
    if (buttons && start !== null && Math.abs(left - start) > DRAG) place(at('day-cursor'), [Math.min(start, left), Math.max(start, left)]);
    else if (this.#at(offsetX)) this.#read(this.#at(offsetX));
    else this.clear(this.#start);
  }

  #release(offsetX) {
    const start = this.#start, left = this.#inside(offsetX), time = (at) => this.from + (at / this.width) * (this.to - this.from);
    this.clear();
    if (start === null) return;
    if (Math.abs(left - start) > DRAG) return this.onRange(time(Math.min(start, left)), time(Math.max(start, left)));
    // Selects the worst column near the click.
    const near = this.columns.filter((column) => Math.abs(this.x(middleOf(column)) - left) < 8).sort((one, other) => other.slowest - one.slowest);
    const worst = near.find(({ errors }) => errors > 0) ?? near[0];
    this.#choose(near.some(isStall) ? near[0] : worst ?? { from: time(left), to: time(left) });
  }

  #choose(column) {
    this.onRange(middleOf(column) - AROUND, middleOf(column) + AROUND);
  }

  /** Moves to the next column with a stall or errors. */
  move(by) {
    const list = this.columns.filter((column) => isStall(column) || column.errors > 0), here = this.#column?.from ?? (by > 0 ? -Infinity : Infinity);
    const next = by > 0 ? list.find(({ from }) => from > here) : list.findLast(({ from }) => from < here);
    if (next) this.#read(next);
    else if (!this.#column && this.columns.length) this.#read(this.columns.at(-1));
  }

  enter() {
    if (this.#column) this.#choose(this.#column);
  }

  clear(start = null) {
    this.#start = start;
    this.#column = null;
    setText(at('day-reading'), '');
    at('day-cursor').hidden = true;
  }
}

const isStall = ({ slowest }) => slowest > STALL * 1.001;

/** Slowest I/O of the selection in a delta, as the upper bound of its bucket, and the number of errors. */
function dayColumn(delta, device, op) {
  const { from, to, failures } = delta, column = { from, to, failures, slowest: 0, errors: 0, slow: false, name: '' };
  const at = ({ device, op }) => (op === 'in flight' ? `${device}: in flight` : `${device} ${op}`);
  for (const each of delta.summary) {
    if (!isOf(each, device, each.op === 'in flight' ? null : op)) continue;
    column.errors += each.errors;
    if (each.slowest_seconds > column.slowest) Object.assign(column, { slowest: each.slowest_seconds, name: at(each) });
  }
  for (const io of delta.slow) column.slow ||= isOf(io, device, op) && io.status === 'ok';
  return column;
}

function diamond(context, left, size) {
  context.beginPath();
  for (const [across, down] of [[0, -1], [1, 0], [0, 1], [-1, 0]]) context.lineTo(left + across * size, size + down * size);
  context.fill();
}

/** Puts a mark between two positions, or hides it if there are none. */
function place(mark, ends) {
  mark.hidden = !ends || ends[1] <= ends[0];
  if (mark.hidden) return;
  mark.style.left = `${ends[0]}px`;
  mark.style.width = `${Math.max(2, ends[1] - ends[0])}px`;
}

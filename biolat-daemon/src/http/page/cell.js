// A cell of the heatmap that was chosen: who was there, and the I/Os themselves. And a range that is chosen by dragging.

/** From so many pixels on, a move with the button down is no click. */
const DRAG = 6;

/** What each device and op had in a cell, the most first. */
function whoWasThere({ deltas }, index, phase, { device, op, workload }) {
  const all = new Map();
  const add = (device, op, { words }) => {
    const counts = PHASES.map(() => new Float64Array(CELLS)), sums = PHASES.map(() => 0), key = `${device}\n${op}`;
    addWords(words, counts, sums);
    const row = all.get(key) ?? { device, op, count: 0, of: 0 };
    row.count += counts[phase][index - ZERO];
    row.of += sums[phase];
    all.set(key, row);
  };
  for (const delta of deltas) {
    if (workload !== null) {
      for (const use of delta.workloads.get(workload)?.usage ?? []) if (isOf(use, device, op)) add(use.device, use.op, use);
      continue;
    }
    for (const [name, { ops }] of delta.devices) {
      for (const [kind, growth] of ops) if (isOf({ device: name, op: kind }, device, op)) add(name, kind, growth);
    }
  }
  return [...all.values()].filter(({ count }) => count > 0).sort((one, other) => other.count - one.count);
}

/** The recorded I/Os of a column, from the history or, without one, the latest ones. */
async function recorded({ from, to }) {
  const isThere = ({ completed }) => completed > from && completed <= to;
  try {
    const { intervals } = await askHistory(`from=${from}&to=${to}&detail=summary`);
    return intervals.flatMap(({ slow }) => slow).filter(isThere);
  } catch {
    const response = await fetch(`${API}slow`, { cache: 'no-store' });
    return response.ok ? (await response.json()).ios.filter(isThere) : [];
  }
}

class CellPanel {
  /** What is shown: a column and an index. Null if the panel is closed. */
  cell = null;
  /** Whether the reader has just asked for it. */
  isNew = false;

  close() {
    this.cell = null;
    at('there').hidden = true;
  }

  async show({ column, index }, chosen, phase, wide) {
    const cell = this.cell = { column, index };
    const rows = whoWasThere(column, index, phase, chosen), all = sum(rows.map(({ count }) => count));
    at('there').hidden = false;
    setText(at('there-of'), `${moment(column.from)} – ${clock(column.to)}, ${PHASES[phase]} latency ${bounds(index, wide)}: ${all ? many(all, 'I/O') : 'no I/O'}`);
    at('there-who').hidden = rows.length === 0;
    at('there-who').tBodies[0].replaceChildren(...rows.map(({ device, op, count, of }) => {
      const row = make('tr');
      row.append(make('th', device, { scope: 'row' }), make('td', op), make('td', number(count), { className: 'n' }), make('td', number(of), { className: 'n' }));
      return row;
    }));
    this.#list([], 'Reading the I/Os …');
    let ios = [];
    try {
      ios = await recorded(column);
    } catch {
      // As if none was recorded: the page's banner tells that the connection is lost.
    }
    if (this.cell !== cell) return;
    const { device, op, workload } = chosen;
    const of = ios.filter((io) => isOf(io, device, op) && (workload ?? io.workload) === io.workload);
    const there = of.filter(({ latency }) => latency[PHASES[phase]] > lower(index - cellsOf(index, wide) + 1) && latency[PHASES[phase]] <= upper(index));
    const slowest = (there.length ? there : of).sort((one, other) => (other.latency.total ?? 0) - (one.latency.total ?? 0));
    this.#list(slowest, there.length ? `${many(there.length, 'I/O')} of this cell, recorded one by one:` :
      of.length ? 'None of this cell was recorded. The slowest that were recorded in this time:' :
      'None was recorded one by one in this time: only those that failed or took longer than --slow are, the slowest ten of an interval.');
  }

  #list(ios, note) {
    setText(at('there-note'), note);
    at('there-slow').parentElement.hidden = ios.length === 0;
    at('there-slow').tBodies[0].replaceChildren(...ios.slice(0, MOST_SLOW).map(slowRow));
    at('there-slow').classList.toggle('unnamed', !ios.some(({ workload }) => workload));
  }
}

/** A range of columns, chosen with the mouse or with shift and the arrows. */
class Band {
  /** Two times, in any order; null if there is none. */
  ends = null;
  /** The column where it began, by keyboard. */
  first = null;

  show(ends, { plot, x }) {
    this.ends = ends;
    const [left, right] = ends.map(x).sort((one, other) => one - other);
    place(at('band'), [Math.max(left, plot.left), Math.min(right, plot.right)]);
    at('band').style.top = `${plot.top}px`;
    at('band').style.height = `${plot.bottom - plot.top}px`;
  }

  clear() {
    this.ends = this.first = null;
    at('band').hidden = true;
  }
}

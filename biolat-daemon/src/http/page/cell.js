// The panel for a selected cell of the heatmap, with its devices, ops and recorded I/Os; and the band for selecting a range.

/** Number of pixels from which a move with the button down is a drag, not a click. */
const DRAG = 6;

/** I/Os in a cell by device and op, most first. */
function cellRows({ deltas }, index, phase, { device, op, workload }) {
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
    for (const [name, { ops, isVolume }] of delta.devices) {
      if (device === null && isVolume) continue;
      for (const [kind, growth] of ops) if (isOf({ device: name, op: kind }, device, op)) add(name, kind, growth);
    }
  }
  return [...all.values()].filter(({ count }) => count > 0).sort((one, other) => other.count - one.count);
}

/** Recorded I/Os of a column, from the history or, if that is off, from the latest records. */
async function recorded({ from, to }) {
  const isInColumn = ({ completed }) => completed > from && completed <= to;
  try {
    const { intervals } = await askHistory(`from=${from}&to=${to}&detail=summary`);
    return intervals.flatMap(({ slow }) => slow).filter(isInColumn);
  } catch {
    const response = await fetch(`${API}slow`, { cache: 'no-store' });
    return response.ok ? (await response.json()).ios.filter(isInColumn) : [];
  }
}

class CellPanel {
  /** The cell that is shown, as a column and an index; null if the panel is closed. */
  cell = null;
  /** Whether the reader has just selected the cell. */
  isNew = false;

  close() {
    this.cell = null;
    at('there').hidden = true;
  }

  async show({ column, index }, chosen, phase, wide) {
    const cell = this.cell = { column, index };
    const rows = cellRows(column, index, phase, chosen), all = sum(rows.map(({ count }) => count));
    at('there').hidden = false;
    setText(at('there-of'), `${moment(column.from)} – ${clock(column.to)}, ${PHASES[phase]} latency ${bounds(index, wide)}: ${all ? many(all, 'I/O') : 'no I/O'}`);
    at('there-who').hidden = rows.length === 0;
    at('there-who').tBodies[0].replaceChildren(...rows.map(({ device, op, count, of }) => {
      const row = make('tr');
      row.append(make('th', device, { scope: 'row' }), make('td', op), make('td', number(count), { className: 'n' }), make('td', number(of), { className: 'n' }));
      return row;
    }));
    this.#list([], 'Loading I/Os …');
    let ios = [];
    try {
      ios = await recorded(column);
    } catch {
      // Treated as no recorded I/Os: the banner says that the connection is lost.
    }
    if (this.cell !== cell) return;
    const { device, op, workload } = chosen;
    const of = ios.filter((io) => isOf(io, device, op) && (workload ?? io.workload) === io.workload);
    const inCell = of.filter(({ latency }) => latency[PHASES[phase]] > lower(index - cellsOf(index, wide) + 1) && latency[PHASES[phase]] <= upper(index));
    const slowest = (inCell.length ? inCell : of).sort((one, other) => (other.latency.total ?? 0) - (one.latency.total ?? 0));
    this.#list(slowest, inCell.length ? `${many(inCell.length, 'recorded I/O')} in this cell:` :
      of.length ? 'No I/O in this cell was recorded. The slowest recorded I/Os of this time:' :
      'No I/O was recorded in this time. Only I/Os that fail or take longer than --slow are recorded; the history keeps the slowest ten per interval.');
  }

  #list(ios, note) {
    setText(at('there-note'), note);
    at('there-slow').parentElement.hidden = ios.length === 0;
    fill(at('there-slow'), ios.slice(0, MAX_SLOW));
  }
}

/** The band over a range of columns that is being selected, by mouse or with shift and arrow keys. */
class Band {
  /** Two times, in any order; null if no range is being selected. */
  ends = null;
  /** Column where a selection by keyboard started. */
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

// The table of slow and failed I/Os. It is fetched for each snapshot while it is visible.

const MAX_SLOW = 50;

class SlowTable {
  list = { ios: [], dropped: 0 };
  #shown = '';
  #inSight = false;
  #fetching = false;

  constructor(section, onList) {
    this.onList = onList;
    new IntersectionObserver((entries) => {
      this.#inSight = entries.at(-1).isIntersecting;
      this.refresh();
    }, { rootMargin: '200px' }).observe(section);
  }

  async refresh() {
    if (!this.#inSight || this.#fetching || document.hidden) return;
    this.#fetching = true;
    try {
      const response = await fetch(`${API}slow`, { cache: 'no-store', signal: AbortSignal.timeout(10000) });
      if (response.ok) this.list = await response.json();
      this.onList();
    } catch {
      // Retried with the next snapshot.
    }
    this.#fetching = false;
  }

  /** Shows the newest I/Os of the selection. */
  show({ ios, dropped }, device, op, workload, key, chosen) {
    const all = ios.filter((io) => isOf(io, device, op) && (workload ?? io.workload) === io.workload);
    const list = all.slice(-MAX_SLOW).reverse(), newest = ios.at(-1)?.number;
    at('slow-list').hidden = ios.length === 0 && dropped === 0;
    const shown = JSON.stringify([newest, ios.length, dropped, key]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    setText(at('slow-of'), [chosen, list.length < all.length ? `newest ${MAX_SLOW} of ${number(all.length)}` : list.length ? 'newest first' : 'none',
      dropped && `${number(dropped)} more not recorded`].filter(Boolean).join(', '));
    at('slow').hidden = list.length === 0;
    fill(at('slow'), list);
  }
}

/** Fills a table of I/Os, without the columns that are empty, as with `--workloads off` or `--slow-names off`. */
function fill(table, ios) {
  for (const column of ['workload', 'process', 'class']) table.classList.toggle(`no-${column}`, !ios.some((io) => io[column]));
  table.tBodies[0].replaceChildren(...ios.map(slowRow));
}

/** A file's path, or what else an I/O reads or writes. */
function target({ class: kind, file }) {
  if (file) return `${file.mount?.replace(/\/+$/, '') ?? ''}${file.path || `/inode ${file.inode}`}${file.removed ? ' (deleted)' : ''}`;
  return kind && kind !== 'flush' && kind !== 'discard' ? kind : NONE;
}

function slowRow(io) {
  const { completed, device, op, workload, process, file, sector, bytes, status, latency: phases, cpu } = io;
  const of = (phase) => (typeof phases[phase] === 'number' ? latency(phases[phase]) : NONE);
  const row = make('tr');
  row.append(...[
    ['time', `${date(new Date(completed * 1000))} ${clock(completed)}`], ['device', device], ['op', op], ['workload', workload ? shortName(workload) : NONE, '', workload],
    ['process', process ? `${process.command}[${process.id}]` : NONE, '', process?.known_by ?? io.process_unknown],
    ['file', '', '', file ? target(io) : io.file_unknown], ['status', status, status === 'ok' ? '' : 'bad'],
    ['total', of('total'), 'n'], ['admission', of('admission'), 'n'], ['queue', of('queue'), 'n'], ['in device', of('device'), 'n'],
    ['size', `${number(bytes / 1024)} KiB`, 'n'], ['sector', sector, 'n'], ['CPU', cpu, 'n'],
  ].map(([column, text, className = '', title = '']) => {
    const cell = make('td', text, { className: `${column} ${className}`, title: visible(title ?? '') });
    cell.dataset.column = column;
    return cell;
  }));
  // The cell runs from right to left, so the beginning of a long path is cut; the path itself does not.
  row.cells[5].append(make('span', target(io), { dir: 'ltr' }));
  return row;
}

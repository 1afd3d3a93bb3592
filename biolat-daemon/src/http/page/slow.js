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
    at('slow').classList.toggle('unnamed', !ios.some(({ workload }) => workload));
    at('slow').tBodies[0].replaceChildren(...list.map(slowRow));
  }
}

function slowRow({ completed, device, op, workload, sector, bytes, status, latency: phases, cpu }) {
  const of = (phase) => (typeof phases[phase] === 'number' ? latency(phases[phase]) : NONE);
  const row = make('tr');
  row.append(...[
    ['time', `${date(new Date(completed * 1000))} ${clock(completed)}`], ['device', device], ['op', op], ['workload', workload ? shortName(workload) : NONE], ['status', status, status === 'ok' ? '' : 'bad'],
    ['total', of('total'), 'n'], ['admission', of('admission'), 'n'], ['queue', of('queue'), 'n'], ['in device', of('device'), 'n'],
    ['size', `${number(bytes / 1024)} KiB`, 'n'], ['sector', sector, 'n'], ['CPU', cpu, 'n'],
  ].map(([column, text, className = '']) => {
    const cell = make('td', text, { className });
    cell.dataset.column = column;
    return cell;
  }));
  row.cells[3].title = visible(workload ?? '');
  return row;
}

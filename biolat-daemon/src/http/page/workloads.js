// The table of workloads, by device time. Users choose the names of cgroups, so they are not trusted.

const MAX_WORKLOADS = 15;
const NAMES = new Map([['/', 'root cgroup'], ['other', 'all others']]);
/** A short name for a cgroup's path. */
const shortName = (path) => NAMES.get(path) ?? (path.split('/').findLast((part) => part) || path);

/** Looks up a workload in the snapshot or, if it is gone, in the history. */
const findWorkload = (cgroup, { snapshot, deltas }) => snapshot.workloads.find((workload) => workload.cgroup === cgroup) ??
  deltas.findLast(({ workloads }) => workloads.has(cgroup))?.workloads.get(cgroup).who ?? { cgroup, name: '', kind: '' };
const workloadName = ({ cgroup, name }) => NAMES.get(cgroup) ?? (name || shortName(cgroup));

/** Device time of each workload, most first; total time where the kernel does not record the dispatch. */
function deviceTimes(deltas, device, op) {
  const times = new Map();
  for (const { workloads } of deltas) {
    for (const [cgroup, { usage }] of workloads) {
      const list = usage.filter((each) => isOf(each, device, op)), add = (sum, { seconds }) => sum + Math.max(0, seconds[TOTAL] - seconds[QUEUE]);
      if (list.length) times.set(cgroup, list.reduce(add, times.get(cgroup) ?? 0));
    }
  }
  return [...times].sort(([one, time], [other, longer]) => longer - time || (one < other ? -1 : 1));
}

const workloadRows = new Map();

function workloadRow(cgroup) {
  const row = make('tr'), label = make('th', '', { scope: 'row' }), share = make('td', '', { className: 'share' });
  label.append(make('button', '', { type: 'button' }), make('small'));
  share.append(make('b'), make('span'));
  row.append(label, share, ...['I/Os', 'MB/s', 'p50', 'p99'].map(() => make('td', '', { className: 'n' })));
  row.onclick = () => {
    choose({ workload: choice.workload === cgroup ? null : cgroup });
    // On a phone, the heatmap can be out of sight.
    if (choice.workload !== null && at('heat').getBoundingClientRect().bottom < 99) at('map').scrollIntoView();
  };
  workloadRows.set(cgroup, row);
  return row;
}

function showWorkloads(view) {
  const { snapshot, deltas, seconds, workload, isPast, missing } = view, { device, op } = choice;
  at('who-at').hidden = deltas.length === 0 && missing === '';
  if (at('who-at').hidden) return;
  // The current daemon may not count workloads even if the history has some.
  const times = snapshot.workloads ? deviceTimes(deltas, device, op) : [], all = times.reduce((sum, [, time]) => sum + time, 0);
  // The selected workload always has a row, because a click on it clears the selection.
  const list = times.filter(([cgroup], place) => place < MAX_WORKLOADS || cgroup === workload);
  const more = times.length - list.length;
  if (workload !== null && !list.some(([cgroup]) => cgroup === workload)) list.push([workload, 0]);
  const rest = list.reduce((rest, [, time]) => rest - time, all);
  setText(at('who-of'), `total latency of ${selection()}, ${isPast ? '' : 'last '}${duration(seconds)}, most device time first; percentiles within 19 %`);
  setText(at('who-note'), !snapshot.workloads ? 'Counting by workload is off (--workloads), or this kernel does not record the cgroup of an I/O.' :
    list.length === 0 ? missing || 'No I/O in this time.' :
    [more > 0 && `and ${more} more, together ${percent(all > 0 ? Math.max(0, rest) / all : null)}`, missing].filter(Boolean).join('. '));
  at('who-note').hidden = at('who-note').textContent === '';
  at('who').hidden = at('who-of').hidden = list.length === 0;
  for (const cgroup of workloadRows.keys()) if (!list.some(([other]) => other === cgroup)) workloadRows.delete(cgroup);
  setRows(at('who').tBodies[0], list.map(([cgroup]) => workloadRows.get(cgroup) ?? workloadRow(cgroup)));
  for (const [cgroup, time] of list) {
    const row = workloadRows.get(cgroup), [label, share, ...cells] = row.cells, who = findWorkload(cgroup, view), figures = new Sum();
    for (const delta of deltas) figures.addDelta(delta, device, op, cgroup);
    row.setAttribute('aria-current', workload === cgroup);
    setText(label.firstChild, workloadName(who), `${cgroup}${who.kind && ` (${who.kind})`}`);
    setText(label.lastChild, who.gone ? 'gone' : '', who.gone ? 'this cgroup has been removed' : '');
    setText(share.firstChild, percent(all > 0 ? time / all : null));
    share.lastChild.style.setProperty('--share', all > 0 ? time / all : 0);
    [[number(figures.all[TOTAL] / seconds)], [megabytes(figures.bytes / seconds)],
      ...[0.5, 0.99].map((q) => percentile(figures.quantile(TOTAL, q), WIDE))].forEach((text, place) => setText(cells[place], ...text));
  }
}

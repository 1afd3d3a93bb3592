// The page: handles the selection and renders every new snapshot.
// Device names and models come from drives and workload names from users, so they are inserted as text, never as markup.

const at = (id) => document.getElementById(id);
const history = new History();
const heatmap = new Heatmap(at('heat'));
const SPANS = [30, 60, 120, 300, MAX_DELTAS];
const reducedMotion = matchMedia('(prefers-reduced-motion: reduce)'), darkScheme = matchMedia('(prefers-color-scheme: dark)');

/** The selection. Null means all; for the range, live. A range has a length up to now, or both ends. */
const choice = { device: null, op: null, workload: null, phase: TOTAL, span: 2, range: null, cell: null };
const past = new Past(() => draw());
/** History at the time of the pause; null if not paused. */
let paused = null;
/** The last rendered view: deltas, time range, sums. */
let rendered = null;

function make(tag, text = '', properties = {}) {
  return Object.assign(document.createElement(tag), { textContent: visible(text) }, properties);
}
/** Sets the text only if it has changed, so that screen readers do not repeat it and selected text stays selected. */
function setText(element, text, title) {
  [text, title] = [visible(text), visible(title)];
  if (element.textContent !== text) element.textContent = text;
  if (title !== undefined && element.title !== title) element.title = title;
}
const stored = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
const store = (name, value) => { try { localStorage.setItem(name, value); } catch { /* the page works without */ } };

// The selection. It is in the page's address, so that it can be shared.

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  choice.device = given.get('device');
  choice.op = given.get('op');
  choice.workload = given.get('workload');
  const phase = PHASES.indexOf(given.get('latency'));
  choice.phase = phase < 0 ? TOTAL : phase;
  const [last, from, to] = ['last', 'from', 'to'].map((name) => (given.has(name) ? Number(given.get(name)) : NaN));
  choice.range = last > 0 ? { last: Math.min(last, DAY) } : from < to && Number.isFinite(to - from) ? { from, to } : WHOLE;
  const [time, index] = (given.get('cell') ?? '').split(',').map(Number);
  choice.cell = time > 0 && Number.isFinite(time) && index >= ZERO && index <= OVER && Number.isInteger(index) ? { time, index } : null;
  // The live view may not reach back to the cell, so select a range around it.
  if (choice.cell && !choice.range) choice.range = { from: time - AROUND, to: time + AROUND };
}

/** Changes the selection. A cell belongs to one selection, so any other change closes it. */
function choose(change) {
  const before = JSON.stringify(choice.range);
  Object.assign(choice, { cell: null }, change);
  const { device, op, workload, phase, range, cell } = choice, given = new URLSearchParams();
  if (device !== null) given.set('device', device);
  if (op !== null) given.set('op', op);
  if (workload !== null) given.set('workload', workload);
  if (phase !== TOTAL) given.set('latency', PHASES[phase]);
  const ends = cell !== null ? shownRange() : range === WHOLE ? null : range;
  for (const [name, time] of Object.entries(ends ?? {})) given.set(name, time);
  if (ends && cell !== null) given.set('cell', `${cell.time},${cell.index}`);
  // The browser's back button returns to the previous range.
  window.history[JSON.stringify(range) === before ? 'replaceState' : 'pushState'](null, '', `#${given}`);
  clearReading();
  if (cell === null) panel.close();
  follow();
  draw();
}

// The past.

/** Time from which there is history. */
const beginning = () => SAVED?.from ?? Math.floor(day.past.begin);
/** Ends of the selected range, limited to the longest possible history and to the latest snapshot. */
function chosenRange() {
  const { last, from = Math.max(latestTaken() - last, beginning()), to = Infinity } = choice.range;
  return { from: Math.max(from, latestTaken() - MAX_HISTORY), to: Math.min(to, latestTaken()) };
}
/** Ends of the shown range in whole seconds, for a link to a cell that can be opened later. Null if there is no history. */
const shownRange = () => (isOff() ? null : { from: Math.floor(rendered.from), to: Math.ceil(Math.min(rendered.to, latestTaken())) });
const latestTaken = () => SAVED?.to ?? (paused ?? history).latest.taken;

const isOff = () => day.past.problem === OFF;

/** Loads new intervals of the day and of the range. */
function follow() {
  if (!history.latest || document.hidden) return;
  if (!paused) day.follow(history.latest);
  if (choice.range === null) return past.forget();
  const { from, to } = chosenRange(), step = stepOf(to - from);
  past.load(`${JSON.stringify(choice.range)} ${step}`, from, to, step, (choice.range.to ?? Infinity) > latestTaken() && !paused && !SAVED);
}

/** Selects a range, rounded to whole seconds, at least ten seconds long and within the history. */
function chooseRange(from, to) {
  const begin = Math.max(from, beginning()), end = Math.min(to, latestTaken()), wide = Math.max(0, 10 - (end - begin)) / 2;
  choose({ range: { from: Math.floor(begin - wide), to: Math.ceil(end + wide) } });
}

function showRanges() {
  const { range } = choice;
  const shorter = SAVED ? RANGES.filter((seconds) => seconds < SAVED.to - SAVED.from) : RANGES;
  setButtons(at('ranges'), [['', SAVED ? 'all' : 'live'], ...shorter.map((seconds) => [seconds, duration(seconds), `the last ${duration(seconds)} (h)`])],
    range === WHOLE ? '' : range.last ?? 'other', (last) => choose({ range: last === '' ? WHOLE : { last } }));
  for (const button of at('ranges').querySelectorAll('button')) button.disabled = button.value !== '' && isOff();
  at('span').parentElement.hidden = range !== null;
  // Shown even if a part has been loaded.
  const note = day.past.problem || past.problem;
  setText(at('day-note'), note);
  at('day-note').hidden = note === '';
  const { from, to } = rendered ?? {};
  setText(at('range-of'), range === null || !(from < to) ? '' : `${moment(from, to - from < 7200)} – ${moment(to, to - from < 7200)}`);
}

/** Doubles or halves the range around its middle; a range up to now gets the next longer or shorter length. */
function zoom(step) {
  const { last } = choice.range;
  if (last) return chooseLast(step > 0 ? RANGES.find((seconds) => seconds > last) : RANGES.findLast((seconds) => seconds < last));
  const { from, to } = choice.range, middle = (from + to) / 2, half = ((to - from) / 2) * 2 ** step;
  chooseRange(middle - half, middle + half);
}
function chooseLast(last) {
  if (last && !isOff()) choose({ range: { last } });
}

function setOptions(select, list, chosen) {
  if (select.dataset.list !== JSON.stringify(list)) {
    select.dataset.list = JSON.stringify(list);
    select.replaceChildren(...list.map(([value, text]) => make('option', text, { value })));
  }
  select.value = chosen;
}

/** Fills a fieldset with buttons, one of which is pressed. */
function setButtons(fieldset, list, chosen, pick) {
  if (fieldset.dataset.list !== JSON.stringify(list)) {
    fieldset.dataset.list = JSON.stringify(list);
    fieldset.querySelectorAll('button').forEach((button) => button.remove());
    fieldset.append(...list.map(([value, text, title = '']) => {
      const button = make('button', text, { type: 'button', title, value });
      button.onclick = () => pick(value);
      return button;
    }));
  }
  for (const button of fieldset.querySelectorAll('button')) button.setAttribute('aria-pressed', button.value === String(chosen));
}

const hasAdmission = ({ devices }) => devices.some(({ phases }) => phases.includes('admission'));

function showChoice(snapshot, { hasTotalOnly, phase }) {
  const names = snapshot.devices.map(({ name }) => name);
  if (choice.device !== null && !names.includes(choice.device)) names.push(choice.device);
  setOptions(at('device'), [['', 'all'], ...names.map((name) => [`=${name}`, name])], choice.device === null ? '' : `=${choice.device}`);
  const ops = new Set(snapshot.devices.flatMap(({ ops }) => ops.map(({ op }) => op)));
  if (choice.op !== null) ops.add(choice.op);
  const usual = ['read', 'write', 'flush', 'discard'], place = (op) => (usual.indexOf(op) + 9) % 9;
  const sorted = [...ops].sort((one, other) => place(one) - place(other) || (one < other ? -1 : 1));
  setButtons(at('ops'), [['', 'all'], ...sorted.map((op) => [`=${op}`, op])], choice.op === null ? '' : `=${choice.op}`,
    (value) => choose({ op: value === '' ? null : value.slice(1) }));
  const phases = [[ADMISSION, 'from submission to allocation of a request (0)'], [QUEUE, 'from allocation of a request to its dispatch to the driver (1)'],
    [DEVICE, 'from dispatch to completion (2)'], [TOTAL, 'queue and device (3)']].filter(([phase]) => phase !== ADMISSION || choice.phase === phase || hasAdmission(snapshot));
  setButtons(at('phases'), phases.map(([phase, title]) => [phase, PHASES[phase], title]), phase, (phase) => choose({ phase }));
  at('phases').disabled = hasTotalOnly;
  at('phases').title = hasTotalOnly ? 'for a workload or a volume, only total latency is counted' : '';
  setOptions(at('span'), SPANS.map((count, span) => [span, duration(count * snapshot.interval)]), choice.span);
}

// Rendering.

let drawTimer = 0, lastDrawn = 0, draws = 0, drawSeconds = 0;
/** Schedules rendering at a limited rate. */
function draw() {
  if (drawTimer || document.hidden) return;
  drawTimer = setTimeout(() => requestAnimationFrame(() => {
    drawTimer = 0;
    lastDrawn = performance.now();
    drawNow();
  }), Math.max(0, lastDrawn + (reducedMotion.matches ? 1000 : 100) - performance.now()));
}

/** View of a range of the past. */
function pastRange() {
  const { latest } = paused ?? history, { deltas } = past, from = Math.max(past.from, Math.min(past.begin, past.to - past.step));
  return { snapshot: past.snapshot(latest), from, to: Math.max(past.to, from + past.step), deltas, isPast: true };
}

function timeRange() {
  if (choice.range !== null) return pastRange();
  const { deltas, latest } = paused ?? { deltas: history.deltas, latest: history.latest };
  // The time range grows with the history up to the selected length.
  const end = latest.taken, most = SPANS[choice.span];
  const first = deltas.length ? Math.max(deltas[0].from, end - MAX_DELTAS * latest.interval) : end;
  const wanted = SPANS.find((count) => count >= most || count * latest.interval >= end - first);
  const span = wanted * latest.interval;
  // The view fills from left to right, then scrolls.
  const from = deltas.length && end - first < span ? first : end - span;
  return { snapshot: latest, from, to: from + span, deltas: deltas.filter((delta) => delta.to > from) };
}

function drawNow() {
  if (!history.latest) return;
  const began = performance.now();
  const view = timeRange(), { snapshot, from, to, isPast } = view;
  const dark = isDark(), { device, op } = choice;
  // For a workload, only total latency is counted.
  const workload = snapshot.workloads ? choice.workload : null, hasTotalOnly = workload !== null || snapshot.devices.some((each) => each.name === choice.device && isVolume(each));
  const phase = hasTotalOnly ? TOTAL : choice.phase;
  // Deltas with sizes and workloads; in the past, not all have them.
  const detailed = view.deltas.filter(({ hasDetail = true }) => hasDetail), deltas = workload === null ? view.deltas : detailed;
  showChoice(snapshot, { hasTotalOnly, phase });
  setText(at('host'), snapshot.host);
  document.title = visible(`${snapshot.host}${SAVED ? ', saved' : ''} · biolat`);
  const colours = Object.fromEntries(QUANTILES.map(([name]) => [name, getComputedStyle(document.querySelector(`dt.${name}`)).color]));
  heatmap.draw({ deltas, from, to, whole: isPast && !past.loading, device, op, workload, phase, dark, colours });
  const sumOf = (some, whose) => some.reduce((all, delta) => all.addDelta(delta, device, op, whose), new Sum());
  const total = sumOf(deltas), shown = workload === null ? total : sumOf(deltas, workload);
  const of = `${workload === null ? '' : `${workloadName(findWorkload(workload, view))}, `}${selection()}`;
  rendered = { ...view, deltas, chosen: { ...choice, workload }, workload, of, sum: total, shown, seconds: secondsOf(deltas) };
  const details = { ...rendered, deltas: detailed, sum: detailed.length === deltas.length ? total : sumOf(detailed), seconds: secondsOf(detailed), missing: missingDetail(view.deltas, detailed) };
  showRanges();
  showFigures(rendered);
  showDevices(rendered);
  showWorkloads(details);
  showSizes(details);
  showCpus(rendered);
  showLegend();
  showHung(paused?.latest ?? history.latest);
  slow.show(isPast ? slowOf(deltas) : slow.list, device, op, workload, isPast ? `${of}, ${from} ${to}` : of, of);
  showHints(snapshot);
  showLost(rendered);
  showCost(isPast ? { ...rendered, deltas: [] } : rendered);
  day.draw((paused ?? history).latest, device, op, isPast && { from, to });
  updateReading();
  updatePin();
  draws++;
  drawSeconds = (performance.now() - began) / 1000;
}

const secondsOf = (deltas) => sum(deltas.map((delta) => delta.seconds));

/** Says for how much of the time the history has no sizes and workloads; empty if it has all. */
function missingDetail(deltas, detailed) {
  const missing = secondsOf(deltas) - secondsOf(detailed);
  return detailed.length < deltas.length ? `No longer in the history: ${detailed.length ? duration(missing) : 'all'} of this time.` : '';
}

/** Recorded I/Os of the deltas, each of which has its slowest. */
const slowOf = (deltas) => ({ ios: deltas.flatMap(({ slow }) => slow), dropped: sum(deltas.map((delta) => delta.slow_dropped)) });

const selection = () => `${choice.device ?? 'all devices'}, ${choice.op ?? 'all ops'}`;

function showFigures({ deltas, from, to, shown: total, seconds, snapshot, workload, of, isPast }) {
  const { phase, wide } = heatmap;
  setText(at('title'), `${PHASES[phase]} latency of ${of}`);
  at('everyone').hidden = workload === null;
  for (const [name, q] of QUANTILES) setText(at(name), ...percentile(total.quantile(phase, q), wide));
  const list = heatmap.columns, known = deltas.length > 0 && seconds > 0;
  const ios = (column) => column.all[TOTAL] / column.seconds, bytes = (column) => column.bytes / column.seconds;
  setText(at('iops'), number(known ? total.all[TOTAL] / seconds : null), 'mean over the time shown');
  setText(at('rate'), `${megabytes(known ? total.bytes / seconds : null)}${known ? ' MB/s' : ''}`, 'mean over the time shown');
  for (const [id, value] of [['iops-chart', ios], ['rate-chart', bytes]]) chart(at(id), list, value, from, to);
  at('iops-chart').ariaLabel = `I/Os per second over time, ${at('iops').textContent} on average`;
  at('rate-chart').ariaLabel = `throughput over time, ${at('rate').textContent} on average`;
  setText(at('queue'), percent(total.queueShare));
  setText(at('admission'), percent(total.admissionShare));
  at('admission').parentElement.hidden = !hasAdmission(snapshot);
  setText(at('errors'), known ? number(total.errors) : NONE);
  at('errors').className = total.errors > 0 ? 'bad' : '';
  at('heat').ariaLabel = `${at('title').textContent}, ${duration(seconds)}: p50 ${at('p50').textContent}, p99 ${at('p99').textContent}. Arrow keys move between cells.`;
  const nothing = isPast && !known ? past.problem || (past.loading ? 'Loading the history …' : `No data for this time${past.completeFrom ? `: the history begins at ${moment(past.completeFrom)}` : ''}.`) :
    !known ? `Waiting for the second collection, because values are differences between collections. The interval is ${duration(snapshot.interval)}.` :
    total.all[phase] > 0 ? '' :
    total.all[TOTAL] > 0 ? `The kernel records no ${PHASES[phase]} latency here: see below.` : 'No I/O in this time.';
  setText(at('nothing'), nothing);
  at('nothing').hidden = nothing === '';
}

/** Sort key that puts hung drives first, oldest I/O at the top. */
const hungAge = (device) => (isHung(device) ? ageOf(device) : 0);

/** What a volume is: `vg-data, lvm on nvme0n1`. */
function volumeText({ name, volume: { kind, label, on } }) {
  return `${label === name ? '' : `${label}, `}${kind}${on.length ? ` on ${on.join(', ')}` : ''}`;
}

/** Moves each volume's row below its drive's, and adds the depth. Volumes on no drive that is shown come last. */
function layered(list) {
  const left = new Map(list.filter(({ device }) => isVolume(device)).map((row) => [row.device.name, row])), all = [];
  const place = (name, depth) => {
    const row = left.get(name);
    if (!row) return;
    left.delete(name);
    all.push(Object.assign(row, { depth }));
  };
  for (const row of list.filter(({ device }) => !isVolume(device))) {
    all.push(Object.assign(row, { depth: 0 }));
    for (const { device, depth } of row.device.stack) place(device, depth);
  }
  for (const name of left.keys()) place(name, 0);
  return all;
}

/** Figures of each device, for the time shown or, before the second collection, since biolat first saw the device. */
function deviceRows({ snapshot, deltas, seconds }) {
  return snapshot.devices.map((device) => {
    const total = new Sum(), row = { device, sum: total, unseen: 0, seconds, phase: isVolume(device) ? TOTAL : choice.phase };
    if (deltas.length === 0) {
      total.addDevice(device, choice.op);
      row.seconds = snapshot.taken - device.since;
    } else {
      for (const delta of deltas) {
        total.addDelta(delta, device.name, choice.op);
        row.unseen += delta.devices.get(device.name)?.unseen ?? 0;
      }
    }
    row.p99 = total.quantile(row.phase, 0.99);
    return row;
  }).sort((one, other) => hungAge(other.device) - hungAge(one.device) || (other.p99 ?? -999) - (one.p99 ?? -999) || (one.device.name < other.device.name ? -1 : 1));
}

/** Puts rows into a table without losing the focus. */
function setRows(body, wanted) {
  if (wanted.length === body.rows.length && wanted.every((row, place) => body.rows[place] === row)) return;
  const focused = document.activeElement;
  body.replaceChildren(...wanted);
  if (body.contains(focused)) focused.focus();
}

const rows = new Map();

function rowOf(name) {
  if (!rows.has(name)) {
    const row = make('tr');
    const label = make('th', '', { scope: 'row' }), button = make('button', name, { type: 'button' });
    label.append(button);
    row.append(label, ...['model', 'IOPS', 'MB/s', 'in flight', 'oldest', 'p50', 'p99', 'p99.9', 'spread', 'in queue', 'errors', 'missed'].map((column) => {
      const cell = make('td', '', { className: column === 'model' || column === 'spread' ? column : 'n' });
      cell.dataset.column = column;
      return cell;
    }));
    row.querySelector('.spread').append(make('canvas', '', { ariaHidden: 'true' }));
    row.onclick = () => choose({ device: choice.device === name ? null : name });
    rows.set(name, row);
  }
  return rows.get(name);
}

function showDevices(view) {
  const list = layered(deviceRows(view)), body = at('devices').tBodies[0];
  setText(at('devices-of'), `${PHASES[choice.phase]} latency of ${choice.op ?? 'all ops'}, ${
    view.isPast ? at('range-of').textContent : view.deltas.length ? `last ${duration(view.seconds)}` : 'since biolat first saw them'}, worst p99 first`);
  for (const name of rows.keys()) if (!list.some((row) => row.device.name === name)) rows.delete(name);
  setRows(body, list.map(({ device }) => rowOf(device.name)));
  for (const { device, sum: figures, unseen, seconds, phase, depth } of list) {
    const row = rowOf(device.name), cells = row.cells, known = seconds > 0;
    row.setAttribute('aria-current', choice.device === device.name);
    const claimed = device.stack.filter(({ kind }) => kind === 'persistent_volume').map(({ name }) => name);
    cells[0].firstChild.title = [device.serial && `serial ${device.serial}`, device.firmware && `firmware ${device.firmware}`,
      device.transport, device.rotational && 'rotational',
      device.holders.length && `used by ${device.holders.join(', ')}`,
      claimed.length && `${claimed.length === 1 ? 'persistent volume' : 'persistent volumes'} ${claimed.join(', ')}`].filter(Boolean).join('; ');
    const model = isVolume(device) ? volumeText(device) : device.model;
    setText(cells[1], model || NONE, model);
    cells[0].style.paddingInlineStart = depth ? `${1.5 * depth}em` : '';
    row.classList.toggle('hung', isHung(device));
    setText(cells[2], number(known ? figures.all[TOTAL] / seconds : null));
    setText(cells[3], megabytes(known ? figures.bytes / seconds : null));
    if (isVolume(device)) setText(cells[4], NONE, 'not counted for volumes');
    else setText(cells[4], number(inFlight(device)), `${many(device.inflight.read, 'read')}, ${number(device.inflight.write)} other${Object.entries(device.tag_waits ?? {}).map(([pool, { waits }]) => `; ${number(waits)} waits for a ${pool} tag`).join('')}`);
    setText(cells[5], oldest(device));
    QUANTILES.forEach(([, q], place) => setText(cells[6 + place], ...percentile(figures.quantile(phase, q))));
    setText(cells[10], percent(figures.queueShare));
    const errors = {};
    for (const op of device.ops) for (const [status, count] of Object.entries(op.errors)) errors[status] = (errors[status] ?? 0) + count;
    setText(cells[11], number(sum(errors)), Object.entries(errors).map(([status, count]) => `${status} ${count}`).join(', '));
    cells[11].classList.toggle('bad', view.deltas.length > 0 && figures.errors > 0);
    const audited = Object.keys(device.unseen).length > 0;
    setText(cells[12], number(audited ? sum(device.unseen) : null), audited ? '' : 'this device is not audited');
    cells[12].classList.toggle('unsure', unseen > 0);
  }
  // All strips have the same axis. They are drawn after all text is in place, because text moves the canvases.
  const any = (cell) => list.some((row) => row.sum.counts[row.phase][cell] > 0);
  const cells = [...Array(CELLS).keys()].filter(any), ends = [(cells[0] ?? 0) - 2 + ZERO, (cells.at(-1) ?? 9) + 3 + ZERO];
  setText(at('spread'), 'spread', `of ${latency(middle(ends[0]))} to ${latency(middle(ends[1]))}`);
  for (const { device, sum: figures, phase } of list) {
    strip(rowOf(device.name).querySelector('canvas'), figures.counts[phase], ends, heatmap.palette);
  }
}

function showLegend() {
  const { least, most } = heatmap.scale, any = heatmap.columns.some((column) => column.all[heatmap.phase] > 0);
  at('legend').hidden = !any;
  setText(at('least'), number(least));
  setText(at('most'), `${number(most)} I/Os a second`);
  for (const scale of document.querySelectorAll('.scale')) {
    const context = scale.getContext('2d'), wide = scale.width / SHADES;
    heatmap.palette.forEach((colour, shade) => {
      context.fillStyle = colour;
      context.fillRect(Math.floor(shade * wide), 0, Math.ceil(wide), scale.height);
    });
  }
}

function showHung(snapshot) {
  const list = snapshot.devices.filter(isHung).sort((one, other) => ageOf(other) - ageOf(one)), names = list.map(({ name }) => name);
  const [message, details] = at('hung').children;
  at('hung').hidden = list.length === 0;
  setText(message, list.length ? `I/O of ${several(names)} ${SAVED ? 'did not complete when this was saved' : 'does not complete'}.` : '');
  setText(details, list.slice(0, MAX_NAMES).map((device) => `${overdue(device, (paused ?? history).deltas, snapshot.taken)}.`).join(' '));
}

const MAX_NAMES = 3;
const several = (names) => (names.length > MAX_NAMES ? `${names.length} devices` : names.join(', '));

/** Names the devices without admission latency, while total latency or admission is shown. */
function missingAdmission(devices) {
  const names = devices.filter((device) => !isVolume(device)).filter(({ phases }) => phases.includes('total') && !phases.includes('admission')).map(({ name }) => name);
  return names.length && (choice.phase === TOTAL || choice.phase === ADMISSION) ? [`${several(names)}: the wait before a request exists (throttling, ` +
    'wait for a tag) is not recorded by this kernel. Linux 6.18 and later record it with io.latency and, except for throttling, with io.cost. A cgroup\'s io.pressure shows all of its waits.'] : [];
}

function showHints(snapshot) {
  const devices = snapshot.devices.filter(({ name }) => choice.device === null || choice.device === name);
  const hints = devices.map(({ lacks }) => lacks).filter(Boolean), list = [...hints, ...missingAdmission(devices)], text = JSON.stringify(list);
  if (at('lacks').dataset.list === text) return;
  at('lacks').dataset.list = text;
  at('lacks').replaceChildren(...list.map((lacks, place) => {
    // The command is a separate element, so that it can be copied.
    const [hint, command] = lacks.split(/ with: (?=echo )/), item = make('li', command ? `${hint} with: ` : hint);
    item.className = place < hints.length ? '' : 'soft';
    if (command) item.append(make('code', command));
    return item;
  }));
}

function pairs(list, items) {
  while (list.children.length > items.length) list.lastChild.remove();
  while (list.children.length < items.length) {
    const pair = make('div');
    pair.append(make('dt'), make('dd'));
    list.append(pair);
  }
  items.forEach(([name, value, title = '', bad = false], place) => {
    const [term, text] = list.children[place].children;
    setText(term, name);
    setText(text, value);
    list.children[place].title = visible(title);
    text.className = bad ? 'bad' : '';
  });
}

/** Meaning of each loss reason, and whether it is expected. The daemon inserts its table here. */
const REASONS = LOSS_REASONS_OF_THE_DAEMON;

function showLost({ snapshot, deltas }) {
  pairs(at('lost'), Object.entries(snapshot.lost).map(([reason, count]) => {
    const now = deltas.reduce((all, delta) => all + (delta.lost[reason] ?? 0), 0);
    return [reason.replaceAll('_', ' '), number(count) + (now > 0 ? ` (+${number(now)})` : ''), REASONS[reason]?.meaning, now > 0 && !REASONS[reason]?.expected];
  }));
}

function showCost({ snapshot, deltas }) {
  const { daemon, process } = snapshot;
  const add = (part, of = (delta) => delta.daemon[part]) => deltas.reduce((all, delta) => all + (of(delta) ?? 0), 0);
  const measured = deltas.filter((delta) => delta.daemon.cpu !== null);
  const cpuSeconds = sum(measured.map((delta) => delta.seconds)), made = add('collections'), runs = add('runs');
  const [span, seconds, count] = deltas.length ? ['time shown', add('seconds'), made] : ['life of biolat', daemon.collections.seconds, daemon.collections.count];
  pairs(at('cost'), [
    ['processor', cpuSeconds > 0 ? `${percent(add('cpu') / cpuSeconds)} of one CPU` : NONE, 'the daemon in the time shown; not the probe, which runs in the kernel'],
    ...(runs > 0 ? [['probe', `${number(Math.round((add('runSeconds') / runs) * 1e9))} ns per I/O`, 'measured by the kernel (--probe-stats)']] : []),
    ['memory', process ? memory(process.resident_bytes) : NONE, 'resident'],
    ['maps', memory(daemon.map_bytes), `in the kernel: room for ${daemon.slots} series`],
    ['collection', count > 0 ? latency(seconds / count) : NONE, `mean over the ${span}; one every ${duration(snapshot.interval)}`],
    ['failed collections', number(daemon.failures), 'since biolat started', daemon.failures > 0],
    ['late collections', number(daemon.overruns), 'longer than the interval, since biolat started', daemon.overruns > 0],
  ]);
}

// Reading a cell of the heatmap.

function clearReading() {
  heatmap.cell = null;
  at('cell').hidden = at('reading').hidden = true;
}

/** Moves the reading along with its cell. */
function updateReading() {
  if (!heatmap.cell) return;
  const { column, index } = heatmap.cell;
  const same = heatmap.columns.find((other) => other.from <= column.from && column.from < other.to);
  if (same) readCell({ column: same, index });
  else clearReading();
}

function readCell(cell) {
  heatmap.cell = cell;
  const { box, lines } = heatmap.read(cell), mark = at('cell'), text = at('reading');
  mark.hidden = text.hidden = false;
  ['left', 'top', 'width', 'height'].forEach((side, place) => { mark.style[side] = `${box[place]}px`; });
  if (text.dataset.lines !== lines.join()) {
    text.dataset.lines = lines.join();
    text.replaceChildren(...lines.map((line) => make('div', line)));
  }
  const room = at('field').clientWidth;
  const left = box[0] + box[2] + 12 + text.offsetWidth > room ? box[0] - 12 - text.offsetWidth : box[0] + box[2] + 12;
  text.style.left = `${Math.max(0, Math.min(left, room - text.offsetWidth))}px`;
  text.style.top = `${Math.max(0, Math.min(box[1] - 20, at('field').clientHeight - text.offsetHeight - 24))}px`;
}

/** Marks the selected cell, and opens the panel once the cell's column is loaded. */
function updatePin() {
  const { cell } = choice, column = cell && heatmap.columnAt(cell.time);
  at('pin').hidden = !column;
  if (!column) return;
  const { box } = heatmap.read({ column, index: cell.index });
  ['left', 'top', 'width', 'height'].forEach((side, place) => { at('pin').style[side] = `${box[place]}px`; });
  if (panel.cell !== null || past.loading) return;
  panel.show({ column, index: cell.index }, rendered.chosen, heatmap.phase, heatmap.wide);
  // The panel is below the heatmap and may be out of sight.
  if (panel.isNew) at('there').scrollIntoView({ block: 'nearest' });
  panel.isNew = false;
}

/** Selects a cell and opens its panel. */
function pin({ column, index }) {
  panel.close();
  choose({ cell: { time: Math.round(middleOf(column) * 1000) / 1000, index } });
  panel.isNew = true;
}

/** Selects the range or, without one, the current cell. */
function enter() {
  const { ends } = band, { cell } = heatmap;
  band.clear();
  if (ends) chooseRange(Math.min(...ends), Math.max(...ends));
  else if (cell) pin(cell);
}

function escape() {
  if (band.ends) return band.clear();
  if (heatmap.cell) return clearReading();
  choose({ cell: null });
}

/** Extends the range of columns by keyboard. */
function extend(columns) {
  const first = heatmap.cell && band.first ? band.first : heatmap.cell?.column;
  move(columns, 0);
  const { column } = heatmap.cell ?? {}, ends = [first ?? column, column];
  if (!column) return;
  band.show([Math.min(...ends.map(({ from }) => from)), Math.max(...ends.map(({ to }) => to))], heatmap);
  band.first = ends[0];
}

function move(columns, cells) {
  const { columns: list, phase, wide } = heatmap;
  if (list.length === 0) return;
  let { column, index } = heatmap.cell ?? { column: list.findLast((column) => column.all[phase] > 0) ?? list.at(-1), index: null };
  const place = Math.max(0, Math.min(list.length - 1, list.indexOf(column) + columns));
  // Start at the median.
  index = index === null ? quantile(column.counts(phase), column.all[phase], 0.5) ?? heatmap.bucket(heatmap.low) :
    heatmap.bucket(Math.max(heatmap.low, Math.min(heatmap.high - 1, index + cells * wide)));
  readCell({ column: list[place], index });
}

/** Position where the button was pressed; null if it is not down. */
let down = null;
at('heat').onpointermove = at('heat').onpointerdown = (event) => {
  const { offsetX, offsetY, type } = event, cell = heatmap.at(offsetX, offsetY);
  if (type === 'pointerdown') down = heatmap.plot && event.button === 0 ? offsetX : null;
  if (down !== null && !isOff() && Math.abs(offsetX - down) > DRAG) {
    at('heat').setPointerCapture(event.pointerId);
    clearReading();
    band.show([down, offsetX].map(heatmap.time), heatmap);
  } else if (cell) readCell(cell);
  else clearReading();
};
at('heat').onpointerup = ({ offsetX, offsetY }) => {
  const cell = heatmap.at(offsetX, offsetY), isClick = down !== null && !band.ends;
  down = null;
  if (band.ends) enter();
  else if (isClick && cell) pin(cell);
};
at('heat').onpointercancel = () => { down = null; band.clear(); };
at('heat').onpointerleave = (event) => { if (event.pointerType === 'mouse') clearReading(); };
at('heat').onblur = () => { clearReading(); band.clear(); };

// Pause, theme, help, keys.

function pause() {
  if (SAVED) return;
  paused = paused || !history.latest ? null : { deltas: [...history.deltas], latest: history.latest };
  follow();
  at('pause').setAttribute('aria-pressed', paused !== null);
  setText(at('pause'), paused ? 'Resume' : 'Pause');
  showState();
  draw();
}

const THEMES = ['auto', 'light', 'dark'];
const isDark = () => (document.documentElement.dataset.theme === 'dark') || (document.documentElement.dataset.theme !== 'light' && darkScheme.matches);
function theme(name) {
  document.documentElement.dataset.theme = name;
  setText(at('theme'), `Theme: ${name}`);
  draw();
}
function nextTheme() {
  const name = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
  store('biolat-theme', name);
  theme(name);
}

function nextDevice(step) {
  const names = [null, ...[...at('devices').tBodies[0].rows].map((row) => row.cells[0].textContent)];
  choose({ device: names[(names.indexOf(choice.device) + step + names.length) % names.length] });
}
function nextOp() {
  const list = [...at('ops').querySelectorAll('button')];
  list[(list.findIndex((button) => button.getAttribute('aria-pressed') === 'true') + 1) % list.length]?.click();
}
function nextSpan(step) {
  if (choice.range !== null) return zoom(step);
  choose({ span: Math.max(0, Math.min(SPANS.length - 1, choice.span + step)) });
}

const choosePhase = (phase) => at('phases').querySelector(`[value='${phase}']`)?.click();

const KEYS = {
  0: () => choosePhase(ADMISSION), 1: () => choosePhase(QUEUE), 2: () => choosePhase(DEVICE), 3: () => choosePhase(TOTAL),
  j: () => nextDevice(1), k: () => nextDevice(-1), ArrowDown: () => nextDevice(1), ArrowUp: () => nextDevice(-1),
  o: nextOp, t: nextTheme, ' ': pause, '?': () => at('about').showModal(),
  '+': () => nextSpan(1), '=': () => nextSpan(1), '-': () => nextSpan(-1),
  h: () => chooseLast(RANGES.find((seconds) => seconds > (choice.range?.last ?? 0)) ?? RANGES[0]), l: () => choose({ range: WHOLE }), Escape: escape,
};
const READING = {
  ArrowLeft: ({ shiftKey }) => (shiftKey ? extend(-1) : move(-1, 0)), ArrowRight: ({ shiftKey }) => (shiftKey ? extend(1) : move(1, 0)),
  ArrowUp: () => move(0, 1), ArrowDown: () => move(0, -1), Enter: enter, Escape: escape,
};
const ON_DAY = { ArrowLeft: () => day.move(-1), ArrowRight: () => day.move(1), Enter: () => day.enter(), Escape: () => day.clear() };
addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || at('about').open) return;
  const on = event.target;
  // The browser handles these keys; arrow keys scroll a region, for example.
  if (on.matches('select, input, [role="region"]') || (on.matches('button, a') && event.key === ' ')) return;
  const action = (on === at('heat') && READING[event.key]) || (on === at('day') && ON_DAY[event.key]) || KEYS[event.key];
  if (!action) return;
  event.preventDefault();
  action(event);
});

at('pause').onclick = pause;
at('theme').onclick = nextTheme;
at('there-close').onclick = () => choose({ cell: null });
at('everyone').onclick = () => choose({ workload: null });
at('help').onclick = () => at('about').showModal();
at('device').onchange = (event) => choose({ device: event.target.value === '' ? null : event.target.value.slice(1) });
at('span').onchange = (event) => choose({ span: Number(event.target.value) });
at('choice').onsubmit = (event) => event.preventDefault();
darkScheme.addEventListener('change', draw);
document.addEventListener('visibilitychange', () => { follow(); draw(); });
addEventListener('hashchange', () => { readAddress(); panel.close(); follow(); draw(); });
new ResizeObserver(draw).observe(at('field'));

// State of the connection and age of the values.

at('there-slow').prepend(at('slow').tHead.cloneNode(true));
const day = new Day(() => { follow(); draw(); }, chooseRange), panel = new CellPanel(), band = new Band();
const slow = new SlowTable(at('slow-at'), () => { if (!paused) draw(); });
const connection = new Connection((snapshot) => {
  const before = history.latest;
  if (!history.add(snapshot)) return;
  if (before?.started !== snapshot.started) for (const each of [day.past, past]) each.expire();
  // The live page replaces the plain one.
  if (at('live').hidden) {
    at('live').hidden = false;
    at('plain').remove();
  }
  if (paused) return;
  follow();
  slow.refresh();
  // A range of the past is drawn once it is loaded.
  if (choice.range === null) draw();
}, () => showState());

function showState() {
  if (SAVED) {
    const time = new Date(SAVED.at * 1000);
    at('status').dataset.state = 'saved';
    setText(at('state'), 'saved history, not live');
    setText(at('age'), `saved at ${time.getFullYear()}-${date(time)} ${clock(SAVED.at)}`);
    return;
  }
  const age = connection.age, interval = history.latest?.interval ?? 5;
  // Gives a tab that was hidden time to catch up.
  const late = age !== null && Math.min(age, now() - connection.shownAt) > 3 * interval + 2;
  const state = !connection.connected ? (age === null ? 'waiting' : 'lost') : paused ? 'paused' : late ? 'late' : 'live';
  at('status').dataset.state = state;
  setText(at('state'), { lost: 'connection lost', late: 'no new data' }[state] ?? state);
  setText(at('age'), age === null ? '' : `${paused ? 'newest' : 'data'} ${duration(Math.max(age, 0.1))} old`);
  at('banner').hidden = state !== 'lost' && !(late && connection.connected);
  const [message, details] = at('banner').children;
  if (state === 'lost') {
    setText(message, connection.problem || 'The connection to biolat is lost.');
    const wait = connection.retryAt - now();
    setText(details, `The data is ${duration(age)} old. ${wait > 0.5 ? `Trying again in ${Math.ceil(wait)} s.` : 'Trying again.'}`);
  } else if (late) {
    setText(message, 'biolat responds but has no new data.');
    setText(details, `The data is ${duration(age)} old; the interval is ${duration(interval)}. biolat's log may show why; a hung drive can block it.`);
  }
}
setInterval(() => { if (!document.hidden) showState(); }, 250);

readAddress();
theme(THEMES.includes(stored('biolat-theme')) ? stored('biolat-theme') : 'auto');

/** The rendered state, read-only, for tests. */
Object.defineProperty(window, 'biolat', {
  value: Object.freeze({
    row: (index) => heatmap.y(index + 0.5),
    time: (left) => heatmap.time(left),
    get palette() { return heatmap.palette; },
    get state() {
      if (!rendered) return { drawn: 0 };
      const { columns, phase } = heatmap, { device, op, workload } = rendered.chosen, cells = {};
      for (const column of columns) {
        column.counts(phase).forEach((count, cell) => { if (count) cells[cell + ZERO] = (cells[cell + ZERO] ?? 0) + count; });
      }
      return {
        device, op, workload, latency: PHASES[phase], paused: paused !== null, connected: connection.connected, age: connection.age,
        range: choice.range, loading: past.loading || drawTimer !== 0, draws, drawSeconds, day: day.columns, deltas: history.deltas.length, drawn: columns.length, cells, count: sum(cells),
        columns: columns.map((column) => ({ from: column.from, to: column.to, count: column.all[phase] })),
      };
    },
  }),
});

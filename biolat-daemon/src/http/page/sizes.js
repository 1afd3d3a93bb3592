// The table of sizes: device latency by size band, and a heatmap with a row per band.

const edges = (index) => (index <= ZERO ? [ZERO - WIDE, ZERO] : index >= OVER ? [OVER - 1, OVER - 1 + WIDE] : [index - WIDE, index]);

/** Colour of a share, from 0.1 % to 100 %. */
const shareColour = (share, palette) => palette[Math.round(Math.max(0, 1 + Math.log10(share) / 3) * (SHADES - 1))];

/** I/Os, seconds and cell counts of each band. */
function sumBands(deltas, device, op) {
  const counts = BANDS.map(() => new Float64Array(CELLS)), all = BANDS.map(() => 0), seconds = BANDS.map(() => 0);
  for (const delta of deltas) {
    for (const { ops } of devicesOf(delta, device)) {
      for (const [kind, { bands }] of ops) {
        if (!bands || (op ?? kind) !== kind) continue;
        addWords(bands.words, counts, all);
        bands.seconds.forEach((more, place) => { seconds[place] += more; });
      }
    }
  }
  return BANDS.map(([, range], place) => ({ range, counts: counts[place], all: all[place], seconds: seconds[place] }));
}

/** Low and high end of the latency axis. */
function bandRange(bands) {
  const used = bands.flatMap(({ counts }) => [...counts.keys()].filter((cell) => counts[cell] > 0).flatMap((cell) => edges(cell + ZERO)));
  let low = Math.min(...used), high = Math.max(...used);
  // At least two decades.
  for (let turn = 0; high - low < 56; turn++) turn % 2 ? (low -= WIDE) : (high += WIDE);
  return [low, high];
}

/** Draws a line at each decade, with labels if `hasLabels`. */
function drawDecades({ context, width, height, ink, line }, [low, high], hasLabels) {
  context.textAlign = 'center';
  let free = 0;
  for (let decade = -6; decade <= 3; decade++) {
    const left = ((Math.log2(10 ** decade) * 8 - low) / (high - low)) * width;
    if (left < 0 || left > width) continue;
    context.fillStyle = line;
    context.fillRect(Math.round(left), hasLabels ? height - 5 : 0, 1, height);
    const text = tick(10 ** decade), half = context.measureText(text).width / 2;
    if (!hasLabels || left - half < free || left + half > width) continue;
    free = left + half + 8;
    context.fillStyle = ink;
    context.fillText(text, left, height - 12);
  }
}

function drawBand(canvas, { counts, all }, [low, high], palette) {
  const area = prepare(canvas), x = (index) => Math.round(((index - low) / (high - low)) * area.width);
  drawDecades(area, [low, high], false);
  for (let cell = 0; cell < CELLS; cell++) {
    if (!counts[cell]) continue;
    const [left, right] = edges(cell + ZERO).map(x);
    area.context.fillStyle = shareColour(counts[cell] / all, palette);
    area.context.fillRect(left, 2, Math.max(1, right - left - 1), area.height - 4);
  }
}

/** The distribution of a band as text, without rare latencies. */
function bandText({ range, counts, all }) {
  const cells = [...counts.keys()].filter((cell) => counts[cell] / all >= 0.01);
  return `latencies of ${range}: ${cells.map((cell) => `${bounds(cell + ZERO, WIDE)} ${percent(counts[cell] / all)}`).join(', ')}`;
}

function sizeRow(range) {
  const row = make('tr'), heat = make('td', '', { className: 'heat' }), canvas = make('canvas', '', { role: 'img' });
  heat.append(canvas);
  row.append(make('th', range, { scope: 'row' }), ...['I/Os', 'mean', 'p50', 'p99'].map(() => make('td', '', { className: 'n' })), heat);
  canvas.onpointermove = ({ offsetX }) => {
    const { counts, all, ends: [low, high] } = row.band, at = low + (offsetX / canvas.clientWidth) * (high - low);
    const cell = counts.findIndex((count, cell) => count > 0 && edges(cell + ZERO)[0] <= at && at < edges(cell + ZERO)[1]);
    canvas.title = cell < 0 ? '' : `${bounds(cell + ZERO, WIDE)}: ${many(counts[cell], 'I/O')}, ${percent(counts[cell] / all)}`;
  };
  return row;
}

function showSizes({ snapshot, deltas, sum: total, missing }) {
  const devices = snapshot.devices.filter(({ name }) => (choice.device ?? name) === name), ops = snapshot.devices.flatMap(({ ops }) => ops);
  const counted = ops.some(({ sizes }) => sizes), body = at('sizes').tBodies[0];
  at('sizes-at').hidden = deltas.length === 0 && missing === '' || ops.length === 0;
  if (at('sizes-at').hidden) return;
  const bands = sumBands(deltas, choice.device, choice.op), banded = bands.reduce((sum, { all }) => sum + all, 0), any = banded > 0;
  const ios = total.all[TOTAL], others = ios - banded;
  const note = any ? [others > 0 && `Not in this table: ${many(others, 'I/O')} of other ops, such as discard and flush.`, missing].filter(Boolean).join(' ') :
    missing ? missing : !counted ? 'Sizes are not counted: biolat runs with --sizes off.' :
    ios > 0 ? 'Only reads, writes and zone appends have latencies by size.' : 'No I/O in this time.';
  const what = devices.every(({ phases }) => phases.includes('device')) ? 'device latency' : 'device latency, or total latency where the kernel does not record the dispatch,';
  setText(at('sizes-of'), `${what} of ${selection()}${any ? '; percentiles within 19 %' : ''}`);
  setText(at('sizes-note'), note);
  at('sizes-note').hidden = note === '';
  at('sizes').hidden = !any;
  document.querySelector('#sizes-at .legend').hidden = !any;
  if (!any) return;
  if (body.rows.length === 0) body.append(...bands.map(({ range }) => sizeRow(range)));
  const ends = bandRange(bands);
  bands.forEach((band, place) => {
    const row = body.rows[place], [, ios, mean, p50, p99] = row.cells;
    row.hidden = band.all === 0;
    if (row.hidden) return;
    row.band = { ...band, ends };
    setText(ios, number(band.all));
    setText(mean, latency(band.seconds / band.all));
    [[p50, 0.5], [p99, 0.99]].forEach(([cell, q]) => setText(cell, ...percentile(quantile(band.counts, band.all, q), WIDE)));
    row.querySelector('canvas').ariaLabel = bandText(band);
  });
  drawDecades(prepare(at('size-axis')), ends, true);
  for (const row of body.rows) if (!row.hidden) drawBand(row.querySelector('canvas'), row.band, ends, heatmap.palette);
}

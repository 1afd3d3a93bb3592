// The heatmap of latency over time, and the small charts.

/** Viridis at 16 points, which is perceptually uniform, also for colour-blind readers. */
const VIRIDIS = ('440154 481a6c 472f7d 414487 39568c 31688e 2a788e 23888e 1f988b 22a884 35b779 54c568 7ad151 a5db36 ' +
  'd2e21b fde725').split(' ').map((rgb) => [0, 2, 4].map((at) => parseInt(rgb.slice(at, at + 2), 16)));
const SHADES = 64;
const mix = (one, other, share) => one.map((value, part) => Math.round(value + (other[part] - value) * share));
/** Colours from few to many I/Os, starting close to the background. */
function shades(dark) {
  return Array.from({ length: SHADES }, (_, shade) => {
    const share = shade / (SHADES - 1), at = (dark ? 0.1 + 0.9 * share : 0.85 - 0.85 * share) * 15;
    const colour = mix(VIRIDIS[Math.floor(at)], VIRIDIS[Math.ceil(at)], at % 1);
    return `rgb(${dark ? colour : mix(colour, [255, 255, 255], 0.75 * (1 - share) ** 1.3)})`;
  });
}

const QUANTILES = [['p50', 0.5], ['p99', 0.99], ['p999', 0.999]];

/** Makes columns of at least two pixels. If there are more deltas, several share a column. */
function columns(deltas, from, to, width, device, op, workload) {
  const all = [], least = ((to - from) / width) * 2, key = `${device}\n${op}\n${workload}`;
  for (const delta of deltas) {
    if (delta.to <= from || delta.from >= to) continue;
    // The sum is cached until the selection changes.
    if (delta.summed?.key !== key) delta.summed = { key, sum: new Sum().addDelta(delta, device, op, workload) };
    const last = all.at(-1);
    if (last && Math.abs(delta.from - last.to) < 1e-3 && last.to - last.from < least) {
      last.to = delta.to;
      last.parts.push(delta.summed.sum);
      last.deltas.push(delta);
    } else {
      all.push({ from: delta.from, to: delta.to, parts: [delta.summed.sum], deltas: [delta] });
    }
  }
  for (const column of all) {
    const { parts } = column;
    column.seconds = sum(column.deltas.map(({ seconds }) => seconds));
    column.all = PHASES.map((_, phase) => parts.reduce((all, part) => all + part.all[phase], 0));
    column.bytes = parts.reduce((all, part) => all + part.bytes, 0);
    column.counts = (phase) => {
      if (parts.length === 1) return parts[0].counts[phase];
      const counts = new Float64Array(CELLS);
      for (const part of parts) for (let cell = 0; cell < CELLS; cell++) counts[cell] += part.counts[phase][cell];
      return counts;
    };
  }
  return all;
}

/** Clears a canvas, at the resolution of the screen; returns its context, size in CSS pixels and colours. */
function prepare(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas, ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext('2d'), style = getComputedStyle(canvas);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = `12px ${style.fontFamily}`;
  return { context, width, height, ink: style.color, line: style.borderTopColor, ground: style.backgroundColor, ratio, family: style.fontFamily };
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200];

/** Times and labels for a time axis, at whole steps in local time. The label of midnight is a date. */
function timeTicks(from, to, width) {
  const step = STEPS.find((step) => (step / (to - from)) * width >= 84) ?? 86400, zone = new Date(from * 1000).getTimezoneOffset() * 60, ticks = [];
  for (let time = Math.ceil((from - zone) / step) * step + zone; time <= to; time += step) {
    const text = clock(time, step < 60);
    ticks.push([time, text === '00:00' ? date(new Date(time * 1000)) : text]);
  }
  return ticks;
}

/** Hatches the gaps: from each position with an even index to the next. */
function hatch(context, line, ends, top, bottom) {
  context.strokeStyle = line;
  context.lineWidth = 1;
  for (let at = 0; at + 1 < ends.length; at += 2) {
    const left = ends[at], right = ends[at + 1];
    if (right - left < 1) continue;
    context.save();
    context.beginPath();
    context.rect(left, top, right - left, bottom - top);
    context.clip();
    context.beginPath();
    for (let start = left - bottom; start < right; start += 8) {
      context.moveTo(start, bottom);
      context.lineTo(start + bottom, 0);
    }
    context.stroke();
    context.restore();
  }
}

class Heatmap {
  columns = [];
  /** The cell that the pointer or keyboard is at, as a column and an index. */
  cell = null;

  constructor(canvas) {
    this.canvas = canvas;
  }

  draw({ deltas, from, to, whole, device, op, workload, phase, dark, colours }) {
    const { context, width, height, ink, line, ground, ratio, family } = prepare(this.canvas);
    const plot = { left: 52, top: 8, right: width - (width < 500 ? 8 : 84), bottom: height - 24 };
    const snap = (value) => Math.round(value * ratio) / ratio;
    const x = (time) => snap(plot.left + ((time - from) / (to - from)) * (plot.right - plot.left));
    this.columns = columns(deltas, from, to, plot.right - plot.left, device, op, workload);
    this.phase = phase;
    // A workload's histogram is coarser.
    this.wide = workload === null ? 1 : WIDE;
    const [low, high] = this.#range();
    const y = (index) => snap(plot.bottom - ((index - low) / (high - low)) * (plot.bottom - plot.top));
    Object.assign(this, { plot, from, to, low, high, x, y });

    this.#axes(context, ink, line, ground);
    context.save();
    context.beginPath();
    context.rect(plot.left, plot.top, plot.right - plot.left, plot.bottom - plot.top);
    context.clip();
    this.#gaps(context, line, whole);
    const scale = this.#scale();
    const palette = shades(dark);
    for (const column of this.columns) {
      const counts = column.counts(phase), left = x(column.from), wide = Math.max(x(column.to) - left, 1 / ratio);
      for (let cell = Math.max(0, low - ZERO); cell < CELLS; cell++) {
        if (counts[cell] === 0) continue;
        const share = Math.log(counts[cell] / column.seconds / scale.least) / Math.log(scale.most / scale.least);
        context.fillStyle = palette[Math.round(Math.min(1, Math.max(0, share)) * (SHADES - 1))];
        const [top, bottom] = this.ends(cell + ZERO);
        context.fillRect(left, top, wide, Math.max(bottom - top, 1 / ratio));
      }
    }
    // Where lines overlap, the lower percentile is on top.
    const labels = QUANTILES.toReversed().map(([name, q]) => this.#percentiles(context, name, q, colours[name], ground));
    context.restore();
    this.#labels(context, labels.filter(Boolean), width, family);
    this.scale = scale;
    this.palette = palette;
  }

  /** Top and bottom of a bucket in CSS pixels. */
  ends(index) {
    return [this.y(index + 1), this.y(index + 1 - cellsOf(index, this.wide))];
  }

  /** Index range of all phases, so that the axis stays when the phase changes; of admission, often far shorter, only if shown. */
  #range() {
    let low = Infinity, high = -Infinity;
    for (const { parts } of this.columns) {
      for (const part of parts) {
        for (const counts of part.counts.filter((_, phase) => phase !== ADMISSION || phase === this.phase)) {
          for (let cell = 0; cell < CELLS; cell++) {
            if (counts[cell] === 0) continue;
            low = Math.min(low, cell + ZERO + 1 - this.wide);
            high = Math.max(high, cell + ZERO);
          }
        }
      }
    }
    // Without data, 10 µs to 100 ms; always at least three decades.
    if (low > high) [low, high] = [-133, -26];
    low = Math.floor((low - 2) / 8) * 8;
    high = Math.ceil((high + 3) / 8) * 8;
    for (let turn = 0; high - low < 80; turn++) turn % 2 ? (low -= 8) : (high += 8);
    // Not beyond the zero bucket and the overflow.
    return [Math.max(ZERO, low), Math.min(OVER + 1, high)];
  }

  /** I/Os per second and cell at both ends of the colour scale. */
  #scale() {
    let most = 0, longest = 0;
    for (const column of this.columns) {
      for (const count of column.counts(this.phase)) most = Math.max(most, count / column.seconds);
      longest = Math.max(longest, column.seconds);
    }
    // Round numbers, so that the scale changes rarely.
    const round = (value, parts) => parts.map((part) => part * 10 ** Math.floor(Math.log10(value)));
    const least = round(1 / (longest || 1), [5, 2, 1]).find((part) => part <= 1 / (longest || 1) * 1.001);
    return { least, most: round(Math.max(most, least * 10), [1, 2, 5, 10]).find((part) => part >= Math.max(most, least * 10) * 0.999) };
  }

  #axes(context, ink, line, ground) {
    const { plot, from, to, low, high, x, y } = this;
    context.fillStyle = ground;
    context.fillRect(plot.left, plot.top, plot.right - plot.left, plot.bottom - plot.top);
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    context.lineWidth = 1;
    for (let decade = -6; decade <= 3; decade++) {
      for (const part of [1, 2, 5]) {
        const at = y(Math.log2(part * 10 ** decade) * 8);
        if (at < plot.top || at > plot.bottom) continue;
        context.globalAlpha = part === 1 ? 1 : 0.4;
        context.fillStyle = line;
        context.fillRect(plot.left, at, plot.right - plot.left, 1);
        context.globalAlpha = 1;
        if (part > 1 && high - low > 110) continue;
        context.fillStyle = ink;
        context.fillText(tick(part * 10 ** decade), plot.left - 8, at);
      }
    }
    context.textAlign = 'center';
    for (const [time, text] of timeTicks(from, to, plot.right - plot.left)) {
      const at = x(time);
      context.fillStyle = line;
      context.fillRect(at, plot.top, 1, plot.bottom - plot.top + 4);
      context.fillStyle = ink;
      if (at - plot.left > 14) context.fillText(text, Math.min(at, this.canvas.clientWidth - 30), plot.bottom + 15);
    }
  }

  /** Hatches times without data: gaps between columns and, for a range of the past, at both ends. */
  #gaps(context, line, whole) {
    const { plot, x } = this, ends = this.columns.flatMap((column) => [x(column.from), x(column.to)]);
    hatch(context, line, whole ? [plot.left, ...ends, plot.right] : ends.slice(1, -1), plot.top, plot.bottom);
  }

  #percentiles(context, name, q, colour, ground) {
    const { x, phase, wide } = this;
    const path = new Path2D();
    let last = null, end = null;
    for (const column of this.columns) {
      const index = quantile(column.counts(phase), column.all[phase], q);
      if (index === null) {
        last = null;
        continue;
      }
      const at = sum(this.ends(index)) / 2;
      if (last === null || Math.abs(column.from - last) > 1e-3) path.moveTo(x(column.from), at);
      else path.lineTo(x(column.from), at);
      path.lineTo(x(column.to), at);
      last = column.to;
      end = { name, colour, y: at, text: percentile(index, wide)[0] };
    }
    context.setLineDash([]);
    context.lineJoin = 'round';
    context.strokeStyle = ground;
    context.globalAlpha = 0.5;
    context.lineWidth = 3.2;
    context.stroke(path);
    context.globalAlpha = 1;
    context.strokeStyle = colour;
    context.lineWidth = 1.6;
    context.stroke(path);
    return end;
  }

  /** Labels the lines at their right ends with name and last value, without overlap. */
  #labels(context, labels, width, family) {
    if (width < 500) return;
    labels.sort((one, other) => one.y - other.y);
    labels.forEach((label, at) => { label.at = Math.max(label.y, at ? labels[at - 1].at + 28 : this.plot.top + 12); });
    let limit = this.plot.bottom - 14;
    for (const label of labels.reverse()) limit = (label.at = Math.min(label.at, limit)) - 28;
    context.textAlign = 'left';
    for (const { name, colour, at, text } of labels) {
      context.fillStyle = colour;
      context.font = `600 12px ${family}`;
      context.fillText(name === 'p999' ? 'p99.9' : name, this.plot.right + 8, at - 6);
      context.font = `12px ${family}`;
      context.fillText(text, this.plot.right + 8, at + 7);
    }
  }

  /** The time at a horizontal position, limited to the plot. */
  time = (left) => {
    const { plot, from, to } = this, inside = Math.max(plot.left, Math.min(left, plot.right));
    return from + ((inside - plot.left) / (plot.right - plot.left)) * (to - from);
  };

  /** The column at a time. If the clock was set back, there can be two: the later one, which is drawn on top. */
  columnAt(time) {
    return this.columns.findLast((column) => column.from <= time && time < column.to);
  }

  /** The cell at a position, or null. */
  at(left, top) {
    const { plot, low, high } = this;
    if (!plot || left < plot.left || left >= plot.right || top < plot.top || top >= plot.bottom) return null;
    const column = this.columnAt(this.time(left));
    if (!column) return null;
    return { column, index: this.bucket(Math.ceil(low + ((plot.bottom - top) / (plot.bottom - plot.top)) * (high - low)) - 1) };
  }

  /** The index of the bucket that a cell belongs to. */
  bucket(index) {
    return isEnd(index) ? Math.min(OVER, index) : Math.ceil(index / this.wide) * this.wide;
  }

  /** Position and text of a cell. */
  read({ column, index }) {
    const count = column.counts(this.phase)[index - ZERO], all = column.all[this.phase];
    const left = this.x(column.from), [top, bottom] = this.ends(index);
    return {
      box: [left, top, this.x(column.to) - left, bottom - top],
      lines: [
        `${moment(column.from)} – ${clock(column.to)} (${duration(column.seconds)})`,
        bounds(index, this.wide),
        all === 0 ? 'no I/O' : `${many(count, 'I/O')} of ${number(all)}${count ? `, ${number(count / column.seconds)} per second` : ''}`,
      ],
    };
  }
}

/** Draws a small chart of a rate, from zero, over the time range of the heatmap. */
function chart(canvas, list, value, from, to) {
  const { context, width, height, ink, line } = prepare(canvas);
  const most = list.reduce((most, column) => Math.max(most, value(column)), 0) || 1;
  const x = (time) => Math.max(0, ((time - from) / (to - from)) * width);
  context.fillStyle = line;
  context.fillRect(0, height - 1, width, 1);
  context.fillStyle = context.strokeStyle = ink;
  for (const column of list) {
    const left = x(column.from), high = (value(column) / most) * (height - 4), wide = Math.max(1, x(column.to) - left);
    context.globalAlpha = 0.25;
    context.fillRect(left, height - high, wide, high);
    context.globalAlpha = 1;
    if (high > 0) context.fillRect(left, height - high - 1, wide, 1.5);
  }
}

/** Draws a distribution of latencies as a strip from `low` to `high`. */
function strip(canvas, counts, [low, high], palette) {
  const { context, width, height, line } = prepare(canvas);
  const x = (index) => Math.round(((index - low) / (high - low)) * width);
  context.fillStyle = line;
  context.globalAlpha = 0.5;
  context.fillRect(0, height / 2, width, 1);
  context.globalAlpha = 1;
  const most = counts.reduce((most, count) => Math.max(most, count), 0);
  for (let index = low; index <= high; index++) {
    const count = counts[index - ZERO];
    if (!count) continue;
    context.fillStyle = palette[Math.round((SHADES - 1) * (most > 1 ? Math.log(count) / Math.log(most) : 1))];
    context.fillRect(x(index), 1, Math.max(1, x(index + 1) - x(index)), height - 2);
  }
}

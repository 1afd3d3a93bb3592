// The strip of CPUs: each CPU's share of the completions.

/** Completions by CPU. */
function sumCpus(deltas, device, length) {
  const counts = new Float64Array(length);
  for (const delta of deltas) for (const { cpus } of devicesOf(delta, device)) cpus.forEach((count, cpu) => { counts[cpu] += count; });
  return counts;
}

/** Effective number of CPUs: the number of CPUs if all have equal shares, fewer if the shares are uneven. */
const effectiveCpus = (shares) => 1 / shares.reduce((all, share) => all + share * share, 0);

const MAX_CPUS_IN_WORDS = 8;

function showCpus({ snapshot, deltas }) {
  const length = Math.max(0, ...snapshot.devices.map(({ completions }) => completions.length));
  at('cpus-at').hidden = length === 0 || deltas.length === 0;
  if (at('cpus-at').hidden) return;
  const counts = sumCpus(deltas, choice.device, length), all = counts.reduce((all, count) => all + count, 0), any = all > 0;
  const shares = counts.map((count) => (any ? count / all : 0)), [sentence, strip] = at('cpus').children;
  const order = [...shares.keys()].filter((cpu) => shares[cpu] > 0).sort((one, other) => shares[other] - shares[one]);
  const words = order.slice(0, MAX_CPUS_IN_WORDS).map((cpu) => `CPU ${cpu} ${percent(shares[cpu])}`);
  if (order.length > words.length) words.push(`${order.length - words.length} more`);
  setText(at('cpus-of'), `completions of ${choice.device ?? 'all devices'}, all ops`);
  setText(sentence, !any ? 'No I/O in this time.' :
    `The effective number of CPUs is ${effectiveCpus(shares).toFixed(1)} of ${length}; CPU\u00a0${order[0]} completes the most, ${percent(shares[order[0]])}.`);
  document.querySelector('#cpus-at .legend').hidden = strip.hidden = !any;
  if (!any) return;
  strip.ariaLabel = `share of each CPU: ${words.join(', ')}`;
  strip.classList.toggle('few', length <= 16);
  while (strip.children.length > length) strip.lastChild.remove();
  while (strip.children.length < length) strip.append(make('span'));
  shares.forEach((share, cpu) => {
    const cell = strip.children[cpu];
    setText(cell, '', `CPU ${cpu}: ${percent(share)}`);
    cell.style.background = share > 0 ? shareColour(share, heatmap.palette) : '';
  });
}

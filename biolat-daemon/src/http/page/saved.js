// A saved history, which `biolat open` serves in place of a daemon: nothing new comes, and there is no live view.

/** When it was saved, and the ends of its intervals, in seconds; null if the page is a daemon's. */
const SAVED = (({ saved, from, to }) => (saved ? { at: Number(saved), from: Number(from), to: Number(to) } : null))(document.documentElement.dataset);
/** What is shown unless another range is chosen: all of a saved history; of a daemon, null: live. */
const WHOLE = SAVED && { from: SAVED.from, to: SAVED.to };

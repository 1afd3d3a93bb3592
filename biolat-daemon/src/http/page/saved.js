// A saved history, served by `biolat open` instead of a daemon. It does not change, and there is no live view.

/** Time of the save and ends of the history, in seconds; null if a daemon serves the page. */
const SAVED = (({ saved, from, to }) => (saved ? { at: Number(saved), from: Number(from), to: Number(to) } : null))(document.documentElement.dataset);
/** Default range: all of a saved history; null (live) for a daemon. */
const WHOLE = SAVED && { from: SAVED.from, to: SAVED.to };

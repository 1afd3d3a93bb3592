// Connection to the daemon. An event announces a new snapshot, which is then fetched. Without events, which a proxy may block,
// the page polls. Failed requests are retried with backoff.

/** Polling interval of a hidden tab, in seconds. */
const HIDDEN_INTERVAL = 30;
const BACKOFF = [0.5, 1, 2, 4, 8, 15];
// Relative to the page because of proxies, and without credentials in the URL, which fetch() rejects.
const API = new URL('api/v1/', location.origin + location.pathname);
const now = () => performance.now() / 1000;

class Connection {
  /** Whether the last request succeeded. */
  connected = false;
  /** Problem with the last response as a sentence, or empty. */
  problem = '';
  retryAt = 0;
  /** Time when the tab became visible. */
  shownAt = 0;
  #events = null;
  #reconnectAt = 0;
  #eventFailures = 0;
  #fetching = false;
  #fetchAgain = false;
  #etag = null;
  #failures = 0;
  #timer = 0;
  #fetchedAt = 0;
  #cost = 0;
  #interval = 5;
  #takenAt = null;

  constructor(onSnapshot, onChange) {
    this.onSnapshot = onSnapshot;
    this.onChange = onChange;
    this.refresh();
    if (SAVED) return;
    addEventListener('online', () => this.refresh());
    document.addEventListener('visibilitychange', () => this.#visibilityChanged());
  }

  /** Age of the latest snapshot in seconds; null without one. */
  get age() {
    return this.#takenAt === null ? null : Math.max(0, now() - this.#takenAt);
  }

  /** Fetches the latest snapshot, now or after the current request. */
  async refresh() {
    this.#fetchAgain = this.#fetching;
    if (this.#fetching) return;
    this.#fetching = true;
    const began = now();
    try {
      const snapshot = await this.#fetch();
      if (snapshot) this.onSnapshot(snapshot);
      this.#succeeded();
    } catch (error) {
      this.#failed(error, began);
    }
    this.#fetchedAt = now();
    this.#cost = this.#fetchedAt - began;
    this.#fetching = false;
    if (this.#fetchAgain && this.connected) this.#schedule(0);
  }

  async #fetch() {
    const headers = this.#etag ? { 'If-None-Match': this.#etag } : {};
    const response = await fetch(`${API}snapshot`, { headers, cache: 'no-store', signal: AbortSignal.timeout(10000) });
    if (response.status === 304) return null;
    if (!response.ok) {
      throw new Error(response.status === 503 ? 'biolat has no data yet' : `biolat responded with status ${response.status}; reload the page`);
    }
    const snapshot = await response.json();
    if (snapshot.version !== 1) throw new Error('biolat and this page have different versions; reload the page');
    this.#etag = response.headers.get('etag');
    this.#interval = snapshot.interval;
    // Both times are from the daemon's clock, because the browser's may be wrong.
    const date = Date.parse(response.headers.get('date') ?? '') / 1000;
    this.#takenAt = now() - Math.max(0, date - snapshot.taken || 0);
    return snapshot;
  }

  #succeeded() {
    this.connected = true;
    this.problem = '';
    this.#failures = 0;
    if (SAVED) return this.onChange();
    if (!document.hidden && !this.#events && now() >= this.#reconnectAt) this.#listen();
    this.#schedule(this.#pollInterval);
    this.onChange();
  }

  #failed(error, began) {
    this.#closeEvents();
    // The daemon may be restarting: fetch its next snapshot in any case.
    this.#etag = null;
    // Browsers throttle hidden tabs, so the failure may not be the daemon's fault.
    if (document.hidden || began < this.shownAt) {
      this.#schedule(document.hidden ? this.#pollInterval : 0);
      return;
    }
    this.connected = false;
    this.problem = error.constructor === Error ? error.message : '';
    const wait = BACKOFF[Math.min(this.#failures++, BACKOFF.length - 1)] * (0.8 + 0.4 * Math.random());
    this.retryAt = now() + wait;
    this.#schedule(wait);
    this.onChange();
  }

  #listen() {
    const events = new EventSource(`${API}events`);
    // Fetching takes at most a quarter of the time.
    events.addEventListener('collection', () => this.#schedule(Math.max(0, this.#fetchedAt + 3 * this.#cost - now())));
    events.onopen = () => { this.#eventFailures = 0; };
    events.onerror = () => {
      this.#closeEvents();
      this.#reconnectAt = now() + BACKOFF[Math.min(this.#eventFailures++, BACKOFF.length - 1)];
      this.#schedule(this.#eventFailures === 1 ? 0.2 : Math.max(0, this.#fetchedAt + this.#pollInterval - now()));
    };
    this.#events = events;
  }

  #closeEvents() {
    this.#events?.close();
    this.#events = null;
  }

  /** Browsers allow six connections per host over all tabs, so a hidden tab keeps none open. */
  #visibilityChanged() {
    if (document.hidden) {
      this.#closeEvents();
      this.#schedule(this.#pollInterval);
    } else {
      this.shownAt = now();
      this.refresh();
    }
  }

  /** Seconds until the next request if there is no event. */
  get #pollInterval() {
    if (document.hidden) return Math.max(HIDDEN_INTERVAL, this.#interval);
    return Math.min(15, this.#events ? this.#interval * 1.5 + 1 : this.#interval);
  }

  #schedule(seconds) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.refresh(), seconds * 1000);
  }
}

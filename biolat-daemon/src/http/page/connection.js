// From the daemon to the page: events say that there is a snapshot, and it is fetched. Where events do not come
// through, it is asked for now and then. What fails is tried again, less and less often.

const BACKOFF = [0.5, 1, 2, 4, 8, 15];
const now = () => performance.now() / 1000;

class Connection {
  /** Whether the last question was answered. */
  connected = false;
  /** What was wrong with the last answer, in words; empty if nothing was. */
  trouble = '';
  retryAt = 0;
  lostAt = now();
  #events = null;
  #listenAt = 0;
  #deaf = 0;
  #asking = false;
  #again = false;
  #etag = null;
  #failures = 0;
  #timer = 0;
  #asked = 0;
  #cost = 0;
  #interval = 5;
  #born = null;

  constructor(onSnapshot, onChange) {
    this.onSnapshot = onSnapshot;
    this.onChange = onChange;
    addEventListener('online', () => this.ask());
    document.addEventListener('visibilitychange', () => { if (!document.hidden) this.ask(); });
    this.ask();
  }

  /** How old the figures are, in seconds; null without any. */
  get age() {
    return this.#born === null ? null : Math.max(0, now() - this.#born);
  }

  /** Asks for the latest snapshot, now or when the one that is under way is here. */
  async ask() {
    this.#again = this.#asking;
    if (this.#asking) return;
    this.#asking = true;
    const began = now();
    try {
      const answer = await this.#fetch();
      if (answer) this.onSnapshot(answer);
      this.#answered();
    } catch (error) {
      this.#failed(error);
    }
    this.#asked = now();
    this.#cost = this.#asked - began;
    this.#asking = false;
    if (this.#again && this.connected) this.#plan(0);
  }

  async #fetch() {
    const headers = this.#etag ? { 'If-None-Match': this.#etag } : {};
    const answer = await fetch('api/v1/snapshot', { headers, cache: 'no-store', signal: AbortSignal.timeout(10000) });
    if (answer.status === 304) return null;
    if (!answer.ok) {
      throw new Error(answer.status === 503 ? 'biolat has no figures yet' : `biolat answers with status ${answer.status}; reload the page`);
    }
    const snapshot = await answer.json();
    if (snapshot.version !== 1) throw new Error('biolat is of another version than this page; reload it');
    this.#etag = answer.headers.get('etag');
    this.#interval = snapshot.interval;
    // The daemon's clock against its own clock, as ours may be wrong.
    const date = Date.parse(answer.headers.get('date') ?? '') / 1000;
    this.#born = now() - Math.max(0, date - snapshot.taken || 0);
    return snapshot;
  }

  #answered() {
    this.connected = true;
    this.trouble = '';
    this.#failures = 0;
    if (!this.#events && now() >= this.#listenAt) this.#listen();
    this.#plan(this.#events ? Math.min(15, this.#interval * 1.5 + 1) : Math.min(15, this.#interval));
    this.onChange();
  }

  #failed(error) {
    if (this.connected) this.lostAt = now();
    this.connected = false;
    this.trouble = error.constructor === Error ? error.message : '';
    this.#events?.close();
    this.#events = null;
    // A daemon that was started anew counts its snapshots anew.
    this.#etag = null;
    const wait = BACKOFF[Math.min(this.#failures++, BACKOFF.length - 1)] * (0.8 + 0.4 * Math.random());
    this.retryAt = now() + wait;
    this.#plan(wait);
    this.onChange();
  }

  #listen() {
    const events = new EventSource('api/v1/events');
    // No more of them than can be dealt with: three quarters of the time are for other things.
    events.addEventListener('pass', () => this.#plan(Math.max(0, this.#asked + 3 * this.#cost - now())));
    events.onopen = () => { this.#deaf = 0; };
    events.onerror = () => {
      events.close();
      this.#events = null;
      this.#listenAt = now() + BACKOFF[Math.min(this.#deaf++, BACKOFF.length - 1)];
      if (this.#deaf === 1) this.#plan(0.2);
    };
    this.#events = events;
  }

  #plan(seconds) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.ask(), seconds * 1000);
  }
}

// From the daemon to the page: events say that there is a snapshot, and it is fetched. Where events do not come
// through, it is asked for now and then. What fails is tried again, less and less often.

/** How seldom a tab asks that nobody sees, in seconds. */
const UNSEEN = 30;
const BACKOFF = [0.5, 1, 2, 4, 8, 15];
// With what is before the page's path, and without a password, which no question may have.
const API = new URL('api/v1/', location.origin + location.pathname);
const now = () => performance.now() / 1000;

class Connection {
  /** Whether the last question was answered. */
  connected = false;
  /** What was wrong with the last answer, in words; empty if nothing was. */
  trouble = '';
  retryAt = 0;
  /** Since when the tab is to be seen. */
  shownAt = 0;
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
    document.addEventListener('visibilitychange', () => this.#turned());
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
      this.#failed(error, began);
    }
    this.#asked = now();
    this.#cost = this.#asked - began;
    this.#asking = false;
    if (this.#again && this.connected) this.#plan(0);
  }

  async #fetch() {
    const headers = this.#etag ? { 'If-None-Match': this.#etag } : {};
    const answer = await fetch(`${API}snapshot`, { headers, cache: 'no-store', signal: AbortSignal.timeout(10000) });
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
    if (!document.hidden && !this.#events && now() >= this.#listenAt) this.#listen();
    this.#plan(this.#pace);
    this.onChange();
  }

  #failed(error, began) {
    this.#hush();
    // A daemon that was started anew counts its snapshots anew.
    this.#etag = null;
    // A browser holds up what nobody sees, so that this may say nothing of the daemon.
    if (document.hidden || began < this.shownAt) {
      this.#plan(document.hidden ? this.#pace : 0);
      return;
    }
    this.connected = false;
    this.trouble = error.constructor === Error ? error.message : '';
    const wait = BACKOFF[Math.min(this.#failures++, BACKOFF.length - 1)] * (0.8 + 0.4 * Math.random());
    this.retryAt = now() + wait;
    this.#plan(wait);
    this.onChange();
  }

  #listen() {
    const events = new EventSource(`${API}events`);
    // No more of them than can be dealt with: three quarters of the time are for other things.
    events.addEventListener('pass', () => this.#plan(Math.max(0, this.#asked + 3 * this.#cost - now())));
    events.onopen = () => { this.#deaf = 0; };
    events.onerror = () => {
      this.#hush();
      this.#listenAt = now() + BACKOFF[Math.min(this.#deaf++, BACKOFF.length - 1)];
      this.#plan(this.#deaf === 1 ? 0.2 : Math.max(0, this.#asked + this.#pace - now()));
    };
    this.#events = events;
  }

  #hush() {
    this.#events?.close();
    this.#events = null;
  }

  /** A browser has six connections to a host for all of its tabs: one that nobody sees keeps none. */
  #turned() {
    if (document.hidden) {
      this.#hush();
      this.#plan(this.#pace);
    } else {
      this.shownAt = now();
      this.ask();
    }
  }

  /** When to ask next if nothing is heard. */
  get #pace() {
    if (document.hidden) return Math.max(UNSEEN, this.#interval);
    return Math.min(15, this.#events ? this.#interval * 1.5 + 1 : this.#interval);
  }

  #plan(seconds) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.ask(), seconds * 1000);
  }
}

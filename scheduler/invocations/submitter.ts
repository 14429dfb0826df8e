import type { ChannelListener, Channels } from '../store/channels.ts';

/** Maximum invocations whose followers do not listen yet. Beyond it, the follower of the oldest one reads the log. */
const MAX_EXPECTED = 16_384;
/** Maximum bytes that are kept for an invocation whose follower does not listen yet; beyond them, the follower reads the log. */
const MAX_KEPT_BYTES = 4096;

/** An invocation of this process whose follower does not listen yet. A follower reads the invocation's events for a client. */
interface Expected {
  /** True once a follower has claimed the invocation. */
  isClaimed: boolean;
  /** Messages that have come so far; null when this process has missed or dropped some. */
  keptMessages: Buffer[] | null;
  keptBytes: number;
}

/**
 * One channel for all invocations that this process submits and follows. The process listens on the channel before it submits an invocation, so
 * it gets every message of the invocation. The invocation's follower therefore needs no subscription of its own, and need not read the log first.
 */
export class Submitter {
  /** Name of the channel. */
  readonly name: string;
  readonly #channels: Pick<Channels, 'listen'>;
  readonly #expected = new Map<string, Expected>();
  readonly #listeners = new Map<string, ChannelListener>();
  #state: 'closed' | 'opening' | 'open' = 'closed';

  constructor(channels: Pick<Channels, 'listen'>, name: string) {
    this.#channels = channels;
    this.name = name;
  }

  /** Number of invocations whose followers do not listen yet. */
  get expected(): number {
    return this.#expected.size;
  }

  /**
   * Keeps the messages of an invocation that is about to be submitted, until its follower listens. Returns false while
   * the channel is not open; the first call opens it.
   */
  expect(id: string): boolean {
    if (this.#state === 'closed') this.#open();
    if (this.#state !== 'open') return false;
    this.#expected.set(id, { isClaimed: false, keptMessages: [], keptBytes: 0 });
    const [oldest] = this.#expected.keys();
    if (this.#expected.size > MAX_EXPECTED && oldest !== undefined) this.#expected.delete(oldest);
    return true;
  }

  /** Forgets an invocation that was not submitted, or whose follower left before it listened. */
  forget(id: string): void {
    this.#expected.delete(id);
  }

  /**
   * Claims an invocation for its follower. Returns `listen`, which the follower calls at once or later. The call of
   * `listen` returns `stop`, which ends the listening. Returns null for an invocation that `expect` was not called for,
   * that was forgotten, or that another follower has claimed.
   */
  claim(id: string): ((listener: ChannelListener) => () => void) | null {
    const expected = this.#expected.get(id);
    if (!expected || expected.isClaimed) return null;
    expected.isClaimed = true;
    const listen = (listener: ChannelListener) => {
      // An invocation that was forgotten since the claim has lost its messages.
      const keptMessages = this.#expected.delete(id) ? expected.keptMessages : null;
      this.#listeners.set(id, listener);
      // `resumed` makes the follower read the log.
      if (keptMessages === null) listener.resumed();
      else for (const payload of keptMessages) listener.message(payload);
      const stop = () => {
        this.#listeners.delete(id);
      };
      return stop;
    };
    return listen;
  }

  #open(): void {
    this.#state = 'opening';
    const listening = this.#channels.listen(this.name, {
      message: (payload) => this.#deliver(payload),
      lost: () => this.#interrupt((listener) => listener.lost?.()),
      resumed: () => this.#interrupt((listener) => listener.resumed()),
    });
    listening.then(
      () => {
        this.#state = 'open';
      },
      () => {
        this.#state = 'closed';
      },
    );
  }

  /** Called when messages may be missing. Tells the followers that listen, and makes the others begin with a read of the log. */
  #interrupt(tell: (listener: ChannelListener) => void): void {
    for (const expected of this.#expected.values()) expected.keptMessages = null;
    for (const listener of [...this.#listeners.values()]) tell(listener);
  }

  /** @param payload `<invocation id>\0<message>`, as log.lua sends it */
  #deliver(payload: Buffer): void {
    const end = payload.indexOf(0);
    const id = payload.toString('utf8', 0, end);
    const message = payload.subarray(end + 1);
    const listener = this.#listeners.get(id);
    if (listener) {
      listener.message(message);
      return;
    }
    const expected = this.#expected.get(id);
    if (!expected?.keptMessages) return;
    expected.keptBytes += payload.length;
    if (expected.keptBytes > MAX_KEPT_BYTES) expected.keptMessages = null;
    else expected.keptMessages.push(message);
  }
}

import type { ChannelListener, Channels } from '../store/channels.ts';

/** Maximum expected invocations whose followers do not listen yet; the oldest is forgotten first. */
const MAX_EXPECTED = 16_384;
/** Maximum bytes that are kept for an invocation whose follower does not listen yet; beyond them, the follower reads the log. */
const MAX_KEPT_BYTES = 4096;

/** An invocation that this process submits. */
interface Expected {
  /** True once a follower has claimed the invocation. */
  isClaimed: boolean;
  /** Messages that came before the follower listens; null when this process has missed or dropped some. */
  keptMessages: Buffer[] | null;
  keptBytes: number;
}

/**
 * One channel for all invocations that this process submits and follows. The process listens before it submits them, so that their
 * followers have every message from the beginning: they need no subscription of their own, and need not read the log first.
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

  /** Expects a follower of an invocation that is about to be submitted. False while the channel is not open; the first call opens it. */
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
   * Claims an expected invocation for a follower. Returns the function with which the follower listens, at once or later; that function returns
   * the one that stops it. Null when no follower of this id is expected, or another one has claimed it.
   */
  claim(id: string): ((listener: ChannelListener) => () => void) | null {
    const expected = this.#expected.get(id);
    if (!expected || expected.isClaimed) return null;
    expected.isClaimed = true;
    return (listener) => {
      // Messages of an invocation that was forgotten since the claim were dropped.
      const keptMessages = this.#expected.delete(id) ? expected.keptMessages : null;
      this.#listeners.set(id, listener);
      // `resumed` makes the follower read the log.
      if (keptMessages === null) listener.resumed();
      else for (const payload of keptMessages) listener.message(payload);
      return () => {
        this.#listeners.delete(id);
      };
    };
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

  /** Messages may be missing: tells the followers that listen, and makes the others begin with a read of the log. */
  #interrupt(tell: (listener: ChannelListener) => void): void {
    for (const expected of this.#expected.values()) expected.keptMessages = null;
    for (const listener of [...this.#listeners.values()]) tell(listener);
  }

  /** @param payload `<invocation id>\0<message>`, as publish-live.lua sends it */
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

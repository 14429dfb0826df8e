import type { LiveSource } from '../live/live.ts';
import type { Wakeup } from '../store/wakeup.ts';
import type { FollowCursor } from './follow.ts';

/** What the runtime that runs an invocation shows of it, handed to a follower's cursor. */
export class ShownEvents {
  readonly #source: LiveSource;
  readonly #id: string;
  readonly #cursor: FollowCursor;
  readonly #wakeup: Wakeup;
  #runtime = '';
  #isAttached = false;
  #attempt = 0;
  #stop: () => void = () => undefined;

  constructor(source: LiveSource, id: string, cursor: FollowCursor, wakeup: Wakeup) {
    this.#source = source;
    this.#id = id;
    this.#cursor = cursor;
    this.#wakeup = wakeup;
  }

  /** Counts the runtimes that were found: what was read before is older. */
  get attempt(): number {
    return this.#attempt;
  }

  /** A runtime shows events, and they do not come here. */
  get isOutOfReach(): boolean {
    return this.#runtime !== '' && !this.#isAttached;
  }

  /** The invocation runs there; with '' nobody runs it, or who does shows nothing. */
  begun(runtime: string): void {
    if (runtime === this.#runtime) return;
    this.leave();
    this.#runtime = runtime;
    this.#attempt += 1;
    if (runtime === '') return;
    this.#stop = this.#source.follow(runtime, this.#id, {
      attached: (logged) => {
        this.#isAttached = true;
        this.#cursor.known(logged);
        this.#wakeup.set();
      },
      events: (events) => {
        this.#cursor.live(events);
        this.#wakeup.set();
      },
      lost: () => {
        this.#isAttached = false;
        this.#wakeup.set();
      },
    });
  }

  leave(): void {
    this.#stop();
    this.#stop = () => undefined;
    this.#runtime = '';
    this.#isAttached = false;
  }
}

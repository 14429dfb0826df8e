import type { LiveSource } from '../live/live.ts';
import type { FollowCursor } from './follow.ts';

/** Passes the events that an invocation's runtime shows to a follower's cursor. */
export class ShownEvents {
  readonly #source: LiveSource;
  readonly #id: string;
  readonly #cursor: FollowCursor;
  readonly #changed: () => void;
  #runtime = '';
  #isAttached = false;
  #attempt = 0;
  #stop: () => void = () => undefined;

  /** @param changed called when events came, or when the runtime came into reach or out of it */
  constructor(source: LiveSource, id: string, cursor: FollowCursor, changed: () => void) {
    this.#source = source;
    this.#id = id;
    this.#cursor = cursor;
    this.#changed = changed;
  }

  /** Grows with every runtime found; a log read begun under a smaller count is outdated. */
  get attempt(): number {
    return this.#attempt;
  }

  /** True when a runtime shows events but cannot be reached. */
  get isOutOfReach(): boolean {
    return this.#runtime !== '' && !this.#isAttached;
  }

  /** Takes the runtime of the invocation; '' when no runtime runs it, or its runtime shows no events. */
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
        this.#changed();
      },
      events: (events) => {
        this.#cursor.live(events);
        this.#changed();
      },
      lost: () => {
        this.#isAttached = false;
        this.#changed();
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

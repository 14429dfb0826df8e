import type { LiveFollower, LiveSource, Unfollow } from '../live/live.ts';
import type { FollowCursor } from './follow.ts';

/** Passes to a follower's cursor the events that the invocation's runtime shows. */
export class ShownEvents {
  readonly #source: LiveSource;
  readonly #id: string;
  readonly #cursor: FollowCursor;
  readonly #changed: () => void;
  #runtime = '';
  #isAttached = false;
  #attempt = 0;
  readonly #isOwn: boolean;
  #stop: Unfollow = () => undefined;

  /**
   * @param changed called after events came, and when the runtime comes into or out of reach
   * @param isOwn true when this process submitted the invocation by its `Submitter`
   */
  constructor(source: LiveSource, id: string, cursor: FollowCursor, changed: () => void, isOwn: boolean) {
    this.#isOwn = isOwn;
    this.#source = source;
    this.#id = id;
    this.#cursor = cursor;
    this.#changed = changed;
  }

  /** Number of runtimes found so far. A read of the log that began at a smaller number is outdated. */
  get attempt(): number {
    return this.#attempt;
  }

  /** True when a runtime shows events but cannot be reached. */
  get isOutOfReach(): boolean {
    return this.#runtime !== '' && !this.#isAttached;
  }

  /**
   * Takes the id of the invocation's runtime; '' when no runtime runs the invocation, or its runtime shows no events.
   *
   * @param isTold true when a message told of the runtime, false when the log did
   */
  begun(runtime: string, isTold = false): void {
    if (runtime === this.#runtime) return;
    this.leave();
    this.#runtime = runtime;
    this.#attempt += 1;
    if (runtime === '') return;
    const follower: LiveFollower = {
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
    };
    // The runtime may have stopped showing a later attempt, or one that the log told of, when this follower left: ask for such an attempt.
    const isShown = this.#isOwn && isTold && this.#attempt === 1;
    this.#stop = this.#source.follow(runtime, this.#id, follower, isShown);
  }

  leave(): void {
    this.#stop(this.#cursor.done);
    this.#stop = () => undefined;
    this.#runtime = '';
    this.#isAttached = false;
  }
}

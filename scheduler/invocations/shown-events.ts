import type { LiveFollower, LiveSource, Unfollow } from '../live/live.ts';
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
  readonly #isOwn: boolean;
  #stop: Unfollow = () => undefined;

  /**
   * @param changed called when events came, or when the runtime came into reach or out of it
   * @param isOwn true when this process submitted the invocation by its `Submitter`
   */
  constructor(source: LiveSource, id: string, cursor: FollowCursor, changed: () => void, isOwn: boolean) {
    this.#isOwn = isOwn;
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

  /**
   * Takes the runtime of the invocation; '' when no runtime runs it, or its runtime shows no events.
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
    // The runtime may have ended the showing of a later attempt, or of one that the log told of, when this follower left: ask for it.
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

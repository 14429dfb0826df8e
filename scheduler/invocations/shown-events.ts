import type { LiveFollower, LiveSource, Unfollow } from '../live/live.ts';
import type { FollowCursor } from './follow.ts';

/** Passes to a follower's cursor the events that the invocation's runtime shows. */
export class ShownEvents {
  readonly #source: LiveSource;
  readonly #id: string;
  readonly #cursor: FollowCursor;
  readonly #onChange: () => void;
  #runtime = '';
  #isAttached = false;
  #runtimeChanges = 0;
  readonly #isOwn: boolean;
  #stop: Unfollow = () => undefined;

  /**
   * @param onChange called after events came, and when the runtime comes into or out of reach
   * @param isOwn true when this process submitted the invocation by its `Submitter`
   */
  constructor(source: LiveSource, id: string, cursor: FollowCursor, onChange: () => void, isOwn: boolean) {
    this.#isOwn = isOwn;
    this.#source = source;
    this.#id = id;
    this.#cursor = cursor;
    this.#onChange = onChange;
  }

  /** Number of changes of the invocation's runtime. A read of the log that began at a smaller number names an outdated runtime. */
  get runtimeChanges(): number {
    return this.#runtimeChanges;
  }

  /** True when a runtime shows events but cannot be reached. */
  get isOutOfReach(): boolean {
    return this.#runtime !== '' && !this.#isAttached;
  }

  /**
   * Takes the id of the invocation's runtime; '' when no runtime runs the invocation, or its runtime shows no events.
   *
   * @param isAnnounced true when a message told of the runtime, false when a read of the log did
   */
  setRuntime(runtime: string, isAnnounced = false): void {
    if (runtime === this.#runtime) return;
    this.leave();
    this.#runtime = runtime;
    this.#runtimeChanges += 1;
    if (runtime === '') return;
    const follower: LiveFollower = {
      attached: (logged) => {
        this.#isAttached = true;
        this.#cursor.noteKnown(logged);
        this.#onChange();
      },
      events: (events) => {
        this.#cursor.addLive(events);
        this.#onChange();
      },
      lost: () => {
        this.#isAttached = false;
        this.#onChange();
      },
    };
    // A runtime that announces an attempt pushes its events, unasked, to the process that submitted the invocation. The follower relies on this
    // only for its first attempt, because leaving that attempt may have stopped the pushing. For a later attempt, and for one that only a read of
    // the log has named, the source asks for the events.
    const isPushed = this.#isOwn && isAnnounced && this.#runtimeChanges === 1;
    this.#stop = this.#source.follow(runtime, this.#id, follower, isPushed);
  }

  /** Stops following the runtime, and tells the source whether the cursor has handed out the terminal event. */
  leave(): void {
    this.#stop(this.#cursor.isDone);
    this.#stop = () => undefined;
    this.#runtime = '';
    this.#isAttached = false;
  }
}

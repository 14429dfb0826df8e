import type { LoweredFuture } from '#wit/generate/lowering/lowered.ts';
import { type Release, releaseOf } from './future-release.ts';
import { GuestMemory } from './guest-memory.ts';
import { GuestTrap } from './trap.ts';

/** Maximum handles (resources, futures, waitable sets) that one inferlet may hold at once. */
export const MAX_HANDLES = 16_384;

/**
 * Maximum futures that were read and never dropped. JavaScript guests drop futures only by an explicit call. A future that was read takes only
 * one array slot: its handle is replaced by a placeholder of its type.
 */
const MAX_SPENT_FUTURES = 1_048_576;

/** The content of a future: the layout of its value, and the function that writes it to the guest's memory. One object per WIT type. */
export type FutureType = LoweredFuture;

/** The readable end of a future that the guest holds; its value comes from a host promise. */
export class FutureHandle {
  readonly type: FutureType;
  index = 0;
  /** The set in which the guest waits for the future. */
  set: WaitableSet | null = null;
  /** True when the host has answered. */
  settled = false;
  value: unknown;
  /** True when the guest has read the value; nothing can follow. */
  consumed = false;
  /** Address for the value of a pending read; -1 for none. */
  target = -1;
  /** Resumes a blocking read. */
  wake: (() => void) | null = null;
  /** Tells the host that the value was read or never will be. */
  release: Release | null = null;
  constructor(type: FutureType) {
    this.type = type;
  }
}

/** A set of futures that the guest waits on together. */
export class WaitableSet {
  index = 0;
  members = 0;
  /** Members whose read has completed, in the order of completion. */
  readonly ready: FutureHandle[] = [];
  /** Resumes the guest that waits for the set; called once, when a member becomes ready. */
  wake: (() => void) | null = null;
}

/** A host object to which the guest owns a handle. */
export class ResourceHandle {
  /** Index of the resource in the world. */
  readonly type: number;
  readonly value: unknown;
  constructor(type: number, value: unknown) {
    this.type = type;
    this.value = value;
  }
}

export type Handle = FutureHandle | WaitableSet | ResourceHandle;

/**
 * One instance of an inferlet in the lowering: its memory, its handles and its task's context. All data from the guest is checked here; a
 * wrong pointer, length, discriminant or handle traps this guest and no other.
 */
export class Guest extends GuestMemory {
  /** First argument of every host function. */
  context: unknown = undefined;
  /** Task-local storage of the inferlet's only task. */
  readonly taskContext: [number, number] = [0, 0];
  /** The beginning of the language runtime's output to standard error: the message of a panic. */
  stderr = '';
  /** Number of host calls, for accounting. */
  calls = 0;
  /** Time of the first host call, on the clock of `performance.now`; 0 before. */
  firstCallAt = 0;
  /** Errors with which futures completed: the last text of each case. */
  readonly handlerErrors = new Map<string, string>();
  /** End of the guest's slice, on the clock of `performance.now`. */
  sliceEndsAt = Number.POSITIVE_INFINITY;
  /** Called after a host call that ended later than `sliceEndsAt`. Throws when the guest must stop. */
  onOverdue: (() => void) | null = null;

  readonly #handles: (Handle | null)[] = [null];
  readonly #freeIndices: number[] = [];
  #initialContext: readonly [number, number] = [0, 0];
  /** Number of futures that the host has not settled. */
  #pendingCount = 0;
  #heldCount = 0;
  /** Number of handles of futures that were read. */
  #spentCount = 0;
  /** One placeholder per type for all of its futures that were read. */
  readonly #placeholders = new Map<FutureType, FutureHandle>();

  /**
   * Starts every host call. Traps while the host allocates in the guest or instantiates it (Component Model, Canonical ABI,
   * `may_leave`): code that runs then cannot be suspended and has no task.
   */
  enter(): void {
    if (this.dead !== null || this.pinned !== 0) this.#refuse();
    if (this.calls++ === 0) this.firstCallAt = performance.now();
    if (this.u8.length === 0) this.refresh();
    this.resetLifting();
  }

  /** Ends a host call whose time depends on its arguments: the guest pays for that time. */
  leave(): void {
    if (performance.now() > this.sliceEndsAt) this.onOverdue?.();
  }

  #refuse(): never {
    if (this.dead) throw this.dead;
    return this.trap('the inferlet calls the platform from its allocator (cabi_realloc) or while it is instantiated');
  }

  override get isQuiet(): boolean {
    return super.isQuiet && this.#pendingCount === 0;
  }

  /** Call when the instance is made: each run begins with the task context that the start functions left. */
  saveContext(): void {
    this.#initialContext = [...this.taskContext];
  }

  /** Resets the guest for another run in the same instance. Call only while the guest is quiet. */
  renew(): void {
    this.refresh();
    this.context = undefined;
    this.taskContext[0] = this.#initialContext[0];
    this.taskContext[1] = this.#initialContext[1];
    this.stderr = '';
    this.calls = 0;
    this.firstCallAt = 0;
    this.handlerErrors.clear();
    this.sliceEndsAt = Number.POSITIVE_INFINITY;
    this.#handles.length = 1;
    this.#freeIndices.length = 0;
    this.#heldCount = 0;
    this.#spentCount = 0;
    this.#placeholders.clear();
  }

  /** Number of handles that the guest holds, without those of futures that were read. */
  get handleCount(): number {
    return this.#heldCount;
  }

  add(handle: Handle): number {
    if (this.#heldCount >= MAX_HANDLES) this.trap(`more than ${MAX_HANDLES} handles; drop what is not needed`);
    this.#heldCount++;
    const index = this.#freeIndices.pop() ?? this.#handles.length;
    this.#handles[index] = handle;
    return index;
  }

  remove(index: number): void {
    const handle = this.#handles[index];
    if (handle instanceof FutureHandle && handle === this.#placeholders.get(handle.type)) this.#spentCount--;
    else this.#heldCount--;
    this.#handles[index] = null;
    this.#freeIndices.push(index);
  }

  /** Releases a future that was read and that nothing waits for; its handle stays taken until the guest drops the future. */
  spend(future: FutureHandle): void {
    if (!future.consumed || future.set || this.#handles[future.index] !== future) return;
    if (++this.#spentCount > MAX_SPENT_FUTURES) {
      this.trap(`more than ${MAX_SPENT_FUTURES} futures were read and never dropped; drop them`);
    }
    let placeholder = this.#placeholders.get(future.type);
    if (!placeholder) {
      placeholder = new FutureHandle(future.type);
      placeholder.consumed = true;
      this.#placeholders.set(future.type, placeholder);
    }
    this.#handles[future.index] = placeholder;
    this.#heldCount--;
  }

  addResource(type: number, value: unknown): number {
    return this.add(new ResourceHandle(type, value));
  }

  /** Returns the host object behind a handle, which must be of the resource `type`. */
  resource(index: number, type: number): unknown {
    const handle = this.#handles[index];
    if (handle instanceof ResourceHandle && handle.type === type) return handle.value;
    return this.trap(`handle ${index} is not a live handle of this resource`);
  }

  /** Takes a resource from the guest. */
  takeResource(index: number, type: number): unknown {
    const value = this.resource(index, type);
    this.remove(index);
    return value;
  }

  future(index: number, type: FutureType): FutureHandle {
    const handle = this.#handles[index];
    if (handle instanceof FutureHandle && handle.type === type) return handle;
    return this.trap(`handle ${index} is not a live future of this type`);
  }

  /** Returns a future of any type, for the waitable intrinsics. */
  waitable(index: number): FutureHandle {
    const handle = this.#handles[index];
    if (handle instanceof FutureHandle) return handle;
    return this.trap(`handle ${index} cannot be waited on`);
  }

  waitableSet(index: number): WaitableSet {
    const handle = this.#handles[index];
    if (handle instanceof WaitableSet) return handle;
    return this.trap(`handle ${index} is not a live waitable set`);
  }

  /** Gives the guest a future for a host promise. A rejection is an error of the host and traps. */
  addFuture(promise: Promise<unknown>, type: FutureType): number {
    const future = new FutureHandle(type);
    future.index = this.add(future);
    future.release = releaseOf(promise);
    this.#pendingCount++;
    promise.then(
      (value) => this.#settle(future, value),
      (cause: unknown) => {
        this.#pendingCount--;
        this.kill(new GuestTrap('trap', 'a host promise was rejected', { cause }));
      },
    );
    return future.index;
  }

  /** Takes a future from the guest, settled or not. */
  dropFuture(index: number, type: FutureType): void {
    const future = this.future(index, type);
    if (future.target >= 0) this.trap('a future is dropped while it is read');
    if (future.set) future.set.members--;
    this.remove(index);
    release(future, false);
  }

  #settle(future: FutureHandle, value: unknown): void {
    this.#pendingCount--;
    future.settled = true;
    future.value = value;
    const result = value as { tag?: unknown; val?: { tag?: unknown; val?: unknown } };
    if (result?.tag === 'err' && result.val) this.handlerErrors.set(String(result.val.tag), String(result.val.val));
    if (future.target < 0 || this.dead) return;
    if (future.wake) {
      const wake = future.wake;
      future.wake = null;
      wake();
    } else if (future.set) announce(future.set, future);
  }

  /** Writes the value to the address of the guest's read. */
  complete(future: FutureHandle): void {
    const target = future.target;
    future.target = -1;
    future.consumed = true;
    const value = future.value;
    future.value = undefined;
    if (this.u8.length === 0) this.refresh();
    future.type.store(this, target, value);
    release(future, true);
    this.spend(future);
    this.leave();
  }
}

function release(future: FutureHandle, isRead: boolean): void {
  const onRelease = future.release;
  future.release = null;
  onRelease?.(isRead);
}

/** Queues a completed read in its set and wakes the guest that waits for the set. */
export function announce(set: WaitableSet, future: FutureHandle): void {
  set.ready.push(future);
  const wake = set.wake;
  if (wake) {
    set.wake = null;
    wake();
  }
}

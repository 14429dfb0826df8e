import { GuestMemory } from './guest-memory.ts';
import { letGoOf } from './let-go.ts';
import { GuestTrap } from './trap.ts';

/** Most handles (resources, futures, waitable sets) that one inferlet may hold at once. */
export const MAX_HANDLES = 16_384;

/**
 * Most futures that were read and never dropped. JavaScript guests drop theirs only when told to; such a handle costs a word and no more.
 */
export const MAX_SPENT_FUTURES = 1_048_576;

/** What a future carries: how its value is laid out and written into the guest's memory. One object a WIT type. */
export interface FutureType {
  readonly id: number;
  readonly size: number;
  readonly align: number;
  readonly store: (guest: Guest, address: number, value: unknown) => void;
  /** Promises of this type that hosts have not settled, over all guests. */
  pending: number;
}

/** The readable end of a future that the guest holds; its value comes from a host promise. */
export class FutureHandle {
  readonly type: FutureType;
  index = 0;
  set: WaitableSet | null = null;
  /** The host has answered. */
  settled = false;
  value: unknown;
  /** The guest has read the value; nothing can follow. */
  consumed = false;
  /** Where a read under way wants the value; -1 for none. */
  target = -1;
  /** Resumes a blocking read. */
  wake: (() => void) | null = null;
  /** Tells the host that the value was read, or never will be. */
  letGo: (() => void) | null = null;
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
  /** Called once when a member becomes ready. */
  wake: (() => void) | null = null;
}

/** A host object that the guest owns a handle of. */
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
 * One instance of an inferlet as the lowering sees it: its memory, its handles and its task's context. Everything that comes from the guest
 * is checked here; a wrong pointer, length, discriminant or handle traps this guest and no other.
 */
export class Guest extends GuestMemory {
  /** What host functions get as their first argument. */
  context: unknown = undefined;
  /** Task-local storage of the one task that an inferlet is. */
  readonly taskContext: [number, number] = [0, 0];
  /** What the guest's language runtime wrote to standard error, the beginning of it: the message of a panic. */
  stderr = '';
  /** Calls of host functions, for the books. */
  calls = 0;
  /** When the first of them came, on the clock of `performance.now`; 0 before. */
  firstCallAt = 0;
  /** Errors that futures completed with: the last text of each case. */
  readonly handlerErrors = new Map<string, string>();
  /** When the guest has used its slice up, on the clock of `performance.now`. */
  sliceEndsAt = Number.POSITIVE_INFINITY;
  /** Called after a host call that ended later than that. Throws when the guest may not go on. */
  onOverdue: (() => void) | null = null;

  readonly #handles: (Handle | null)[] = [null];
  readonly #free: number[] = [];
  /** Futures that the host has not settled. */
  #pending = 0;
  #held = 0;
  /** Handles of futures that were read. */
  #spent = 0;
  /** Stands for every such future of its type. */
  readonly #spentOf = new Map<FutureType, FutureHandle>();

  /**
   * First thing of every host call. Traps while the host allocates in the guest or instantiates it (Component Model, Canonical ABI,
   * `may_leave`): code that runs there cannot be suspended and has no task.
   */
  enter(): void {
    if (this.dead !== null || this.pinned !== 0) this.#refuse();
    if (this.calls++ === 0) this.firstCallAt = performance.now();
    if (this.u8.length === 0) this.refresh();
    this.resetLifting();
  }

  /** Last thing of a host call whose time depends on what it was given: its time is the guest's. */
  leave(): void {
    if (performance.now() > this.sliceEndsAt) this.onOverdue?.();
  }

  #refuse(): never {
    if (this.dead) throw this.dead;
    return this.trap('the inferlet calls the platform from its allocator (cabi_realloc) or while it is instantiated');
  }

  override get isQuiet(): boolean {
    return super.isQuiet && this.#pending === 0;
  }

  /** Forgets its run, for another one in the same instance. Only while it is quiet. */
  renew(): void {
    this.context = undefined;
    this.taskContext.fill(0);
    this.stderr = '';
    this.calls = 0;
    this.firstCallAt = 0;
    this.handlerErrors.clear();
    this.sliceEndsAt = Number.POSITIVE_INFINITY;
    this.#handles.length = 1;
    this.#free.length = 0;
    this.#held = 0;
    this.#spent = 0;
    this.#spentOf.clear();
  }

  /** Handles that the guest holds now, without those of futures that were read. */
  get held(): number {
    return this.#held;
  }

  add(handle: Handle): number {
    if (this.#held >= MAX_HANDLES) this.trap(`more than ${MAX_HANDLES} handles; drop what is not needed`);
    this.#held++;
    const index = this.#free.pop() ?? this.#handles.length;
    this.#handles[index] = handle;
    return index;
  }

  remove(index: number): void {
    const handle = this.#handles[index];
    if (handle instanceof FutureHandle && handle === this.#spentOf.get(handle.type)) this.#spent--;
    else this.#held--;
    this.#handles[index] = null;
    this.#free.push(index);
  }

  /** Lets go of a future that was read and that nothing waits for; its handle stays taken until the guest drops it. */
  spend(future: FutureHandle): void {
    if (!future.consumed || future.set || this.#handles[future.index] !== future) return;
    if (++this.#spent > MAX_SPENT_FUTURES) {
      this.trap(`more than ${MAX_SPENT_FUTURES} futures were read and never dropped; drop them`);
    }
    let spent = this.#spentOf.get(future.type);
    if (!spent) {
      spent = new FutureHandle(future.type);
      spent.consumed = true;
      this.#spentOf.set(future.type, spent);
    }
    this.#handles[future.index] = spent;
    this.#held--;
  }

  addResource(type: number, value: unknown): number {
    return this.add(new ResourceHandle(type, value));
  }

  /** The host object behind a handle that must be of the resource `type`. */
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

  /** Any future, for the waitable intrinsics. */
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

  /** Hands the guest a future of what the host promises. The promise resolves; should it reject, that is the host's fault and traps. */
  addFuture(promise: Promise<unknown>, type: FutureType): number {
    const future = new FutureHandle(type);
    future.index = this.add(future);
    future.letGo = letGoOf(promise);
    type.pending++;
    this.#pending++;
    promise.then(
      (value) => this.#settle(future, value),
      (cause: unknown) => {
        type.pending--;
        this.#pending--;
        this.kill(new GuestTrap('trap', 'a host promise was rejected', { cause }));
      },
    );
    return future.index;
  }

  /** Takes a future from the guest, whether it was settled or not. */
  dropFuture(index: number, type: FutureType): void {
    const future = this.future(index, type);
    if (future.target >= 0) this.trap('a future is dropped while it is read');
    if (future.set) future.set.members--;
    this.remove(index);
    letGo(future);
  }

  #settle(future: FutureHandle, value: unknown): void {
    future.type.pending--;
    this.#pending--;
    future.settled = true;
    future.value = value;
    const failed = value as { tag?: unknown; val?: { tag?: unknown; val?: unknown } };
    if (failed?.tag === 'err' && failed.val) this.handlerErrors.set(String(failed.val.tag), String(failed.val.val));
    if (future.target < 0 || this.dead) return;
    if (future.wake) {
      const wake = future.wake;
      future.wake = null;
      wake();
    } else if (future.set) announce(future.set, future);
  }

  /** Writes the value where the guest's read wants it. */
  complete(future: FutureHandle): void {
    const target = future.target;
    future.target = -1;
    future.consumed = true;
    const value = future.value;
    future.value = undefined;
    if (this.u8.length === 0) this.refresh();
    future.type.store(this, target, value);
    letGo(future);
    this.spend(future);
    this.leave();
  }
}

function letGo(future: FutureHandle): void {
  const tell = future.letGo;
  future.letGo = null;
  tell?.();
}

/** Puts a completed read into its set's line and wakes who waits there. */
export function announce(set: WaitableSet, future: FutureHandle): void {
  set.ready.push(future);
  const wake = set.wake;
  if (wake) {
    set.wake = null;
    wake();
  }
}

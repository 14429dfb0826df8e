import type { LoweredFuture } from '#wit/generate/lowering/lowered.ts';
import { type Release, releaseOf } from './future-release.ts';
import { GuestTrap } from './trap.ts';

/** Maximum bytes that one host call may read from a guest's memory, all its strings and lists together. */
export const MAX_LIFTED_BYTES = 64 << 20;
/** Maximum number of list elements (strings, records and the like) that one host call may take. Each element becomes a host object. */
export const MAX_LIFTED_ITEMS = 16_384;

type Realloc = (old: number, oldSize: number, align: number, size: number) => number;

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();
const EMPTY = new ArrayBuffer(0);

/**
 * The linear memory of one guest, with the checks of the canonical ABI: a wrong pointer, length or encoding traps this guest and no other.
 *
 * To *lift* a value is to convert it from the guest's memory into a JavaScript value. A lifted list of numbers is a view of the guest's memory,
 * valid until the host function returns. A budget bounds the data that one call lifts. Lengths are checked against the budget before decoding,
 * because many strings can share one address.
 */
export class GuestMemory {
  /** The trap that stopped the inferlet, set once. Every later host call throws this trap. */
  dead: GuestTrap | null = null;
  /** Above zero while host frames are on the guest's stack: the guest must neither be suspended nor call its imports. */
  pinned = 0;
  /** Called at once when the guest dies. */
  onDeath: ((trap: GuestTrap) => void) | null = null;
  /** Unwinds the guest's suspended stack, if it has one. V8 never frees a stack that is left suspended. */
  unwind: (() => void) | null = null;

  // Views of the whole memory, one for each size and kind of number.
  u8: Uint8Array = new Uint8Array(EMPTY);
  u16: Uint16Array = new Uint16Array(EMPTY);
  u32: Uint32Array = new Uint32Array(EMPTY);
  i32: Int32Array = new Int32Array(EMPTY);
  f32: Float32Array = new Float32Array(EMPTY);
  f64: Float64Array = new Float64Array(EMPTY);
  u64: BigUint64Array = new BigUint64Array(EMPTY);

  #memory: WebAssembly.Memory | null = null;
  #realloc: Realloc | null = null;
  #bytesLeft = MAX_LIFTED_BYTES;
  #itemsLeft = MAX_LIFTED_ITEMS;

  /** Connects the memory and the allocator of a new instance. */
  attach(memory: WebAssembly.Memory, realloc: Realloc | null): void {
    this.#memory = memory;
    this.#realloc = realloc;
    this.refresh();
  }

  /** Ends the guest: running code throws at its next host call or fuel check, and a suspended stack is dropped. */
  kill(trap: GuestTrap): void {
    if (this.dead) return;
    this.dead = trap;
    const unwind = this.unwind;
    this.unwind = null;
    unwind?.();
    this.onDeath?.(trap);
  }

  /** Throws a trap for an error of the guest. */
  trap(message: string): never {
    const trap = new GuestTrap('trap', message);
    this.kill(trap);
    throw trap;
  }

  /** True when no part of the guest's run is active: another run may begin after its memory is restored. */
  get isQuiet(): boolean {
    return this.dead === null && this.pinned === 0 && this.unwind === null;
  }

  /** Makes the views again after the memory has grown (the old buffer is then detached and reads as empty). */
  refresh(): void {
    const buffer = this.#memory?.buffer;
    if (!buffer || buffer === this.u8.buffer) return;
    this.u8 = new Uint8Array(buffer);
    this.u16 = new Uint16Array(buffer);
    this.u32 = new Uint32Array(buffer);
    this.i32 = new Int32Array(buffer);
    this.f32 = new Float32Array(buffer);
    this.f64 = new Float64Array(buffer);
    this.u64 = new BigUint64Array(buffer);
  }

  /** Renews the budget; called when a host call begins. */
  resetLifting(): void {
    this.#bytesLeft = MAX_LIFTED_BYTES;
    this.#itemsLeft = MAX_LIFTED_ITEMS;
  }

  /** Takes `bytes` and `items` from the call's budget. Traps when the budget is used up. */
  lift(bytes: number, items: number): void {
    this.#bytesLeft -= bytes;
    this.#itemsLeft -= items;
    if (this.#bytesLeft >= 0 && this.#itemsLeft >= 0) return;
    this.trap(
      `one call hands over more than ${MAX_LIFTED_BYTES >> 20} MiB or ${MAX_LIFTED_ITEMS} elements; use several calls`,
    );
  }

  /** Checks an address range from the guest and returns the address as an unsigned number. */
  range(pointer: number, bytes: number, align: number): number {
    const address = pointer >>> 0;
    if ((address & (align - 1)) !== 0) this.trap(`unaligned pointer ${address} (alignment ${align})`);
    if (address + bytes > this.u8.length) {
      this.trap(`pointer out of bounds: ${address} + ${bytes} bytes in a memory of ${this.u8.length}`);
    }
    return address;
  }

  /** Allocates `bytes` bytes with the guest's own allocator. An error of the allocator ends the guest. */
  alloc(bytes: number, align: number): number {
    if (!this.#realloc) this.trap('the component has no cabi_realloc, so it cannot receive this value');
    let address = 0;
    this.pinned++;
    try {
      address = this.#realloc(0, 0, align, bytes);
    } catch (error) {
      this.kill(GuestTrap.from(error));
    } finally {
      this.pinned--;
    }
    if (this.dead) throw this.dead;
    if (this.u8.length === 0) this.refresh();
    return this.range(address, bytes, align);
  }

  /** Checks the range of `count` elements of `size` bytes, and the budget: each element becomes a host object. Returns the address. */
  items(pointer: number, count: number, size: number, align: number): number {
    const address = this.range(pointer, count * size, align);
    this.lift(count * size, count);
    return address;
  }

  string(pointer: number, length: number): string {
    const bytes = length >>> 0;
    if (bytes === 0) return '';
    const start = this.#numbers(pointer, bytes, 1);
    try {
      return decoder.decode(this.u8.subarray(start, start + bytes));
    } catch {
      return this.trap('a string that is not UTF-8');
    }
  }

  char(code: number): string {
    const point = code >>> 0;
    if (point > 0x10_ffff || (point >= 0xd800 && point <= 0xdfff)) this.trap(`${point} is not a Unicode scalar value`);
    return String.fromCodePoint(point);
  }

  listU8(pointer: number, length: number): Uint8Array {
    const n = length >>> 0;
    const start = this.#numbers(pointer, n, 1);
    return this.u8.subarray(start, start + n);
  }

  listU16(pointer: number, length: number): Uint16Array {
    const n = length >>> 0;
    const start = this.#numbers(pointer, n, 2) >>> 1;
    return this.u16.subarray(start, start + n);
  }

  listU32(pointer: number, length: number): Uint32Array {
    const n = length >>> 0;
    const start = this.#numbers(pointer, n, 4) >>> 2;
    return this.u32.subarray(start, start + n);
  }

  listS32(pointer: number, length: number): Int32Array {
    const n = length >>> 0;
    const start = this.#numbers(pointer, n, 4) >>> 2;
    return this.i32.subarray(start, start + n);
  }

  listF32(pointer: number, length: number): Float32Array {
    const n = length >>> 0;
    const start = this.#numbers(pointer, n, 4) >>> 2;
    return this.f32.subarray(start, start + n);
  }

  listF64(pointer: number, length: number): Float64Array {
    const n = length >>> 0;
    const start = this.#numbers(pointer, n, 8) >>> 3;
    return this.f64.subarray(start, start + n);
  }

  listU64(pointer: number, length: number): BigUint64Array {
    const n = length >>> 0;
    const start = this.#numbers(pointer, n, 8) >>> 3;
    return this.u64.subarray(start, start + n);
  }

  /** Copies a string into the guest and writes its pointer and length at `address`. */
  putString(address: number, value: string): void {
    // An empty string needs no memory; its pointer is not null, but points to nothing.
    let pointer = 1;
    let length = 0;
    if (value.length > 0) {
      const bytes = encoder.encode(value);
      length = bytes.length;
      pointer = this.alloc(length, 1);
      this.u8.set(bytes, pointer);
    }
    this.u32[address >>> 2] = pointer;
    this.u32[(address >>> 2) + 1] = length;
  }

  putU8(address: number, values: ArrayLike<number>): void {
    const pointer = this.alloc(values.length, 1);
    this.u8.set(values, pointer);
    this.u32[address >>> 2] = pointer;
    this.u32[(address >>> 2) + 1] = values.length;
  }

  putU32(address: number, values: ArrayLike<number>): void {
    const pointer = this.alloc(values.length * 4, 4);
    this.u32.set(values, pointer >>> 2);
    this.u32[address >>> 2] = pointer;
    this.u32[(address >>> 2) + 1] = values.length;
  }

  putF32(address: number, values: ArrayLike<number>): void {
    const pointer = this.alloc(values.length * 4, 4);
    this.f32.set(values, pointer >>> 2);
    this.u32[address >>> 2] = pointer;
    this.u32[(address >>> 2) + 1] = values.length;
  }

  /** Checks the range of `count` numbers of `size` bytes, and the budget. Returns the address. */
  #numbers(pointer: number, count: number, size: number): number {
    const address = this.range(pointer, count * size, size);
    this.lift(count * size, 0);
    return address;
  }
}

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

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

type Realloc = (old: number, oldSize: number, align: number, size: number) => number;

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();
const EMPTY = new ArrayBuffer(0);

/**
 * One instance of an inferlet as the lowering sees it: its memory, its handles and its task's context. Everything that comes from the guest
 * is checked here; a wrong pointer, length, discriminant or handle traps this guest and no other.
 *
 * Lists of numbers are lifted as views of the guest's memory: they are valid until the host function returns.
 */
export class Guest {
  /** What host functions get as their first argument. */
  context: unknown = undefined;
  /** Set once when the inferlet must not go on; every host call throws it from then on. */
  dead: GuestTrap | null = null;
  /** Task-local storage of the one task that an inferlet is. */
  readonly taskContext: [number, number] = [0, 0];
  /** Over zero while frames of ours are on the guest's stack: it must not be suspended. */
  pinned = 0;
  /** What the guest's language runtime wrote to standard error, the beginning of it: the message of a panic. */
  stderr = '';
  /** Calls of host functions, for the books. */
  calls = 0;
  /** When the first of them came, on the clock of `performance.now`; 0 before. */
  firstCallAt = 0;
  /** Errors that futures completed with: the last text of each case. */
  readonly handlerErrors = new Map<string, string>();

  u8: Uint8Array = new Uint8Array(EMPTY);
  u16: Uint16Array = new Uint16Array(EMPTY);
  u32: Uint32Array = new Uint32Array(EMPTY);
  i32: Int32Array = new Int32Array(EMPTY);
  f32: Float32Array = new Float32Array(EMPTY);
  f64: Float64Array = new Float64Array(EMPTY);
  u64: BigUint64Array = new BigUint64Array(EMPTY);

  #memory: WebAssembly.Memory | null = null;
  #realloc: Realloc | null = null;
  readonly #handles: (Handle | null)[] = [null];
  readonly #free: number[] = [];
  #held = 0;
  /** Handles of futures that were read. */
  #spent = 0;
  /** Stands for every such future of its type. */
  readonly #spentOf = new Map<FutureType, FutureHandle>();
  /** Runs when the guest dies, at once. */
  onDeath: ((trap: GuestTrap) => void) | null = null;
  /** Unwinds the guest's suspended stack, if it has one. V8 never frees a stack that is left suspended. */
  unwind: ((trap: GuestTrap) => void) | null = null;

  attach(memory: WebAssembly.Memory, realloc: Realloc | null): void {
    this.#memory = memory;
    this.#realloc = realloc;
    this.refresh();
  }

  get memoryBytes(): number {
    return this.#memory?.buffer.byteLength ?? 0;
  }

  /** Ends the guest: what runs now throws at its next host call or fuel check, what waits is dropped. */
  kill(trap: GuestTrap): void {
    if (this.dead) return;
    this.dead = trap;
    const unwind = this.unwind;
    this.unwind = null;
    unwind?.(trap);
    this.onDeath?.(trap);
  }

  /** Throws a trap for something that the guest did wrong. */
  trap(message: string): never {
    const trap = new GuestTrap('trap', message);
    this.kill(trap);
    throw trap;
  }

  /** First thing of every host call. */
  enter(): void {
    if (this.dead) throw this.dead;
    if (this.calls++ === 0) this.firstCallAt = performance.now();
    if (this.u8.length === 0) this.refresh();
  }

  /** Makes the views again after the memory has grown (its old buffer is detached then, and reads as empty). */
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

  /** Checks an address range given by the guest and returns the address as an unsigned number. */
  range(pointer: number, bytes: number, align: number): number {
    const address = pointer >>> 0;
    if ((address & (align - 1)) !== 0) this.trap(`unaligned pointer ${address} (alignment ${align})`);
    if (address + bytes > this.u8.length) {
      this.trap(`pointer out of bounds: ${address} + ${bytes} bytes in a memory of ${this.u8.length}`);
    }
    return address;
  }

  /** Memory of the guest's for `bytes` more bytes, from its own allocator. */
  alloc(bytes: number, align: number): number {
    if (!this.#realloc) this.trap('the component has no cabi_realloc, so it cannot receive this value');
    this.pinned++;
    let address: number;
    try {
      address = this.#realloc(0, 0, align, bytes);
    } finally {
      this.pinned--;
    }
    if (this.dead) throw this.dead;
    if (this.u8.length === 0) this.refresh();
    return this.range(address, bytes, align);
  }

  string(pointer: number, length: number): string {
    const bytes = length >>> 0;
    if (bytes === 0) return '';
    const start = this.range(pointer, bytes, 1);
    try {
      return decoder.decode(this.u8.subarray(start, start + bytes));
    } catch {
      return this.trap('a string that is not UTF-8');
    }
  }

  char(code: number): string {
    const point = code >>> 0;
    if (point > 0x10_ffff || (point >= 0xd800 && point <= 0xdfff)) this.trap(`${point} is no Unicode scalar value`);
    return String.fromCodePoint(point);
  }

  listU8(pointer: number, length: number): Uint8Array {
    const n = length >>> 0;
    const start = this.range(pointer, n, 1);
    return this.u8.subarray(start, start + n);
  }

  listU16(pointer: number, length: number): Uint16Array {
    const n = length >>> 0;
    const start = this.range(pointer, n * 2, 2) >>> 1;
    return this.u16.subarray(start, start + n);
  }

  listU32(pointer: number, length: number): Uint32Array {
    const n = length >>> 0;
    const start = this.range(pointer, n * 4, 4) >>> 2;
    return this.u32.subarray(start, start + n);
  }

  listS32(pointer: number, length: number): Int32Array {
    const n = length >>> 0;
    const start = this.range(pointer, n * 4, 4) >>> 2;
    return this.i32.subarray(start, start + n);
  }

  listF32(pointer: number, length: number): Float32Array {
    const n = length >>> 0;
    const start = this.range(pointer, n * 4, 4) >>> 2;
    return this.f32.subarray(start, start + n);
  }

  listF64(pointer: number, length: number): Float64Array {
    const n = length >>> 0;
    const start = this.range(pointer, n * 8, 8) >>> 3;
    return this.f64.subarray(start, start + n);
  }

  listU64(pointer: number, length: number): BigUint64Array {
    const n = length >>> 0;
    const start = this.range(pointer, n * 8, 8) >>> 3;
    return this.u64.subarray(start, start + n);
  }

  /** Copies a string into the guest and writes its pointer and length at `address`. */
  putString(address: number, value: string): void {
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
    promise.then(
      (value) => this.#settle(future, value),
      (cause: unknown) => {
        type.pending--;
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

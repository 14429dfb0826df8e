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

/** Interface between the generated lowering (`wit/generated/lowering.ts`) and the runtime. */

/**
 * One guest: its memory, its handles, and the checks of all that the guest hands over (`Guest` in runtime/lowering/guest.ts). Every method
 * traps a guest that breaks the canonical ABI.
 */
export interface LoweredGuest {
  /** First argument of every host function. */
  readonly context: unknown;
  /** Views of the guest's memory. */
  readonly u8: Uint8Array;
  readonly u16: Uint16Array;
  readonly u32: Uint32Array;
  readonly i32: Int32Array;
  readonly f32: Float32Array;
  readonly f64: Float64Array;
  readonly u64: BigUint64Array;
  /** Begins every host call: traps a guest that may not call now, and gives the call a new budget of data (see `items`). */
  enter(): void;
  /** Ends a host call whose duration depends on the length of strings or lists: stops a guest that has used up its time. */
  leave(): void;
  /** Ends the guest with this message. */
  trap(message: string): never;
  /** Checks that a range of `bytes` is aligned and within the guest's memory. Returns its address as an unsigned number. */
  range(pointer: number, bytes: number, align: number): number;
  /**
   * Like `range`, for `count` elements of `size` bytes that each become a host object. Also subtracts the elements and their bytes from the call's
   * budget, which limits how many elements and bytes a call may hand over.
   */
  items(pointer: number, count: number, size: number, align: number): number;
  /** Allocates bytes in the guest, with its own allocator. Returns their address. */
  alloc(bytes: number, align: number): number;
  string(pointer: number, length: number): string;
  char(code: number): string;
  /** The `list` methods return views of the guest's memory, valid until the host function returns. */
  listU8(pointer: number, length: number): Uint8Array;
  listU16(pointer: number, length: number): Uint16Array;
  listU32(pointer: number, length: number): Uint32Array;
  listS32(pointer: number, length: number): Int32Array;
  listF32(pointer: number, length: number): Float32Array;
  listF64(pointer: number, length: number): Float64Array;
  listU64(pointer: number, length: number): BigUint64Array;
  /** Copies a string into newly allocated memory of the guest, and writes its pointer and length at `address`. */
  putString(address: number, value: string): void;
  /** The `put` methods of lists copy a list in the same way as `putString` copies a string. */
  putU8(address: number, values: ArrayLike<number>): void;
  putU32(address: number, values: ArrayLike<number>): void;
  putF32(address: number, values: ArrayLike<number>): void;
  /** Gives the guest a handle to a host object of the resource `type`. Returns the index of the handle. */
  addResource(type: number, value: unknown): number;
  /** The host object behind a handle. */
  resource(index: number, type: number): unknown;
  /** Like `resource`, and takes the handle from the guest. */
  takeResource(index: number, type: number): unknown;
  /** Gives the guest a handle to a future of the promise's value. Returns the index of the handle. */
  addFuture(promise: Promise<unknown>, type: LoweredFuture): number;
}

/** One type of futures, and the layout of their values. All guests share the object. */
export interface LoweredFuture {
  /** Index of this type among the world's future types. */
  readonly id: number;
  /** Bytes of a value in the guest's memory. */
  readonly size: number;
  readonly align: number;
  /** Writes a value to the guest's memory. */
  readonly store: (guest: LoweredGuest, address: number, value: unknown) => void;
}

/** Makes the core function that one guest imports. */
export type Trampoline = (guest: LoweredGuest) => (...args: never[]) => unknown;

export interface Lowering {
  /** The core functions. `importKey` makes their keys, such as `pie:inferlet/queue@0.1#[method]queue.set-priority`. */
  readonly functions: ReadonlyMap<string, Trampoline>;
  /**
   * The types of the futures in each function's signature, in order, under the function's key in `functions`. The
   * number in an import's name is an index into this list: `[future-read-0]step` reads a future of the first type in
   * the list of `step`.
   */
  readonly futures: ReadonlyMap<string, readonly LoweredFuture[]>;
  /** Lifts the arguments of `[task-return]run`. */
  readonly liftResult: (guest: LoweredGuest, ...flat: number[]) => unknown;
  /** Loads the result from the address that a plain `run` export returns. */
  readonly loadResult: (guest: LoweredGuest, address: number) => unknown;
  /** Size in bytes and alignment of the result of `run` in memory. */
  readonly resultLayout: { readonly size: number; readonly align: number };
}

/** Key of a core module's import: interface id and core name. It leaves out the patch version: interfaces that differ only in it are the same. */
export const importKey = (module: string, name: string): string => `${module.replace(PATCH_VERSION, '')}#${name}`;

const PATCH_VERSION = /(?<=@\d+\.\d+)\.\d+$/;

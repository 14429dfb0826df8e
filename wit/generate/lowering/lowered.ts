/** Interface between the generated lowering (`wit/generated/lowering.ts`) and the runtime. */

/** One guest: its memory, its handles, and the checks of what the guest hands over. Every method traps a guest that breaks the ABI. */
export interface LoweredGuest {
  /** First argument of every host function. */
  readonly context: unknown;
  readonly u8: Uint8Array;
  readonly u16: Uint16Array;
  readonly u32: Uint32Array;
  readonly i32: Int32Array;
  readonly f32: Float32Array;
  readonly f64: Float64Array;
  readonly u64: BigUint64Array;
  /** Every host call begins with this. */
  enter(): void;
  /** A host call that takes or answers strings or lists ends with this. */
  leave(): void;
  trap(message: string): never;
  range(pointer: number, bytes: number, align: number): number;
  items(pointer: number, count: number, size: number, align: number): number;
  alloc(bytes: number, align: number): number;
  string(pointer: number, length: number): string;
  char(code: number): string;
  listU8(pointer: number, length: number): Uint8Array;
  listU16(pointer: number, length: number): Uint16Array;
  listU32(pointer: number, length: number): Uint32Array;
  listS32(pointer: number, length: number): Int32Array;
  listF32(pointer: number, length: number): Float32Array;
  listF64(pointer: number, length: number): Float64Array;
  listU64(pointer: number, length: number): BigUint64Array;
  putString(address: number, value: string): void;
  putU8(address: number, values: ArrayLike<number>): void;
  putU32(address: number, values: ArrayLike<number>): void;
  putF32(address: number, values: ArrayLike<number>): void;
  addResource(type: number, value: unknown): number;
  resource(index: number, type: number): unknown;
  takeResource(index: number, type: number): unknown;
  addFuture(promise: Promise<unknown>, type: LoweredFuture): number;
}

/** Type of a future's value. */
export interface LoweredFuture {
  readonly id: number;
  readonly size: number;
  readonly align: number;
  readonly store: (guest: LoweredGuest, address: number, value: unknown) => void;
  /** Promises of this type that hosts have not settled, over all guests. */
  pending: number;
}

/** Makes the core function that one guest imports. */
export type Trampoline = (guest: LoweredGuest) => (...args: never[]) => unknown;

export interface Lowering {
  /** By interface id without patch version (`pie:inferlet/queue@0.1`) and core name, as `importKey` joins them. */
  readonly functions: ReadonlyMap<string, Trampoline>;
  /** The future types of each function, in the order in which its signature names them: `[future-read-0]step` is the first of `step`. */
  readonly futures: ReadonlyMap<string, readonly LoweredFuture[]>;
  /** Types of the futures that devices answer. */
  readonly deviceFutures: readonly LoweredFuture[];
  /** Lifts the arguments of `[task-return]run`. */
  readonly liftResult: (guest: LoweredGuest, ...flat: number[]) => unknown;
  /** Loads the result to which a plain `run` export returns a pointer. */
  readonly loadResult: (guest: LoweredGuest, address: number) => unknown;
  /** Bytes and alignment of that result. */
  readonly resultLayout: { readonly size: number; readonly align: number };
}

/** Name under which a core module's import is looked up. Patch versions of an interface count as one. */
export const importKey = (module: string, name: string): string => `${module.replace(PATCH_VERSION, '')}#${name}`;

const PATCH_VERSION = /(?<=@\d+\.\d+)\.\d+$/;

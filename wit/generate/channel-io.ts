/**
 * The writer and reader of the channel's generated codec; `runtime/channel` implements both. Numbers are little-endian, a list or text
 * has its count before it, a case its index in one byte.
 */
export interface ValueWriter {
  bool(value: boolean): void;
  u8(value: number): void;
  u16(value: number): void;
  u32(value: number): void;
  s8(value: number): void;
  s16(value: number): void;
  s32(value: number): void;
  u64(value: bigint): void;
  s64(value: bigint): void;
  f32(value: number): void;
  f64(value: number): void;
  char(value: string): void;
  string(value: string): void;
  /** Bytes of a list of numbers, its count first. */
  numbers(value: NumberList): void;
  /** Number of the elements that follow. */
  count(value: number): void;
  /** Index of a case; throws for -1, a value that the type does not have. */
  case(index: number): void;
  /** A resource that the other side knows by its number. */
  handle(resource: number, value: unknown): void;
}

export type NumberList =
  | Uint8Array
  | Int8Array
  | Uint16Array
  | Int16Array
  | Uint32Array
  | Int32Array
  | BigUint64Array
  | BigInt64Array
  | Float32Array
  | Float64Array;

/** Reads what a {@link ValueWriter} wrote; throws for anything that it cannot have written. */
export interface ValueReader {
  bool(): boolean;
  u8(): number;
  u16(): number;
  u32(): number;
  s8(): number;
  s16(): number;
  s32(): number;
  u64(): bigint;
  s64(): bigint;
  f32(): number;
  f64(): number;
  char(): string;
  string(): string;
  u8List(): Uint8Array;
  s8List(): Int8Array;
  u16List(): Uint16Array;
  s16List(): Int16Array;
  u32List(): Uint32Array;
  s32List(): Int32Array;
  u64List(): BigUint64Array;
  s64List(): BigInt64Array;
  f32List(): Float32Array;
  f64List(): Float64Array;
  /** Elements that follow, each of at least `bytes` bytes. */
  list<T>(bytes: number, element: () => T): T[];
  /** Index of one of `cases` cases. */
  case(cases: number): number;
  /** One of `values`, by its index. */
  pick<T>(values: readonly T[]): T;
  handle(resource: number): unknown;
  /** Takes the resource from the other side. */
  take(resource: number): unknown;
}

/**
 * How a call to the runtime is answered.
 *
 * - `future`: later, under the number that the sandbox gave the future.
 * - `waits`: later, while the guest is suspended.
 * - `makes`: not at all; the result is a resource with the number that the sandbox gave it.
 * - `nothing`: not at all.
 * - `outbox`: not at all; the sandbox has answered the guest.
 * - `drop`: not at all; the resource's number ends.
 */
export type Answering = 'future' | 'waits' | 'makes' | 'nothing' | 'outbox' | 'drop';

/** A function that the runtime answers. */
export interface ChannelCall {
  readonly interface: string;
  /** Core name, such as `[method]child.send`. */
  readonly name: string;
  readonly answering: Answering;
  /** Number of the resource that the call makes or drops; -1 for none. */
  readonly resource: number;
  writeArguments(w: ValueWriter, args: readonly unknown[]): void;
  readArguments(r: ValueReader): unknown[];
  /** The result's value; for a future, its value. */
  writeResult(w: ValueWriter, value: unknown): void;
  readResult(r: ValueReader): unknown;
  /** True if the return type is a `result` with error `types.error`, in which a failure of the channel can be reported. */
  readonly fallible: boolean;
}

/**
 * The writer and reader that the channel's generated codec uses; `runtime/channel` implements both. Numbers are
 * little-endian. A list has the number of its elements before it, and a text the number of its bytes. A case is its
 * index in one byte.
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
  /** A list of numbers: its count, then its bytes. */
  numbers(value: NumberList): void;
  /** Number of the elements that follow. */
  count(value: number): void;
  /** Index of a case; throws for -1, a value that the type does not have. */
  case(index: number): void;
  /** An object of the resource type with the number `resource`. The other side knows the object by a number, too. */
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
  /** The object behind a handle. */
  handle(resource: number): unknown;
  /** As `handle`; also takes the object from the other side. */
  take(resource: number): unknown;
}

/**
 * How a call to the runtime is answered.
 *
 * - `future`: later, under the number that the sandbox gave the future.
 * - `waits`: later, while the guest is suspended.
 * - `makes`: not at all. The result is a new object of a resource, with a number that the sandbox chose.
 * - `nothing`: not at all. The call has no result.
 * - `outbox`: not at all. The sandbox has answered the guest.
 * - `drop`: not at all. The number of the dropped object is no longer valid.
 */
export type Answering = 'future' | 'waits' | 'makes' | 'nothing' | 'outbox' | 'drop';

/** A call that the sandbox sends to the runtime. */
export interface ChannelCall {
  readonly interface: string;
  /** Core name, such as `[method]child.send`. */
  readonly name: string;
  readonly answering: Answering;
  /** Number of the resource type of which the call makes or drops an object; -1 for none. */
  readonly resource: number;
  writeArguments(w: ValueWriter, args: readonly unknown[]): void;
  readArguments(r: ValueReader): unknown[];
  /** Writes the value of the runtime's answer: the result, or the value of the future that the call returned. */
  writeResult(w: ValueWriter, value: unknown): void;
  readResult(r: ValueReader): unknown;
  /** True if the runtime's answer is a `result` with error `types.error`, which can also report a channel's fault. */
  readonly fallible: boolean;
}

/**
 * The generated codec of the channel writes values with a `ValueWriter` and reads them with a `ValueReader`; `runtime/channel` implements these
 * interfaces. Numbers are little-endian. The number of its elements precedes a list, and the number of its bytes a text. The case of an enum,
 * a variant, an option or a result is written as its index, in one byte.
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
  /** Index of a case. Throws for -1, which the codec passes for a value with a case that its type does not have. */
  case(index: number): void;
  /** Writes the number of an object, by which both sides know it. `resource` is the number of its resource type. */
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

/** Reads what a {@link ValueWriter} wrote; throws for bytes that no writer produces. */
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
  /** Reads a count and as many elements. Throws when elements of `bytes` bytes cannot fit in the rest. */
  list<T>(bytes: number, element: () => T): T[];
  /** Index of one of `cases` cases. */
  case(cases: number): number;
  /** One of `values`, by its index. */
  pick<T>(values: readonly T[]): T;
  /** The object behind a handle. */
  handle(resource: number): unknown;
  /** As `handle`, and frees the number of the object. */
  take(resource: number): unknown;
}

/**
 * How the runtime answers a call from the sandbox, the process that runs the guest.
 *
 * - `future`: the runtime answers later, under the number that the sandbox gave the future.
 * - `waits`: the runtime answers later, and the guest is suspended until then.
 * - `makes`: no answer. The runtime makes an object under a number that the sandbox chose, so the sandbox can give the guest the object at once.
 * - `nothing`: no answer, because the call has no result.
 * - `outbox`: no answer. The call is an event for the invocation's log. The sandbox itself tells the guest if the log has room for the event
 *   (`channel-placement.ts`).
 * - `drop`: no answer. The call drops an object, and the sandbox may give the object's number to a new one.
 */
export type Answering = 'future' | 'waits' | 'makes' | 'nothing' | 'outbox' | 'drop';

/** A call that the sandbox sends to the runtime. */
export interface ChannelCall {
  readonly interface: string;
  /** Core name, such as `[method]child.send`. */
  readonly name: string;
  readonly answering: Answering;
  /** Number of the resource type whose object the call makes or drops; -1 for a call that makes and drops none. */
  readonly resource: number;
  writeArguments(w: ValueWriter, args: readonly unknown[]): void;
  readArguments(r: ValueReader): unknown[];
  /** Writes the value of the runtime's answer: the result, or the value of the future that the call returned. */
  writeResult(w: ValueWriter, value: unknown): void;
  readResult(r: ValueReader): unknown;
  /** True if the answer is a `result` with the error `types.error`. Such a `result` can also report a fault of the channel to the guest. */
  readonly fallible: boolean;
}

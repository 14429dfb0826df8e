import { FINISH_REASON_CASES, HANDLER_ERROR_CASES } from '#wit/generated/host.ts';
import type { Distribution, FinishReason, Imported, Residency, RunChunk, StepResult } from './calls.ts';
import { type HandlerError, type Outcome, ok, ProtocolFault } from './errors.ts';
import type { FrameWriter, WordReader } from './frames.ts';
import { FRAME, MAX_JSON_BYTES, PIECE_BYTES } from './wire.ts';

/** Wire codes of the kinds of results. A result names its kind, so that a reader can decode it without a record of the call. */
const RESULT = {
  done: 0,
  distribution: 1,
  step: 2,
  run: 3,
  error: 4,
  floats: 5,
  imported: 6,
  text: 7,
  bytes: 8,
} as const;

/** One result of a call. A run has many results; the last one is an error or has `finished`. */
export type DecodedResult =
  | { readonly kind: 'done' }
  | { readonly kind: 'distribution'; readonly value: Distribution }
  | { readonly kind: 'step'; readonly value: StepResult }
  | { readonly kind: 'run'; readonly value: RunChunk }
  | { readonly kind: 'error'; readonly error: HandlerError }
  | { readonly kind: 'floats'; readonly values: Float32Array }
  | ({ readonly kind: 'imported' } & ImportedCounts)
  | { readonly kind: 'text'; readonly text: string }
  /** A piece of pages on their way to another host. */
  | { readonly kind: 'bytes'; readonly bytes: Uint8Array };

/** Counts of an import. The imported pages have `pages` successive addresses; the call gave the first of them. */
export interface ImportedCounts extends Omit<Imported, 'pages'> {
  readonly pages: number;
}

function begin(writer: FrameWriter, id: number, kind: number): void {
  writer.begin(FRAME.results);
  writer.put(id);
  writer.put(kind);
}

/** Writes a result without a value. The host uses this function and the encoders below; they return false when a result does not fit a frame. */
export function encodeDone(writer: FrameWriter, id: number): boolean {
  begin(writer, id, RESULT.done);
  return writer.end();
}

export function encodeDistribution(writer: FrameWriter, id: number, value: Distribution): boolean {
  begin(writer, id, RESULT.distribution);
  putDistribution(writer, value);
  return writer.end();
}

export function encodeStepResult(writer: FrameWriter, id: number, value: StepResult): boolean {
  begin(writer, id, RESULT.step);
  writer.putList(value.tokens);
  writer.put(value.cachedTokens);
  writer.put(value.distributions.length);
  for (const distribution of value.distributions) putDistribution(writer, distribution);
  return writer.end();
}

export function encodeRunTokens(
  writer: FrameWriter,
  id: number,
  tokens: Uint32Array | readonly number[],
  finishReason: FinishReason | undefined,
): boolean {
  begin(writer, id, RESULT.run);
  // 0 means that the run goes on.
  writer.put(finishReason === undefined ? 0 : FINISH_REASON_CASES.indexOf(finishReason) + 1);
  writer.putList(tokens);
  return writer.end();
}

export function encodeError(writer: FrameWriter, id: number, error: HandlerError): boolean {
  begin(writer, id, RESULT.error);
  writer.put(HANDLER_ERROR_CASES.indexOf(error.tag));
  writer.putText(error.val);
  return writer.end();
}

export function encodeFloats(writer: FrameWriter, id: number, values: Float32Array): boolean {
  begin(writer, id, RESULT.floats);
  writer.put(values.length);
  writer.putFloats(values);
  return writer.end();
}

export function encodeImported(writer: FrameWriter, id: number, counts: ImportedCounts): boolean {
  begin(writer, id, RESULT.imported);
  writer.put(counts.pages);
  writer.put(counts.tokens);
  writer.put(counts.nextPosition);
  return writer.end();
}

/** Writes a JSON text. Returns false, and writes nothing, when the text has more than `MAX_JSON_BYTES` bytes. */
export function encodeText(writer: FrameWriter, id: number, text: string): boolean {
  if (Buffer.byteLength(text) > MAX_JSON_BYTES) return false;
  begin(writer, id, RESULT.text);
  writer.putText(text, MAX_JSON_BYTES);
  return writer.end();
}

/** Writes a piece of pages for another host, at most `PIECE_BYTES` bytes. */
export function encodeBytes(writer: FrameWriter, id: number, bytes: Uint8Array): boolean {
  begin(writer, id, RESULT.bytes);
  writer.putBytes(bytes);
  return writer.end();
}

/** Cause of an inferlet's termination. */
export interface Termination {
  readonly cause: string;
  /** Estimated milliseconds until as many pages as the inferlet held are free again. */
  readonly retryAfterMs: number;
}

/** Writes the frame that tells the runtime that the host has ended an inferlet and taken its memory. */
export function encodeTerminated(writer: FrameWriter, inferlet: number, { cause, retryAfterMs }: Termination): boolean {
  writer.begin(FRAME.terminated);
  writer.put(inferlet);
  writer.put(retryAfterMs);
  writer.putText(cause);
  return writer.end();
}

/** Usage of an inferlet on a host since it was opened, on all its models and encoders. */
export interface DeviceUsage {
  /** The inferlet's share of the device's time, microseconds. */
  readonly gpuUs: number;
  /** Integral of held pages over time, page-milliseconds. */
  readonly pageMs: number;
  /** Tokens that encoders computed. */
  readonly encodedTokens: number;
}

/** Writes the frame that reports an inferlet's usage since it was opened; all values are whole numbers. */
export function encodeUsage(writer: FrameWriter, inferlet: number, usage: DeviceUsage): boolean {
  writer.begin(FRAME.usage);
  writer.put(inferlet);
  writer.putWide(usage.gpuUs);
  writer.putWide(usage.pageMs);
  writer.putWide(usage.encodedTokens);
  return writer.end();
}

/** Writes the frame that says if the host holds an inferlet's calls, because its family is preempted or its pages come from disk. */
export function encodeHeld(writer: FrameWriter, inferlet: number, isHeld: boolean): boolean {
  writer.begin(FRAME.held);
  writer.put(inferlet);
  writer.put(isHeld ? 1 : 0);
  return writer.end();
}

/**
 * Writes a sign of life; a GPU host answers each one from a runtime with its own. `silentMs` announces for how long the sender may be silent
 * afterwards; 0 means no longer than usual.
 */
export function encodeAlive(writer: FrameWriter, silentMs: number): boolean {
  writer.begin(FRAME.alive);
  writer.put(silentMs);
  return writer.end();
}

function putDistribution(writer: FrameWriter, value: Distribution): void {
  writer.putList(value.tokens);
  writer.putFloats(value.logProbabilities);
}

/** Reads the results of one frame's body in order. The client uses this function and the decoders below. */
export function decodeResults(
  reader: WordReader,
  end: number,
  handle: (id: number, result: DecodedResult) => void,
): void {
  while (!reader.done) {
    reader.enter(end);
    const id = reader.u32();
    const result = decodeResult(reader);
    reader.leave(end);
    handle(id, result);
  }
}

/** Reads the inferlets of one terminated frame's body. */
export function decodeTerminated(
  reader: WordReader,
  end: number,
  handle: (inferlet: number, termination: Termination) => void,
): void {
  while (!reader.done) {
    reader.enter(end);
    const inferlet = reader.u32();
    const retryAfterMs = reader.u32();
    const cause = reader.text();
    reader.leave(end);
    handle(inferlet, { cause, retryAfterMs });
  }
}

/** Reads the inferlets of one usage frame's body. */
export function decodeUsage(
  reader: WordReader,
  end: number,
  handle: (inferlet: number, usage: DeviceUsage) => void,
): void {
  while (!reader.done) {
    reader.enter(end);
    const inferlet = reader.u32();
    const gpuUs = reader.wide();
    const pageMs = reader.wide();
    const encodedTokens = reader.wide();
    reader.leave(end);
    handle(inferlet, { gpuUs, pageMs, encodedTokens });
  }
}

/** Reads the inferlets of one held frame's body. */
export function decodeHeld(reader: WordReader, end: number, handle: (inferlet: number, isHeld: boolean) => void): void {
  while (!reader.done) {
    reader.enter(end);
    const inferlet = reader.u32();
    const isHeld = reader.u32() !== 0;
    reader.leave(end);
    handle(inferlet, isHeld);
  }
}

/** Reads an alive frame's body: for how many milliseconds its sender may be silent. */
export function decodeAlive(reader: WordReader, end: number): number {
  let silentMs = 0;
  while (!reader.done) {
    reader.enter(end);
    silentMs = reader.u32();
    reader.leave(end);
  }
  return silentMs;
}

function decodeResult(reader: WordReader): DecodedResult {
  const kind = reader.u32();
  switch (kind) {
    case RESULT.done:
      return { kind: 'done' };
    case RESULT.distribution:
      return { kind: 'distribution', value: readDistribution(reader) };
    case RESULT.step: {
      const tokens = reader.list();
      const cachedTokens = reader.u32();
      const distributions: Distribution[] = [];
      for (let remaining = reader.u32(); remaining > 0; remaining--) distributions.push(readDistribution(reader));
      return { kind: 'step', value: { tokens, distributions, cachedTokens } };
    }
    case RESULT.run: {
      const finish = reader.u32();
      if (finish > FINISH_REASON_CASES.length) throw new ProtocolFault('malformed', `unknown finish reason ${finish}`);
      const finished = finish === 0 ? undefined : FINISH_REASON_CASES[finish - 1];
      return { kind: 'run', value: { tokens: reader.list(), finished } };
    }
    case RESULT.error: {
      const tag = HANDLER_ERROR_CASES[reader.u32()];
      if (!tag) throw new ProtocolFault('malformed', 'unknown error code');
      return { kind: 'error', error: { tag, val: reader.text() } };
    }
    case RESULT.floats:
      return { kind: 'floats', values: reader.floats(reader.u32()) };
    case RESULT.imported:
      return { kind: 'imported', pages: reader.u32(), tokens: reader.u32(), nextPosition: reader.u32() };
    case RESULT.text:
      return { kind: 'text', text: reader.text(MAX_JSON_BYTES) };
    case RESULT.bytes:
      return { kind: 'bytes', bytes: reader.bytes(PIECE_BYTES) };
    default:
      throw new ProtocolFault('malformed', `unknown result kind ${kind}`);
  }
}

function readDistribution(reader: WordReader): Distribution {
  const tokens = reader.list();
  return { tokens, logProbabilities: reader.floats(tokens.length) };
}

/** The form of an operation's result on the wire: the host's handler writes a `Reply`, and the client reads a `Value`. */
export interface Answer<Value, Reply = Value> {
  /** Returns false when the result does not fit a frame. */
  readonly write: (writer: FrameWriter, id: number, reply: Reply) => boolean;
  /** Converts a result to the value of a call; undefined for a result of another kind. */
  readonly read: (result: DecodedResult) => Outcome<Value> | undefined;
}

export const done: Answer<undefined> = {
  write: encodeDone,
  read: (result) => (result.kind === 'done' ? ok(undefined) : undefined),
};

export const distribution: Answer<Distribution> = {
  write: encodeDistribution,
  read: (result) => (result.kind === 'distribution' ? ok(result.value) : undefined),
};

export const stepResult: Answer<StepResult> = {
  write: encodeStepResult,
  read: (result) => (result.kind === 'step' ? ok(result.value) : undefined),
};

/** A run has many results; the last one is an error or has `finished`. */
export const runChunk: Answer<
  RunChunk,
  { readonly tokens: Uint32Array | readonly number[]; readonly finished: FinishReason | undefined }
> = {
  write: (writer, id, { tokens, finished }) => encodeRunTokens(writer, id, tokens, finished),
  read: (result) => (result.kind === 'run' ? ok(result.value) : undefined),
};

export const floats: Answer<Float32Array> = {
  write: encodeFloats,
  read: (result) => (result.kind === 'floats' ? ok(result.values) : undefined),
};

export const float: Answer<number> = {
  write: (writer, id, value) => encodeFloats(writer, id, Float32Array.of(value)),
  read: (result) => {
    const value = result.kind === 'floats' ? result.values[0] : undefined;
    return value === undefined ? undefined : ok(value);
  },
};

export const imported: Answer<ImportedCounts> = {
  write: encodeImported,
  read: (result) => (result.kind === 'imported' ? ok(result) : undefined),
};

export const bytes: Answer<Uint8Array> = {
  write: encodeBytes,
  read: (result) => (result.kind === 'bytes' ? ok(result.bytes) : undefined),
};

/** Replaces each bigint in a type by an error text, so that code that sends a bigint does not compile. */
type WithoutBigint<T> = T extends bigint
  ? 'JSON has no 64-bit integers'
  : T extends object
    ? { [K in keyof T]: WithoutBigint<T[K]> }
    : T;

/** A value as JSON. Its type must have no bigint, because JSON has no 64-bit integers. */
export function json<T>(): Answer<WithoutBigint<T>> {
  return {
    write: (writer, id, value) => encodeText(writer, id, JSON.stringify(value)),
    read: (result) => (result.kind === 'text' ? ok(JSON.parse(result.text) as WithoutBigint<T>) : undefined),
  };
}

/** A `Residency` as JSON, with `bytes`, a bigint in the contract, as a number. */
export const residency: Answer<Residency> = {
  write: (writer, id, value) => encodeText(writer, id, JSON.stringify({ ...value, bytes: Number(value.bytes) })),
  read: (result) => {
    if (result.kind !== 'text') return undefined;
    const value = JSON.parse(result.text) as Omit<Residency, 'bytes'> & { readonly bytes: number };
    return ok({ ...value, bytes: BigInt(value.bytes) });
  },
};

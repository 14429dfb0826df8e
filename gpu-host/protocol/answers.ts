import type { Distribution, FinishReason, Residency, RunChunk, StepResult } from './calls.ts';
import { type Outcome, ok } from './errors.ts';
import {
  type DecodedResult,
  encodeBytes,
  encodeDistribution,
  encodeDone,
  encodeFloats,
  encodeImported,
  encodeRunTokens,
  encodeStepResult,
  encodeText,
  type ImportedCounts,
} from './results.ts';
import type { FrameWriter } from './words.ts';

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

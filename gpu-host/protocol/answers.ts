import type { Distribution, Residency, StepResult, WireResidency } from './calls.ts';
import { type Outcome, ok } from './errors.ts';
import type { DecodedResult } from './results.ts';

/** Converts a result to the value of a call; undefined for a result of another kind. */
export type Answer<T> = (result: DecodedResult) => Outcome<T> | undefined;

export function distributionOf(result: DecodedResult): Outcome<Distribution> | undefined {
  return result.kind === 'distribution' ? ok(result.value) : undefined;
}

export function stepOf(result: DecodedResult): Outcome<StepResult> | undefined {
  return result.kind === 'step' ? ok(result.value) : undefined;
}

export function doneOf(result: DecodedResult): Outcome<undefined> | undefined {
  return result.kind === 'done' ? ok(undefined) : undefined;
}

export function floatsOf(result: DecodedResult): Outcome<Float32Array> | undefined {
  return result.kind === 'floats' ? ok(result.values) : undefined;
}

export function floatOf(result: DecodedResult): Outcome<number> | undefined {
  const value = result.kind === 'floats' ? result.values[0] : undefined;
  return value === undefined ? undefined : ok(value);
}

export function bytesOf(result: DecodedResult): Outcome<Uint8Array> | undefined {
  return result.kind === 'bytes' ? ok(result.bytes) : undefined;
}

export function jsonOf<T>(result: DecodedResult): Outcome<T> | undefined {
  return result.kind === 'text' ? ok(JSON.parse(result.text) as T) : undefined;
}

/** JSON has no numbers of 64 bits. */
export function residencyOf(result: DecodedResult): Outcome<Residency> | undefined {
  if (result.kind !== 'text') return undefined;
  const residency = JSON.parse(result.text) as WireResidency;
  return ok({ ...residency, bytes: BigInt(residency.bytes) });
}

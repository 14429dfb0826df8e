import { jsonValue } from '#scheduler/functions/schema/json-value.ts';

/** Two functions of ECMAScript's `JSON` that TypeScript's library does not declare. */
const { rawJSON, isRawJSON } = JSON as typeof JSON & {
  readonly rawJSON: (text: string) => unknown;
  readonly isRawJSON: (value: unknown) => boolean;
};

/**
 * Parses JSON for a later `JSON.stringify`, which then writes every number as the text has it. A number that JavaScript would write in another
 * way, such as an integer above 2^53, becomes an object (`JSON.rawJSON`), so do not check the value or calculate with it.
 *
 * @throws SyntaxError
 */
export function exactJson(text: string): unknown {
  return jsonValue(text, (value, source) => {
    return typeof value === 'number' && source !== undefined && source !== String(value) ? rawJSON(source) : value;
  });
}

/** True for the object that `exactJson` gives in place of a number. */
export const isRawNumber = (value: unknown): boolean => isRawJSON(value);

/** True when `JSON.parse` rounds an integer of this JSON. */
export function roundsIntegers(text: string): boolean {
  let rounds = false;
  jsonValue(text, (value, source) => {
    if (typeof value === 'number') rounds ||= isRounded(source ?? '');
    return value;
  });
  return rounds;
}

/** True for the text of an integer that no JavaScript number equals. */
export function isRounded(text: string): boolean {
  if (!/^-?\d+$/.test(text)) return false;
  const value = Number(text);
  return !Number.isFinite(value) || BigInt(text) !== BigInt(value);
}

import { InferletError } from './errors.ts';

/** A value as JSON text. Throws `invalid-argument` for a value that JSON cannot represent: `undefined`, a function, a symbol. */
export function toJson(value: unknown): string {
  const text = JSON.stringify(value);
  if (text !== undefined) return text;
  throw new InferletError(
    'invalid-argument',
    `JSON cannot represent a ${typeof value}: use null or a JSON value instead.`,
  );
}

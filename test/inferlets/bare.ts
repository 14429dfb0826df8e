/** Helpers of guests that use the bare WIT imports. */

export const GREEDY = { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 0 };

/** Returns the value of an `ok`. Throws an `err` as an error with its code and text. */
export function unwrap<T>(outcome: { tag: 'ok'; val: T } | { tag: 'err'; val: { tag: string; val: string } }): T {
  if (outcome.tag === 'ok') return outcome.val;
  throw new Error(`${outcome.val.tag}: ${outcome.val.val}`);
}

import { Failure } from './failure.ts';

/** The parser of an option that takes a whole number from `min` to `max`. */
export const wholeNumber =
  (min: number, max: number) =>
  (text: string): number => {
    const number = Number(text);
    // `Number` also takes the empty text, and forms such as 1e2 and 0x10.
    if (/^\d+$/.test(text) && number >= min && number <= max) return number;
    throw new Failure(`It must be a whole number from ${min} to ${max}.`);
  };

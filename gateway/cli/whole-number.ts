import { Failure } from './failure.ts';

/** The parser of an option that takes a whole number from `min` to `max`. */
export const wholeNumber =
  (min: number, max: number) =>
  (text: string): number => {
    const number = Number(text);
    if (Number.isInteger(number) && number >= min && number <= max) return number;
    throw new Failure(`It must be a whole number from ${min} to ${max}.`);
  };

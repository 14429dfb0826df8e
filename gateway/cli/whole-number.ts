import { Failure } from './failure.ts';

/** The parser of an option that takes a whole number from `least` to `most`. */
export const wholeNumber =
  (least: number, most: number) =>
  (text: string): number => {
    const number = Number(text);
    if (Number.isInteger(number) && number >= least && number <= most) return number;
    throw new Failure(`It must be a whole number from ${least} to ${most}.`);
  };

import { Dice } from '../../batcher/testing/dice.ts';

/** Integers from 0 to `below` - 1, the same for the same seed. */
export function seeded(seed: number): (below: number) => number {
  const dice = new Dice(seed);
  return (below) => dice.roll(below);
}

/**
 * A number in [0, 1) that depends on `seed` and `position` only, so that a draw can be repeated: two rounds of the 32-bit finalizer of
 * MurmurHash3 (Appleby, public domain) over both.
 */
export function uniform(seed: number, position: number): number {
  return mix(mix(seed ^ 0x9e3779b9) ^ Math.imul(position + 1, 0x85ebca6b)) / 0x1_0000_0000;
}

/**
 * The seed to draw with once positions have been counted anew `rounds` times: a draw depends on seed and position, and must not come again
 * with the position. The seed itself for 0.
 */
export const reseed = (seed: number, rounds: number): number =>
  rounds === 0 ? seed : (seed ^ mix(Math.imul(rounds, 0x9e3779b9))) | 0;

function mix(value: number): number {
  let h = value >>> 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

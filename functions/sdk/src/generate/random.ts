/**
 * A number in [0, 1) that depends on `seed` and `position` only, so that a draw can be repeated: two rounds of the 32-bit finalizer of
 * MurmurHash3 (Appleby, public domain) over both.
 */
export function uniform(seed: number, position: number): number {
  return mix(mix(seed ^ 0x9e3779b9) ^ Math.imul(position + 1, 0x85ebca6b)) / 0x1_0000_0000;
}

/**
 * The number in [0, 1), of 53 random bits, that the device draws for a seed and the position of the last input. With it, a sampler in the inferlet
 * draws the same numbers as the device.
 */
export function drawOf(seed: number, position: number): number {
  const a = mix(mix(seed ^ 0x9e3779b9) ^ position);
  const b = mix(mix(a ^ 0x85ebca6b) ^ seed);
  return ((a >>> 5) * 0x400_0000 + (b >>> 6)) / 0x20_0000_0000_0000;
}

/**
 * The seed after positions have been renumbered `rounds` times; the seed itself for 0. A draw depends on seed and position, so a reused
 * position needs another seed to give a different draw.
 */
export const reseed = (seed: number, rounds: number): number =>
  rounds === 0 ? seed : (seed ^ mix(Math.imul(rounds, 0x9e3779b9))) | 0;

function mix(value: number): number {
  let h = value >>> 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

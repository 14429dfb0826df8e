import type { LogitChanges, Mask, Sampler, StepOutput, TenantLimit } from '#gpu-host/protocol/calls.ts';
import type { Random } from '../harness/random.ts';

/** Words at the edges of a field's range. */
const EDGE_WORDS = [0, 1, 2, 31, 32, 255, 65_535, 65_536, 262_145, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff];
const EDGE_FLOATS = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, -1, -0, 0, 1e-45, 3.4e38, 2];
const TEXTS = [
  '',
  '/',
  '../../etc/passwd',
  'system/',
  'system/x',
  '\u0000',
  'a'.repeat(129),
  'ü'.repeat(3000),
  '💥',
  '.',
];

/** A random word, or a word at an edge. */
export function hostileWord(random: Random): number {
  return random.once(3) ? random.u32() : random.pick(EDGE_WORDS);
}

/** `sane`, or once in 16 a hostile word. */
export function word(random: Random, sane: number): number {
  return random.once(16) ? hostileWord(random) : sane;
}

export function float(random: Random, sane: number): number {
  return random.once(4) ? random.pick(EDGE_FLOATS) : sane;
}

export function text(random: Random, sane: string): string {
  return random.once(5) ? random.pick(TEXTS) : sane;
}

/** A list of `sane()` values of random length, sometimes with duplicates or a hostile word, rarely far too long. */
export function list(random: Random, maxLength: number, sane: () => number): Uint32Array {
  const length = random.once(5000) ? random.pick([10_000, 262_144, 262_145]) : random.below(maxLength + 1);
  const values = Uint32Array.from({ length }, length > maxLength ? () => hostileWord(random) : sane);
  if (length > 0 && random.once(12)) values[random.below(length)] = hostileWord(random);
  if (length > 1 && random.once(12)) values[0] = values[length - 1] as number;
  return values;
}

export function mask(random: Random, rows: number, width: number): Mask | undefined {
  if (random.once(2)) return undefined;
  const count = random.once(6) ? random.below(9) : rows;
  const rowLengths = random.list(count, () => word(random, 2));
  const runs = rowLengths.flatMap(() => {
    const hidden = random.below(width + 1);
    return [word(random, hidden), word(random, width - hidden)];
  });
  return { runs: Uint32Array.from(runs), rowLengths: Uint32Array.from(rowLengths) };
}

export function sampler(random: Random): Sampler {
  return {
    temperature: float(random, random.pick([0, 0.7, 1.3])),
    topK: word(random, random.below(64)),
    topP: float(random, 0.9),
    minP: float(random, 0.05),
    seed: random.u32(),
  };
}

export function stepOutput(random: Random): StepOutput {
  switch (random.below(3)) {
    case 0:
      return { tag: 'none' };
    case 1:
      return { tag: 'sample', val: sampler(random) };
    default:
      return { tag: 'distributions', val: word(random, 1 + random.below(9)) };
  }
}

/** No limit half of the time, else mostly a small limit; `readAt` is mostly a random small number. */
export function limit(random: Random): TenantLimit {
  return { pages: random.once(2) ? null : word(random, 24), readAt: word(random, random.below(100)) };
}

/** Mostly one bias for each token. */
export function logitChanges(random: Random, token: () => number): LogitChanges {
  const biasTokens = list(random, 4, token);
  const length = random.once(12) ? random.below(5) : biasTokens.length;
  return {
    frequency: float(random, 0.5),
    presence: float(random, 0.5),
    biasTokens,
    biasValues: Float32Array.from({ length }, () => float(random, 1)),
    chosen: list(random, 6, token),
  };
}

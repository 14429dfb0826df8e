/**
 * Generates `draws.h`: results of `gpu-host/backends/draw.ts` and of this Node's `Math.exp`, for the tests of the
 * device's draws. Run this file again when the sampler changes: `node gpu-host/backends/cuda/native/testing/draws.ts`.
 */
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { drawPlace, uniform } from '#gpu-host/backends/draw.ts';

const SEED = 20_261;
let calls = 0;
/** A number in [0, 1) from the sampler's own generator, at positions that no case uses. */
const random = (): number => uniform(SEED, 0x4000_0000 + calls++);
const integer = (below: number): number => Math.floor(random() * below);
const word = (): number => integer(2 ** 32);

const floats = new Float32Array(1);
const doubles = new Float64Array(1);
function floatBits(value: number): string {
  floats[0] = value;
  return `0x${(new Uint32Array(floats.buffer)[0] as number).toString(16)}`;
}
function doubleBits(value: number): string {
  doubles[0] = value;
  return `0x${(new BigUint64Array(doubles.buffer)[0] as bigint).toString(16)}`;
}

const edges = [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];
const pairs = [
  ...edges.flatMap((seed) => edges.map((position) => [seed, position] as const)),
  ...Array.from({ length: 20 }, () => [word(), integer(100_000)] as const),
];

// Edges of the ranges in which the method of `head-draw.h` reduces an argument, and of underflow and overflow; then random ones.
const exponents = [
  0, -0, -1e-9, -0.34657, -0.34658, -0.5, -1, 1, -1.0397, -1.0398, -708.4, -709, -744, -745.2, 709.7, 710,
];
for (const size of [0.3, 1, 20, 700, 745]) for (let i = 0; i < 20; i++) exponents.push(-size * random());

/** Log-probabilities of `logits` as floats, in descending order. */
function distribution(logits: readonly number[]): Float32Array {
  const sorted = Float32Array.from(logits).sort().reverse();
  const sum = sorted.reduce((total, logit) => total + Math.exp(logit - (sorted[0] as number)), 0);
  return sorted.map((logit) => logit - (sorted[0] as number) - Math.log(sum));
}
const spread = (count: number, scale: number): Float32Array =>
  distribution(Array.from({ length: count }, () => scale * (random() + random() + random() - 1.5)));
const negativeInfinity = Number.NEGATIVE_INFINITY;
const distributions = [
  ...[1, 2, 3, 40, 65, 200].flatMap((count) => [0.5, 6].map((scale) => spread(count, scale))),
  // Equal logits: cumulative sums meet the cuts exactly.
  distribution(new Array(4).fill(1)),
  distribution(new Array(10).fill(-3)),
  distribution([2, 2, 1, 1, 0]),
  // Few allowed tokens, one, none.
  distribution([1, 0, 0.5, negativeInfinity, negativeInfinity, negativeInfinity]),
  Float32Array.of(0, negativeInfinity, negativeInfinity),
  Float32Array.of(negativeInfinity, negativeInfinity),
];
const f32 = Math.fround;
const samplers = [
  { temperature: 0, topP: 1, minP: 0 },
  { temperature: 1, topP: 1, minP: 0 },
  { temperature: f32(0.7), topP: f32(0.9), minP: 0 },
  { temperature: 1, topP: 0.5, minP: 0 },
  { temperature: 1.5, topP: 1, minP: f32(0.05) },
  { temperature: f32(0.3), topP: f32(0.95), minP: f32(0.1) },
  { temperature: 2, topP: 0.25, minP: 1 },
  { temperature: f32(1e-6), topP: 1, minP: 0 },
  { temperature: 1e6, topP: f32(0.999), minP: f32(0.001) },
];
const draws: string[] = [];
const values: string[] = [];
for (const logProbabilities of distributions) {
  const first = values.length;
  values.push(...Array.from(logProbabilities, floatBits));
  for (const sampler of samplers) {
    for (let i = 0; i < 2; i++) {
      const seed = word();
      const position = integer(10_000);
      const count = logProbabilities.length;
      const draw = { ...sampler, topK: 0, seed, position };
      // A greedy row takes its first token without a draw.
      const place = sampler.temperature === 0 ? 0 : drawPlace(draw, logProbabilities, 0, count);
      const { temperature, topP, minP } = sampler;
      const bits = [temperature, topP, minP].map(floatBits).join(', ');
      draws.push(`{${first}, ${count}, ${bits}, ${seed}u, ${position}, ${place}}`);
    }
  }
}

/** Wraps lines at 150 columns. */
function wrapped(items: readonly string[]): string {
  const lines = [''];
  for (const item of items) {
    const last = lines.length - 1;
    if ((lines[last] as string).length + item.length > 146) lines.push(`${item},`);
    else lines[last] = `${lines[last]}${lines[last] === '' ? '' : ' '}${item},`;
  }
  return lines.map((line) => `    ${line}\n`).join('');
}

/** Contents of `draws.h`. */
export const drawsHeader = `// Written by draws.ts (seed ${SEED}): results of the TypeScript sampler and of V8's Math.exp. Floats are written as bits.
#pragma once
#include <cstdint>

namespace fixture {

struct Uniform {
  uint32_t seed, position;
  uint64_t value;
};
inline const Uniform UNIFORMS[] = {
${wrapped(pairs.map(([seed, position]) => `{${seed}u, ${position}u, ${doubleBits(uniform(seed, position))}}`))}};

struct Exponential {
  uint64_t of, value;
};
inline const Exponential EXPONENTIALS[] = {
${wrapped(exponents.map((x) => `{${doubleBits(x)}, ${doubleBits(Math.exp(x))}}`))}};

inline const uint32_t LOG_PROBABILITIES[] = {
${wrapped(values)}};

struct Drawn {
  int first, count;
  uint32_t temperature, topP, minP;
  uint32_t seed, position;
  uint32_t place;
};
inline const Drawn DRAWS[] = {
${wrapped(draws)}};

}  // namespace fixture
`;
export const DRAWS_FILE = fileURLToPath(new URL('draws.h', import.meta.url));
if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(DRAWS_FILE, drawsHeader);

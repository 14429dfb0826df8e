import { type Draw, NOTHING_DRAWN, type TopTokens } from '../backends/backend.ts';
import { drawPlace } from '../backends/draw.ts';
import { fault } from '../memory/fault.ts';
import type { Sampler } from '../protocol/calls.ts';

/** Checks a guest's sampler. @throws CallFault `invalid-argument` naming the field. */
export function checkSampler(sampler: Sampler): void {
  const { temperature, topP, minP } = sampler;
  if (!(temperature >= 0 && temperature <= 1e6))
    throw fault('invalid-argument', `temperature ${temperature}; 0 to 1000000 is expected`);
  if (temperature === 0) return;
  if (!(topP > 0 && topP <= 1)) throw fault('invalid-argument', `top-p ${topP}; above 0 and at most 1 is expected`);
  if (!(minP >= 0 && minP <= 1)) throw fault('invalid-argument', `min-p ${minP}; 0 to 1 is expected`);
}

/** Number of most probable tokens that the sampler must see: its `topK`, or `maxTopK` when `topK` is 0 (no limit) or larger. */
export function candidatesWanted(sampler: Sampler, maxTopK: number): number {
  if (sampler.temperature === 0) return 1;
  return sampler.topK === 0 || sampler.topK > maxTopK ? maxTopK : sampler.topK;
}

/**
 * Picks one of `count` candidates, most probable first, whose log-probabilities at temperature 1 start at `logProbabilities[offset]`;
 * returns its index. Never picks a log-probability of -Infinity, unless it is the first. Cuts apply in the order top-k, top-p, min-p to
 * probabilities after the temperature, each over the tokens that passed the previous cut. The draw is a function of the seed and `position` alone.
 */
export function pick(
  sampler: Sampler,
  logProbabilities: Float32Array,
  offset: number,
  count: number,
  position: number,
): number {
  if (sampler.temperature === 0 || count <= 1) return 0;
  const draw = { ...sampler, position };
  const candidates = sampler.topK === 0 ? count : Math.min(sampler.topK, count);
  return drawPlace(draw, logProbabilities, offset, candidates);
}

/** The draws at `positions`, for a device that draws by itself; undefined for a greedy sampler, which draws nothing. */
export function drawsOf(sampler: Sampler, positions: ArrayLike<number>): readonly Draw[] | undefined {
  const { temperature, topP, minP, seed } = sampler;
  if (temperature === 0) return undefined;
  const draws: Draw[] = [];
  for (let i = 0; i < positions.length; i++)
    draws.push({ temperature, topP, minP, seed, position: positions[i] as number });
  return draws;
}

/**
 * The token of row `row`, whose input is at `position`: the one that the device drew, or else a pick from the row's first `candidates` tokens.
 * @throws CallFault `internal` when the model computed NaN, or when no token is left to draw
 */
export function tokenOf(
  sampler: Sampler,
  top: TopTokens & { readonly drawn?: Uint32Array },
  row: number,
  candidates: number,
  position: number,
): number {
  const { drawn, topK, tokens, logProbabilities } = top;
  const offset = row * topK;
  const first = drawn ? drawn[row] : tokens[offset];
  if (first === NOTHING_DRAWN || Number.isNaN(logProbabilities[offset]))
    throw fault('internal', 'the model computed no numbers for this input');
  if (drawn) return first as number;
  return tokens[offset + pick(sampler, logProbabilities, offset, Math.min(topK, candidates), position)] as number;
}

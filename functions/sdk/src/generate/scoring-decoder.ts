import type { Matcher } from 'pie:inferlet/grammar@0.1.0';
import type { Sequence } from '../context/sequence.ts';
import { InferletError } from '../errors.ts';
import { allocate, outputText, settle } from '../raw.ts';
import { Chooser } from './chooser.ts';
import type { Decoder } from './decoders.ts';
import type { Distribution, GuestSampler } from './samplers.ts';

/**
 * Decodes by separate embed, forward and next-distribution calls. The decoder thus has the state after the last token, and can ask for the
 * probabilities of single tokens: the improbable tokens that a sampler needs, and the chosen token.
 */
export class ScoringDecoder implements Decoder {
  /** Log-probability of the last token in the model's own distribution. */
  logProbabilities: readonly number[] = [];
  readonly #sequence: Sequence;
  readonly #chooser: Chooser;
  readonly #askedTokens: Uint32Array;
  readonly #withLogProbs: boolean;
  readonly #matcher: Matcher | undefined;

  constructor(
    sequence: Sequence,
    sampler: Pick<GuestSampler, 'candidates' | 'choose' | 'also'>,
    seed: number,
    withLogProbs: boolean,
    matcher?: Matcher,
  ) {
    this.#sequence = sequence;
    this.#chooser = new Chooser(sampler, seed);
    this.#askedTokens = Uint32Array.from(sampler.also ?? []);
    this.#withLogProbs = withLogProbs;
    this.#matcher = matcher;
  }

  skip(tokens: number): void {
    this.#chooser.skip(tokens);
  }

  async next(): Promise<readonly number[]> {
    const sequence = this.#sequence;
    const { queue } = sequence;
    const start = sequence.firstPending(true);
    const embeds = sequence.advance();
    const state = embeds.at(-1) as number;
    const ask = (tokens: Uint32Array) => sequence.settle(outputText.logProbabilities(queue, state, tokens), start);
    try {
      const candidates = this.#matcher ? MAX_CANDIDATES : this.#chooser.candidates;
      const [distribution, also, mask] = await Promise.all([
        sequence.settle(outputText.nextDistribution(queue, state, candidates), start),
        this.#askedTokens.length > 0 ? ask(this.#askedTokens) : [],
        this.#matcher && settle(this.#matcher.mask()),
      ]);
      let candidateRows = merge(distribution, this.#askedTokens, also);
      if (mask) candidateRows = await this.#allowed(candidateRows, mask, ask);
      const token = this.#chooser.choose(candidateRows, sequence);
      if (this.#withLogProbs) {
        const at = Array.prototype.indexOf.call(candidateRows.tokens, token);
        const known = at < 0 ? undefined : candidateRows.logProbabilities[at];
        this.logProbabilities = known === undefined ? await ask(Uint32Array.of(token)) : [known];
      }
      return [token];
    } finally {
      allocate.freeEmbeds(queue, embeds);
    }
  }

  stop(): void {}

  /** The most probable allowed tokens, and the allowed ones that the sampler asked for. */
  async #allowed(
    { tokens, logProbabilities }: Distribution,
    mask: ArrayLike<number>,
    ask: (tokens: Uint32Array) => Promise<readonly number[]>,
  ): Promise<Distribution> {
    const { candidates } = this.#chooser;
    const allows = (token: number) => (((mask[token >>> 5] ?? 0) >>> (token & 31)) & 1) === 1;
    const allowedIds = idsOf(mask, this.#sequence.model.vocabularySize);
    const fitting = cut({ tokens, logProbabilities }, (token) => allows(token));
    // The device lists the most probable tokens. When too few of them are allowed, ask for all allowed ones.
    const enough = fitting.tokens.length >= Math.min(candidates + this.#askedTokens.length, allowedIds.length);
    const seen = enough ? fitting : merge({ tokens: [], logProbabilities: [] }, allowedIds, await ask(allowedIds));
    const also = new Set(this.#askedTokens);
    return cut(seen, (token, i) => i < candidates || also.has(token));
  }
}

function cut({ tokens, logProbabilities }: Distribution, keeps: (token: number, i: number) => boolean): Distribution {
  const kept = Array.from(tokens).flatMap((token, i) => (keeps(token, i) ? [i] : []));
  return {
    tokens: kept.map((i) => tokens[i] as number),
    logProbabilities: kept.map((i) => logProbabilities[i] as number),
  };
}

/** Number of candidates to request under a mask, which may forbid most of the probable tokens. */
const MAX_CANDIDATES = 256;

/** The ids of the tokens whose bits are set. `rest & -rest` is the lowest set bit, and `rest & (rest - 1)` clears it. */
function idsOf(mask: ArrayLike<number>, vocabularySize: number): Uint32Array {
  const ids: number[] = [];
  for (let word = 0; word < mask.length; word++) {
    for (let rest = mask[word] as number; rest !== 0; rest &= rest - 1)
      ids.push(32 * word + 31 - Math.clz32(rest & -rest));
  }
  return Uint32Array.from(ids.filter((id) => id < vocabularySize));
}

/** Adds tokens to a distribution, most probable first. */
function merge(distribution: Distribution, more: Uint32Array, logProbabilities: readonly number[]): Distribution {
  if (more.length === 0) return distribution;
  if (logProbabilities.length !== more.length)
    throw new InferletError('internal', 'The device left probabilities out.');
  const rows = new Map<number, number>();
  for (const [i, token] of Array.from(distribution.tokens).entries()) {
    rows.set(token, distribution.logProbabilities[i] as number);
  }
  for (const [i, token] of more.entries()) if (!rows.has(token)) rows.set(token, logProbabilities[i] as number);
  const sorted = [...rows].sort(([a, p], [b, q]) => q - p || a - b);
  return { tokens: sorted.map(([token]) => token), logProbabilities: sorted.map(([, value]) => value) };
}

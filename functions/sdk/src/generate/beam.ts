import { type AbortSignalLike, throwIfAborted } from '../abort.ts';
import { type Context, sequenceOf } from '../context/context.ts';
import { detokenize, specialTokens } from '../context/models.ts';
import { beginText } from '../context/sequence.ts';
import { checkCount } from '../errors.ts';

/** Options of a beam search. */
export interface BeamOptions {
  /** Number of continuations kept at each token, at most 128. */
  readonly beams: number;
  readonly maxTokens: number;
  /** A text of n tokens scores logProbability / n^lengthPenalty: 0 (default) compares sums, 1 averages; larger values favour long texts. */
  readonly lengthPenalty?: number;
  /** Token ids that end a text, in addition to the model's own. */
  readonly stopTokens?: readonly number[];
  readonly signal?: AbortSignalLike;
}

/** One continuation. */
export interface Beam {
  /** Generated token ids, without the final stop token. */
  readonly tokens: readonly number[];
  readonly text: string;
  /** Natural logarithm of the continuation's probability, the final stop token included. */
  readonly logProbability: number;
  /** `logProbability` after the length penalty. Beams are ordered by it. */
  readonly score: number;
  /** True when a stop token ended the text. */
  readonly ended: boolean;
}

interface Hypothesis {
  readonly tokens: readonly number[];
  readonly logProbability: number;
}

interface Live extends Hypothesis {
  readonly context: Context;
}

interface Candidate extends Hypothesis {
  readonly parent: Live;
  readonly token: number;
}

/** Maximum number of beams. A device returns at most 256 candidates, and a search needs more candidates than beams, since some are stop tokens. */
const MAX_BEAMS = 128;

/**
 * Finds the most probable continuations of a context, best first, by keeping the `beams` best of each length (Lowerre, The Harpy Speech
 * Recognition System, 1976). Leaves the context unchanged, except that an empty one gets the model's begin-of-text token. Beams share the
 * pages of their common prefixes and run through the model in the same batch.
 *
 * @example
 * const [best] = await beamSearch(ctx.fill('The opposite of hot is'), { beams: 4, maxTokens: 8 });
 */
export async function beamSearch(context: Context, options: BeamOptions): Promise<Beam[]> {
  const { beams, lengthPenalty = 0, signal } = options;
  beginText(sequenceOf(context));
  checkCount('beams', beams, 1, MAX_BEAMS);
  checkCount('maxTokens', options.maxTokens);
  const { name, contextLength, vocabularySize } = context.model;
  const { bos, eos } = specialTokens(name);
  const stops = new Set([...eos, ...(bos === null ? [] : [bos]), ...(options.stopTokens ?? [])]);
  const maxTokens = Math.min(options.maxTokens, contextLength - context.length);
  // Enough candidates to keep `beams` of them even if all stop tokens are among them, as far as a device returns so many.
  const topK = Math.min(beams + stops.size, 256, vocabularySize);
  const score = ({ logProbability }: Hypothesis, length: number) =>
    logProbability / Math.max(1, length) ** lengthPenalty;

  const ended: Hypothesis[] = [];
  let live: Live[] = [{ context: await context.fork(), tokens: [], logProbability: 0 }];
  try {
    for (let length = 1; length <= maxTokens && live.length > 0; length++) {
      throwIfAborted(signal);
      const candidates = (await Promise.all(live.map((beam) => extend(beam, topK)))).flat();
      candidates.sort((a, b) => b.logProbability - a.logProbability);
      const kept: Candidate[] = [];
      for (const candidate of candidates) {
        if (kept.length === beams) break;
        if (stops.has(candidate.token)) ended.push(candidate);
        else kept.push(candidate);
      }
      ended.sort((a, b) => score(b, b.tokens.length) - score(a, a.tokens.length)).splice(beams);
      live = await advance(live, kept);
      // Live beams can only become less probable. Their scores profit most from a length penalty at `maxTokens`, or at the present length if
      // the penalty is negative. The search ends when no live beam can reach the worst ended one.
      const worst = ended.length === beams ? ended[beams - 1] : undefined;
      const bestLength = lengthPenalty < 0 ? length : maxTokens;
      if (worst && live.every((beam) => score(worst, worst.tokens.length) >= score(beam, bestLength))) break;
    }
    const rest = live.map(({ tokens, logProbability }) => ({ tokens, logProbability, ended: false }));
    return [...ended.map((hypothesis) => ({ ...hypothesis, ended: true })), ...rest]
      .map(({ tokens, logProbability, ended }) => {
        const textTokens = ended ? tokens.slice(0, -1) : tokens;
        const text = textAfter(context, textTokens);
        return {
          tokens: textTokens,
          text,
          logProbability,
          score: score({ tokens, logProbability }, tokens.length),
          ended,
        };
      })
      .sort((a, b) => b.score - a.score)
      .slice(0, beams);
  } finally {
    for (const beam of live) beam.context.release();
  }
}

/** The candidates that may follow a beam. Computes the beam's last token. */
async function extend(parent: Live, topK: number): Promise<Candidate[]> {
  const { tokens, logProbabilities } = await sequenceOf(parent.context).distribution(topK);
  return Array.from(tokens, (token, i) => ({
    parent,
    token,
    tokens: [...parent.tokens, token],
    logProbability: parent.logProbability + (logProbabilities[i] as number),
  }));
}

/** The next beams: a parent's first child takes over the parent's context, the others fork that context. Releases parents without children. */
async function advance(live: readonly Live[], kept: readonly Candidate[]): Promise<Live[]> {
  const taken = new Set<Live>();
  const pending = kept.map(async ({ parent, tokens, logProbability }) => {
    const heir = !taken.has(parent);
    taken.add(parent);
    return { context: heir ? parent.context : await parent.context.fork(), tokens, logProbability };
  });
  for (const parent of live) if (!taken.has(parent)) parent.context.release();
  const settled = await Promise.allSettled(pending);
  const next = settled.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
  const failed = settled.find((outcome) => outcome.status === 'rejected');
  if (failed) {
    for (const { context } of next) context.release();
    throw failed.reason;
  }
  for (const { context, tokens } of next) sequenceOf(context).append(tokens.slice(-1));
  return next;
}

/** The text of tokens that continue a context. */
function textAfter(context: Context, tokens: readonly number[]): string {
  const how = { model: context.model.name };
  const before = context.tokens.slice(-8).filter((token) => token >= 0);
  return detokenize([...before, ...tokens], how).slice(detokenize(before, how).length);
}

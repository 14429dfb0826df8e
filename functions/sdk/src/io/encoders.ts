import type { EncoderInfo as EncoderModel } from 'pie:inferlet/embedding@0.1.0';
import { type AbortSignalLike, aborter, throwIfAborted } from '../abort.ts';
import { partsOf, type TextPart } from '../context/long-text.ts';
import { InferletError } from '../errors.ts';
import { embedding, rerank as rerankCalls, settle } from '../raw.ts';

/** A model that encodes texts. */
export type { EncoderModel };

/** Options of {@link embed} and {@link rerank}. */
export interface EncodeOptions {
  /** Name of the encoder; by default, the first one of the kind that the call needs. */
  readonly model?: string | undefined;
  /** An abort ends the call with the signal's reason if that is an InferletError, else with `cancelled`. No further text is computed. */
  readonly signal?: AbortSignalLike | undefined;
}

/** Amount of text that a call encoded. */
export interface EncodeUsage {
  readonly tokens: number;
  /** Number of texts that were too long for the model, so that their ends were left out. */
  readonly cut: number;
}

/** Result of {@link embed}. */
export interface Embedded extends EncodeUsage {
  /** One vector for each text, in order. */
  readonly vectors: Float32Array[];
}

/** Result of {@link rerank}. */
export interface Ranked extends EncodeUsage {
  /** One number for each document, in order: larger is better. */
  readonly scores: number[];
  /** Indices of the documents, the best first. */
  readonly ranking: number[];
}

/** The encoders that the function was granted. */
export function encoders(): EncoderModel[] {
  return embedding.encoders();
}

/**
 * Turns texts into vectors. Texts of like meaning have vectors of like direction; most models give vectors of length 1, whose dot product is the
 * cosine of their angle.
 *
 * @throws InferletError `not-found` when the function was granted no embedding model
 * @example const { vectors } = await embed(['The cat sleeps.', 'A kitten naps.']);
 */
export async function embed(texts: readonly string[], { model = '', signal }: EncodeOptions = {}): Promise<Embedded> {
  const parts = partsOf(texts, 0);
  const answers = await allOf(parts, signal, (part, ending) => settle(embedding.embed(model, part.texts), ending));
  const vectors: Float32Array[] = [];
  let [tokens, cut] = [0, 0];
  for (const [i, each] of answers.entries()) {
    for (let at = 0; at < each.values.length; at += each.size) {
      vectors.push(Float32Array.from(each.values.slice(at, at + each.size)));
    }
    tokens += each.tokens;
    cut += cutTexts(each, parts[i]);
  }
  return { vectors, tokens, cut };
}

/**
 * Scores how well each document answers the query. The model reads both together, which costs a pass for each document: rank the best hundred
 * of a search, not all documents.
 *
 * @throws InferletError `not-found` when the function was granted no reranker
 * @example const { ranking } = await rerank('Who is the king?', documents);
 */
export async function rerank(
  query: string,
  documents: readonly string[],
  { model = '', signal }: EncodeOptions = {},
): Promise<Ranked> {
  const parts = partsOf(documents, query.length);
  const answers = await allOf(parts, signal, (part, ending) =>
    settle(rerankCalls.rerank(model, query, part.texts), ending),
  );
  const scores: number[] = [];
  let [tokens, cut] = [0, 0];
  for (const [i, each] of answers.entries()) {
    scores.push(...each.values);
    tokens += each.tokens;
    cut += cutTexts(each, parts[i]);
  }
  const ranking = scores.map((_, i) => i).sort((a, b) => (scores[b] ?? 0) - (scores[a] ?? 0));
  return { scores, ranking, tokens, cut };
}

/**
 * Number of a part's texts that were cut, by `partsOf` or by the model. A text that `partsOf` has cut is mostly still too long for the model, which
 * cuts and counts it once more. So this is the larger of the two counts: their sum would count such a text twice.
 */
const cutTexts = (answer: Pick<EncodeUsage, 'cut'>, part: TextPart | undefined): number =>
  Math.max(answer.cut, part?.cut ?? 0);

/** The answers of calls, one for each part. The first failure ends the other calls. */
async function allOf<T>(
  parts: readonly TextPart[],
  signal: AbortSignalLike | undefined,
  call: (part: TextPart, ending: AbortSignalLike) => Promise<T>,
): Promise<T[]> {
  throwIfAborted(signal);
  using ending = aborter(signal);
  try {
    return await Promise.all(parts.map((part) => call(part, ending.signal)));
  } catch (error) {
    ending.abort(new InferletError('cancelled', 'Another call failed.'));
    throw error;
  }
}

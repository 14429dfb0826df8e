import { embedding, rerank as rerankCalls, settle } from './raw.ts';
import { partsOf } from './text-parts.ts';

/** A model that encodes texts. */
export interface EncoderModel {
  readonly name: string;
  readonly kind: 'embedding' | 'reranker';
  /** Values of a vector; 1 for a reranker. */
  readonly size: number;
  /** Most tokens of a text, or of a query with a document. */
  readonly contextLength: number;
}

export interface EncodeOptions {
  /** Name of the encoder; the first of the needed kind by default. */
  readonly model?: string | undefined;
}

/** Tokens that a call encoded, and the number of its texts that were too long for the model, whose ends were left out. */
export interface EncodeUsage {
  readonly tokens: number;
  readonly cut: number;
}

export interface Embedded extends EncodeUsage {
  /** One vector for each text, in order. */
  readonly vectors: Float32Array[];
}

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
export async function embed(texts: readonly string[], { model = '' }: EncodeOptions = {}): Promise<Embedded> {
  const parts = partsOf(texts, 0);
  const calls = parts.map((part) => settle(embedding.embed(model, part.texts)));
  const vectors: Float32Array[] = [];
  let [tokens, cut] = [0, 0];
  for (const [i, each] of (await Promise.all(calls)).entries()) {
    for (let at = 0; at < each.values.length; at += each.size) {
      vectors.push(Float32Array.from(each.values.slice(at, at + each.size)));
    }
    tokens += each.tokens;
    cut += Math.max(each.cut, parts[i]?.cut ?? 0);
  }
  return { vectors, tokens, cut };
}

/**
 * Scores how well each document answers the query. The model reads both together, which costs a pass for each document: rank the best hundred
 * of a search, not a library.
 *
 * @throws InferletError `not-found` when the function was granted no reranker
 * @example const { ranking } = await rerank('Who is the king?', documents);
 */
export async function rerank(
  query: string,
  documents: readonly string[],
  { model = '' }: EncodeOptions = {},
): Promise<Ranked> {
  const parts = partsOf(documents, query.length);
  const calls = parts.map((part) => settle(rerankCalls.rerank(model, query, part.texts)));
  const scores: number[] = [];
  let [tokens, cut] = [0, 0];
  for (const [i, each] of (await Promise.all(calls)).entries()) {
    scores.push(...each.values);
    tokens += each.tokens;
    cut += Math.max(each.cut, parts[i]?.cut ?? 0);
  }
  const ranking = scores.map((_, i) => i).sort((a, b) => (scores[b] ?? 0) - (scores[a] ?? 0));
  return { scores, ranking, tokens, cut };
}

import { embedding, rerank as rerankCalls, settle } from './raw.ts';

/** Most texts, and most characters of them, in one call of the platform. */
const CALL_TEXTS = 256;
const CALL_CHARACTERS = 262_144;

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
  const calls = partsOf(texts, 0).map((part) => settle(embedding.embed(model, part)));
  const vectors: Float32Array[] = [];
  let [tokens, cut] = [0, 0];
  for (const each of await Promise.all(calls)) {
    for (let at = 0; at < each.values.length; at += each.size) {
      vectors.push(Float32Array.from(each.values.slice(at, at + each.size)));
    }
    tokens += each.tokens;
    cut += each.cut;
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
  const calls = partsOf(documents, query.length).map((part) => settle(rerankCalls.rerank(model, query, part)));
  const scores: number[] = [];
  let [tokens, cut] = [0, 0];
  for (const each of await Promise.all(calls)) {
    scores.push(...each.values);
    tokens += each.tokens;
    cut += each.cut;
  }
  const ranking = scores.map((_, i) => i).sort((a, b) => (scores[b] ?? 0) - (scores[a] ?? 0));
  return { scores, ranking, tokens, cut };
}

/** Parts that fit one call each. A text that does not fit alone is a part of its own, which the platform refuses with the limit. */
function partsOf(texts: readonly string[], more: number): string[][] {
  const parts: string[][] = [];
  let [part, characters]: [string[], number] = [[], 0];
  for (const text of texts) {
    const length = text.length + more;
    if (part.length === CALL_TEXTS || (part.length > 0 && characters + length > CALL_CHARACTERS)) {
      parts.push(part);
      [part, characters] = [[], 0];
    }
    part.push(text);
    characters += length;
  }
  if (part.length > 0 || texts.length === 0) parts.push(part);
  return parts;
}

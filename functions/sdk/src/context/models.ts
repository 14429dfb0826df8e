import type { ModelInfo } from 'pie:inferlet/runtime@0.1.0';
import type { SpecialTokenIds } from 'pie:inferlet/tokenize@0.1.0';
import { InferletError } from '../errors.ts';
import { attempt, runtime, tokenize as wire } from '../raw.ts';
import { MAX_PART_CHARACTERS, tokenizeLong } from './long-text.ts';

export type { ModelInfo } from 'pie:inferlet/runtime@0.1.0';
export type { SpecialTokenIds } from 'pie:inferlet/tokenize@0.1.0';

let grantedModels: readonly ModelInfo[] | undefined;
const specialIds = new Map<string, SpecialTokenIds>();
/** Tokens of a line break, for models whose tokenizer puts a space before a text; empty for other models. */
const markers = new Map<string, readonly number[]>();

/** The models granted to this function; the first is its default. */
export function models(): readonly ModelInfo[] {
  grantedModels ??= runtime.models();
  return grantedModels;
}

/** One granted model by name, or the default model. Throws `not-found` with the names of the granted models. */
export function model(name?: string): ModelInfo {
  const all = models();
  const found = name === undefined ? all[0] : all.find((candidate) => candidate.name === name);
  if (found) return found;
  const names = all.map((candidate) => candidate.name).join(', ') || 'none';
  throw new InferletError(
    'not-found',
    name === undefined
      ? 'This function was granted no model; name one in its pie.json ("model").'
      : `There is no model "${name}" for this function; it was granted: ${names}.`,
  );
}

/**
 * True when a model offers all of these interfaces (`fused`, `grammar`, `introspect`, `input-image`, …). A call of an interface that the
 * model lacks throws `unsupported`.
 *
 * @example
 * const fast = models().find(({ name }) => supports(name, 'fused', 'adapter'));
 */
export const supports = (name: string | undefined, ...traits: readonly string[]): boolean => {
  const offered = model(name).traits;
  return traits.every((trait) => offered.includes(trait));
};

/**
 * For a model, the number of tokens up to which a larger step takes little more time. For an encoder, the number of tokens of its next batch.
 * Undefined before the GPU host has measured it.
 *
 * @throws InferletError `not-found` for a model or an encoder that the function was not granted
 */
export const efficientTokens = (name: string): number | undefined =>
  attempt(() => runtime.efficientTokens(name)) ?? undefined;

/** Ids of a model's special tokens. */
export function specialTokens(name?: string): SpecialTokenIds {
  const key = model(name).name;
  let ids = specialIds.get(key);
  if (!ids) {
    ids = attempt(() => wire.specialTokens(key));
    specialIds.set(key, ids);
  }
  return ids;
}

/**
 * Token ids of `content`, without special tokens around it. A long text is cut where the cut changes no token. A text without such a place
 * (131,072 characters without a space or punctuation mark) throws `limit-exceeded`.
 *
 * @param options.special parse special tokens written in the text (never set this for text that a user wrote)
 */
export function tokenize(content: string, options: { model?: string; special?: boolean } = {}): number[] {
  const { name } = model(options.model);
  const call = (part: string): number[] => attempt(() => wire.tokenize(name, part, options.special ?? false));
  if (content.length <= MAX_PART_CHARACTERS) return call(content);
  return tokenizeLong(content, call, (part) => tokenizeContinuation(part, options));
}

/**
 * Token ids of `content` as the continuation of other text. SentencePiece tokenizers put a space before every input, which is right only at
 * the beginning of a text. For them, this function puts a line break in front and removes the line break's tokens afterwards.
 */
export function tokenizeContinuation(content: string, options: { model?: string; special?: boolean } = {}): number[] {
  const { name } = model(options.model);
  let marker = markers.get(name);
  if (marker === undefined) {
    const line = tokenize('\n', { model: name });
    const after = tokenize('\na', { model: name }).slice(line.length);
    marker = after.join() === tokenize('a', { model: name }).join() ? [] : line;
    markers.set(name, marker);
  }
  if (marker.length > 0 && content !== '') {
    const marked = tokenize(`\n${content}`, options);
    if (marker.every((token, i) => marked[i] === token)) return marked.slice(marker.length);
  }
  return tokenize(content, options);
}

/** Text of `tokens`; special tokens are left out unless `special`. */
export function detokenize(
  tokens: Uint32Array | readonly number[],
  options: { model?: string; special?: boolean } = {},
): string {
  const { name } = model(options.model);
  return attempt(() => wire.detokenize(name, tokens, options.special ?? false));
}

import type { PagePrefix } from './identity.ts';
import { hashTokens } from './prefix/tokens.ts';

/** Maximum keys of one call. They bound the time that a long text takes while each batch is chosen; most batches compute fewer pages. */
const MAX_KEYS = 64;

/**
 * A key for each whole page of `tokens`, which follow the page `before` (or begin a text), at most 64. The key stands for the text from its
 * beginning to the end of the page: equal texts have equal keys. Different texts seldom do; a comparison of tokens must decide before keys
 * and values are shared.
 */
export function textKeys(before: PagePrefix | undefined, tokens: Uint32Array, pageSize: number): readonly number[] {
  const count = Math.min(Math.floor(tokens.length / pageSize), MAX_KEYS);
  const keys: number[] = [];
  let key = count > 0 ? keyOf(before) : 0;
  for (let at = 0; at < count; at++) {
    key = nextKey(key, tokens.subarray(at * pageSize, (at + 1) * pageSize));
    keys.push(key);
  }
  return keys;
}

/** The key of a full page, whose tokens no longer change; 0 for the beginning of a text. Each page keeps its key. */
function keyOf(page: PagePrefix | undefined): number {
  const missing: PagePrefix[] = [];
  let known = page;
  for (; known && known.key === undefined; known = known.parent) missing.push(known);
  let key = known?.key ?? 0;
  for (const each of missing.reverse()) {
    key = nextKey(key, each.tokens);
    each.key = key;
  }
  return key;
}

/** Mixes a page's tokens into the key of the text before it. */
function nextKey(before: number, tokens: Uint32Array): number {
  return Math.imul(((before << 5) | (before >>> 27)) ^ hashTokens(tokens), 0x9e3779b1);
}

import type { PagePrefix } from './identity.ts';
import { hashTokens } from './prefix/tokens.ts';

/** Maximum keys of one call. It bounds the time that a long text costs each choice of a batch; most batches compute fewer pages. */
const MAX_KEYS = 64;

/**
 * Computes a key for each whole page of `tokens`, at most `MAX_KEYS`. The tokens follow the page `prefixBefore`, or begin a text. A key stands for
 * the text from its beginning to the end of the page. Equal texts have equal keys. Different texts have equal keys only seldom, but a comparison of
 * tokens must decide before pages are shared.
 */
export function textKeys(
  prefixBefore: PagePrefix | undefined,
  tokens: Uint32Array,
  pageSize: number,
): readonly number[] {
  const count = Math.min(Math.floor(tokens.length / pageSize), MAX_KEYS);
  const keys: number[] = [];
  let key = count > 0 ? keyOf(prefixBefore) : 0;
  for (let index = 0; index < count; index++) {
    key = nextKey(key, tokens.subarray(index * pageSize, (index + 1) * pageSize));
    keys.push(key);
  }
  return keys;
}

/** The key of a full page, whose tokens no longer change; 0 for the beginning of a text. Each page keeps its key. */
function keyOf(page: PagePrefix | undefined): number {
  const unkeyed: PagePrefix[] = [];
  let current = page;
  for (; current && current.key === undefined; current = current.parent) unkeyed.push(current);
  let key = current?.key ?? 0;
  for (const each of unkeyed.reverse()) {
    key = nextKey(key, each.tokens);
    each.key = key;
  }
  return key;
}

/** Mixes a page's tokens into the key of the text before it: a rotation, then a product with a large prime. */
function nextKey(keyBefore: number, tokens: Uint32Array): number {
  return Math.imul(((keyBefore << 5) | (keyBefore >>> 27)) ^ hashTokens(tokens), 0x9e3779b1);
}

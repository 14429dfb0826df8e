import type { Page } from './pool.ts';
import { sameTokens } from './prefix/tokens.ts';
import type { PrefixNode } from './prefix/tree.ts';

/**
 * The tokens that a page's keys and values were computed from: those of its parents, then its own, at positions 0, 1, 2, … with nothing
 * masked, by the model alone or with one of its adapters. Two pages with equal identities hold the same keys and values. An identity never
 * changes once its page is full, since identities of later pages name it as their parent.
 */
export class PagePrefix {
  /** Owner of the tokens: lookups never cross tenants. */
  readonly tenant: string;
  /** The low-rank adapter that computed the keys and values; undefined for the model alone. */
  readonly adapter: string | undefined;
  /** Identity of the previous page of the text; undefined for the first page. */
  readonly parent: PagePrefix | undefined;
  /** One token per slot. */
  readonly tokens: Uint32Array;
  /** Tokens known, from slot 0 on. */
  known: number;
  /** Known tokens whose keys and values have been computed; the others are reserved for a computation under way. */
  computed: number;
  /** The tree node that last held these tokens; it may have left the tree. */
  node: PrefixNode<Page> | undefined;
  /** Key of the text up to the end of the page (`textKeys`), once the page is full and the key was asked for. */
  key: number | undefined;

  constructor(tenant: string, adapter: string | undefined, parent: PagePrefix | undefined, pageSize: number) {
    this.tenant = tenant;
    this.adapter = adapter;
    this.parent = parent;
    this.tokens = new Uint32Array(pageSize);
    this.known = 0;
    this.computed = 0;
  }

  /** An identity for a copy of the page, with the first `known` tokens; undefined for 0 tokens. */
  first(known: number): PagePrefix | undefined {
    if (known === 0) return undefined;
    const copy = new PagePrefix(this.tenant, this.adapter, this.parent, this.tokens.length);
    copy.tokens.set(this.tokens.subarray(0, known));
    copy.known = known;
    copy.computed = Math.min(known, this.computed);
    return copy;
  }
}

/** Namespace of the prefix tree for the texts of a tenant that one adapter, or the model alone, computed. An adapter's name has no NUL. */
export function treeTenant(tenant: string, adapter: string | undefined): string {
  return `${adapter ?? ''}\0${tenant}`;
}

/** True when pages with these identities hold the same keys and values. In the worst case, walks to the start of the text. */
export function samePrefix(a: PagePrefix | undefined, b: PagePrefix | undefined): boolean {
  for (let [left, right] = [a, b]; left !== right; left = left.parent, right = right.parent) {
    if (!left || !right || left.known !== right.known) return false;
    if (left.tenant !== right.tenant || left.adapter !== right.adapter) return false;
    if (left.node && left.node === right.node) return true;
    if (!sameTokens(left.tokens, right.tokens)) return false;
  }
  return true;
}

import type { Page } from './pool.ts';
import { sameTokens } from './prefix/tokens.ts';
import type { PrefixNode } from './prefix/tree.ts';

/**
 * Which tokens a page's keys and values were computed from, and by what: those of its parents, then its own, at positions 0, 1, 2, … and
 * nothing masked, by the model alone or with one of its adapters. Two pages with equal identities hold the same keys and values. Never
 * changed once the page is full, since identities of later pages name it as their parent.
 */
export class PagePrefix {
  /** Whose tokens they are: nothing is found across tenants. */
  readonly tenant: string;
  /** The low-rank adapter that computed them; undefined for the model alone. */
  readonly adapter: string | undefined;
  /** The page before it; undefined for the first of a text. */
  readonly parent: PagePrefix | undefined;
  /** One a slot. */
  readonly tokens: Uint32Array;
  /** Tokens known, from slot 0 on. */
  known: number;
  /** Those of them whose keys and values are there; the others are reserved for what is being computed. */
  computed: number;
  /** The node of the tree that was last known to hold these tokens; it may have left the tree. */
  node: PrefixNode<Page> | undefined;

  constructor(tenant: string, adapter: string | undefined, parent: PagePrefix | undefined, pageSize: number) {
    this.tenant = tenant;
    this.adapter = adapter;
    this.parent = parent;
    this.tokens = new Uint32Array(pageSize);
    this.known = 0;
    this.computed = 0;
  }

  /** One of its own for a copy of the page, with the first `known` tokens; undefined when that is none. */
  first(known: number): PagePrefix | undefined {
    if (known === 0) return undefined;
    const copy = new PagePrefix(this.tenant, this.adapter, this.parent, this.tokens.length);
    copy.tokens.set(this.tokens.subarray(0, known));
    copy.known = known;
    copy.computed = Math.min(known, this.computed);
    return copy;
  }
}

/** Whose texts these are to the prefix tree: a tenant's that one adapter, or the model alone, computed. An adapter's name has no NUL. */
export function treeTenant(tenant: string, adapter: string | undefined): string {
  return `${adapter ?? ''}\0${tenant}`;
}

/** Whether the pages hold the same keys and values. Walks to the start of the text in the worst case; equal nodes or objects end it at once. */
export function samePrefix(a: PagePrefix | undefined, b: PagePrefix | undefined): boolean {
  for (let [left, right] = [a, b]; left !== right; left = left.parent, right = right.parent) {
    if (!left || !right || left.known !== right.known) return false;
    if (left.tenant !== right.tenant || left.adapter !== right.adapter) return false;
    if (left.node && left.node === right.node) return true;
    if (!sameTokens(left.tokens, right.tokens)) return false;
  }
  return true;
}

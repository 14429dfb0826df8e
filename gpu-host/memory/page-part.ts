import { PagePrefix } from './identity.ts';
import { fillSlot, type Page } from './pool.ts';
import { commonStart } from './prefix/tokens.ts';
import type { PrefixNode } from './prefix/tree.ts';
import type { Mapping, PageSpace } from './space.ts';

/** The first slots of a page, for another text to copy. */
export interface PagePart {
  readonly page: Page;
  /** Number of these slots. */
  readonly tokens: number;
}

/**
 * Finds the first slots of a page that hold the first of `tokens`, so that a hit may end inside a page. Considers only
 * the page in which a text last continued after `node`. That page may have changed since, so only the identity that the
 * page has now counts. Undefined when the page is not on the device, or begins with another token.
 */
export function partAfter(node: PrefixNode<Page> | undefined, tokens: Uint32Array): PagePart | undefined {
  const page = node?.next;
  const prefix = page?.prefix;
  if (!page || page.frame < 0 || !prefix || prefix.parent?.node !== node) return undefined;
  const common = commonStart(prefix.tokens.subarray(0, prefix.computed), tokens);
  return common > 0 ? { page, tokens: common } : undefined;
}

/** Copies a part into an empty page of the space. `before` is the identity of the page in front of the empty one. */
export function copyPart(
  space: PageSpace,
  { page, tokens }: PagePart,
  { page: to }: Mapping,
  before: PagePrefix,
): void {
  const { pageSize } = space.pool;
  const slots = Uint32Array.from({ length: tokens }, (_, slot) => slot);
  space.memory.copySlots(
    space,
    slots.map((slot) => page.frame * pageSize + slot),
    slots.map((slot) => to.frame * pageSize + slot),
  );
  const prefix = new PagePrefix(before.tenant, before.adapter, before, pageSize);
  prefix.tokens.set((page.prefix as PagePrefix).tokens.subarray(0, tokens));
  prefix.known = tokens;
  prefix.computed = tokens;
  for (const slot of slots) fillSlot(to, slot, page.positions[slot] as number);
  to.prefix = prefix;
}

import type { PageRegistry } from '../memory/registry/registry.ts';
import type { StoredSnapshot } from '../memory/registry/snapshot.ts';
import type { PageSpace } from '../memory/space.ts';
import type { PageSnapshot } from '../memory/space-snapshot.ts';

/** The pages that have names, and how those that are on disk only come back. */
export interface NamedPages {
  readonly registry: PageRegistry<PageSnapshot>;
  /** Makes pages of what was stored; room is made for them as `requester` may. @throws CallFault */
  restore(requester: PageSpace, stored: StoredSnapshot): PageSnapshot;
}

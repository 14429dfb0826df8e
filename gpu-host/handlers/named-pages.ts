import type { PageRegistry } from '../memory/registry/registry.ts';
import type { StoredSnapshot } from '../memory/registry/snapshot.ts';
import type { PageSpace } from '../memory/space.ts';
import type { PageSnapshot } from '../memory/space-snapshot.ts';

/** The registry of named pages, and the way to bring pages back from disk. */
export interface NamedPages {
  readonly registry: PageRegistry<PageSnapshot>;
  /** Makes pages of a stored snapshot; makes room for them on behalf of `requester`. @throws CallFault */
  restore(requester: PageSpace, stored: StoredSnapshot): PageSnapshot;
}

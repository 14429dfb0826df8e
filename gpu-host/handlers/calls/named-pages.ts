import type { DeviceMemory } from '../../memory/device-memory.ts';
import type { Maker } from '../../memory/registry/entry.ts';
import type { PageRegistry } from '../../memory/registry/registry.ts';
import type { Requester } from '../../memory/registry/stored.ts';
import type { PageSnapshot } from '../../memory/space-snapshot.ts';
import type { Copies } from '../../memory/transfers.ts';
import type { StepGaps } from '../sharing/step-gaps.ts';
import type { ModelSpace } from './space.ts';

/** The registry of named pages, and the inferlets that it works for. */
export interface NamedPages {
  readonly registry: PageRegistry<PageSnapshot>;
  readonly memory: DeviceMemory;
  /** Copies of other hosts' pages. */
  readonly copies: Copies;
  /** The model, for pages that go from host to host; undefined when the host has no fingerprint of it. */
  readonly maker: Maker | undefined;
  /** The inferlet of a space as the registry sees it: with turns between steps, which it pays for, and a way to bring pages back from disk. */
  requesterOf(space: ModelSpace): Requester<PageSnapshot>;
}

export function namedPages(
  parts: Pick<NamedPages, 'registry' | 'memory' | 'copies' | 'maker'>,
  gaps: StepGaps,
): NamedPages {
  const { memory } = parts;
  return {
    ...parts,
    requesterOf: (space) => ({
      tenant: space.owner.tenant,
      get hasEnded() {
        return space.closed;
      },
      whenEnded: (tell) => {
        space.whenClosed.add(tell);
        return () => space.whenClosed.delete(tell);
      },
      between: (next) => gaps.work(next, space.owner.tenant, space.port.meter),
      restore: (owner, pages) => memory.restore(space.pages, owner, pages),
    }),
  };
}

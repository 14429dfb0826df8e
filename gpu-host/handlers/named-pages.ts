import type { DeviceMemory } from '../memory/device-memory.ts';
import type { PageRegistry } from '../memory/registry/registry.ts';
import type { Requester } from '../memory/registry/snapshot.ts';
import type { PageSnapshot } from '../memory/space-snapshot.ts';
import type { ModelSpace } from './space.ts';
import type { StepGaps } from './step-gaps.ts';

/** The registry of named pages, and the inferlets that it works for. */
export interface NamedPages {
  readonly registry: PageRegistry<PageSnapshot>;
  readonly memory: DeviceMemory;
  /** The turns on the device of an inferlet, and its way to bring pages back from disk. The inferlet pays, even after its end. */
  requesterOf(space: ModelSpace): Requester<PageSnapshot>;
}

export function namedPages(registry: PageRegistry<PageSnapshot>, memory: DeviceMemory, gaps: StepGaps): NamedPages {
  return {
    registry,
    memory,
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

import type { DeviceMemory } from '../../memory/device-memory.ts';
import type { Page } from '../../memory/pool.ts';
import type { HostQueue } from '../calls/space.ts';

/**
 * Pages for the next allocations of inferlets whose pages are full. With a spare page, the slot of the next step is known before the allocation
 * comes, and the allocation need not wait until the batch ends. When the batch ends, `release` gives back the pages that were not allocated.
 */
export class SparePages {
  readonly #memory: Pick<DeviceMemory, 'takeSpare' | 'pool'>;
  readonly #queues = new Set<HostQueue>();

  constructor(memory: Pick<DeviceMemory, 'takeSpare' | 'pool'>) {
    this.#memory = memory;
  }

  /** First physical slot of the queue's spare page. Undefined when there is no page, or after the queue left one unused. */
  slot(queue: HostQueue): number | undefined {
    const page = queue.takesSpares ? this.spare(queue) : undefined;
    return page && page.frame * queue.space.pages.pool.pageSize;
  }

  /** The page for the queue's next allocation; undefined when there is no frame, or when the inferlet may hold no further page. */
  spare(queue: HostQueue): Page | undefined {
    if (!queue.space.pages.hasRoom) return undefined;
    queue.sparePage ??= this.#memory.takeSpare(queue.space.pages);
    if (queue.sparePage) this.#queues.add(queue);
    return queue.sparePage;
  }

  /** Gives back the pages that were not allocated. No step that writes to them may be under way. */
  release(): void {
    for (const queue of this.#queues) {
      if (queue.sparePage) this.#memory.pool.release(queue.sparePage);
      queue.sparePage = undefined;
    }
    this.#queues.clear();
  }
}

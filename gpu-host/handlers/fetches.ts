import type { DeviceMemory } from '../memory/device-memory.ts';
import { CallFault, CallHeld } from '../memory/fault.ts';
import type { Page } from '../memory/pool.ts';
import type { PageSpace } from '../memory/space.ts';
import { unexpected } from '../unexpected.ts';
import type { Preemption } from './preemption.ts';
import type { StepGaps } from './step-gaps.ts';

/** Brings pages of inferlets back from swap on disk. The inferlet's calls that need pages are held meanwhile, and the others go on. */
export class Fetches {
  readonly #memory: DeviceMemory;
  readonly #gaps: StepGaps;
  readonly #preemption: Preemption;
  readonly #running = new Set<Promise<void>>();

  /** @param preemption holds the calls, and lets them go when the pages are back */
  constructor(memory: DeviceMemory, gaps: StepGaps, preemption: Preemption) {
    this.#memory = memory;
    this.#gaps = gaps;
    this.#preemption = preemption;
  }

  /** Begins to bring `absent` back, which `pages` holds. */
  begin(pages: PageSpace, absent: readonly Page[]): void {
    const running = this.#fetch(pages, absent).finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  /** Resolves when no disk is read any more. */
  async ended(): Promise<void> {
    // A copy in a gap may begin another one meanwhile.
    while (this.#running.size > 0) await Promise.all(this.#running);
  }

  async #fetch(pages: PageSpace, absent: readonly Page[]): Promise<void> {
    const space = this.#preemption.spaceOf(pages);
    try {
      if (!space) return;
      const { owner, port } = space;
      await this.#memory.bringFromDisk(pages, absent, async (move) => {
        const moveOpen = (): false | undefined => {
          // The pages of a closed space may belong to another inferlet by now.
          if (space.closed) return undefined;
          move();
          return false;
        };
        await this.#gaps.work(moveOpen, owner.tenant, port.meter);
      });
    } catch (error) {
      // The calls meet the same refusal when they go on.
      if (!(error instanceof CallHeld || error instanceof CallFault)) unexpected(error);
    } finally {
      pages.isFetching = false;
      pages.readsItself = absent.some(({ frame }) => frame < 0);
      if (space && !space.closed) this.#preemption.goOn(space);
    }
  }
}

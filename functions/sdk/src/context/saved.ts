import type { LeaseEnd, Tier, Residency as WireResidency } from 'pie:inferlet/allocate@0.1.0';
import { sleep } from '../io/inferlet.ts';
import { allocate, Queue, settle } from '../raw.ts';
import { model } from './models.ts';

export type { LeaseEnd, Tier } from 'pie:inferlet/allocate@0.1.0';

/** Location of the pages of a saved context, and its lease. */
export interface Residency extends Omit<WireResidency, 'bytes'> {
  /** Bytes of all keys and values. */
  readonly bytes: number;
}

/**
 * Controls the location (device, memory or disk) of the pages of a context that `Context.save` stored under a name. Most calls return the
 * location afterwards. No call changes the saved content, and none makes another inferlet wait for memory. Each call throws `not-found`
 * when no context has this name, and `unsupported` for a name of operators (`system/…`).
 *
 * @example
 * const rules = new SavedContext('rules');
 * await rules.pin(10 * 60_000);
 */
export class SavedContext {
  readonly name: string;
  readonly #model: string;

  /** @param options.model one of the models granted to the function; the function's default model if omitted */
  constructor(name: string, options: { readonly model?: string } = {}) {
    this.name = name;
    this.#model = model(options.model).name;
  }

  /** The location of the pages, the time that the lease still lasts, and the reason for the end of the last lease. */
  residency(): Promise<Residency> {
    return this.#ask((queue) => allocate.exportResidency(queue, this.name));
  }

  /**
   * Brings the pages to the device as far as there is room, and keeps them there for `leaseMs`, even after this inferlet has ended. The lease
   * ends early when a running inferlet needs the memory. A later call replaces the lease. Throws `limit-exceeded` when the context is larger
   * than the tenant may ever pin, and `unavailable` when the tenant may not pin that much now.
   * @param leaseMs 1 ms to 1 hour
   */
  pin(leaseMs: number): Promise<Residency> {
    return this.#ask((queue) => allocate.pinExport(queue, this.name, leaseMs));
  }

  /**
   * Waits until the lease has ended, and returns the reason: `expired`, or `pressure` when the memory was needed before the lease ran out. Returns
   * null before the first lease, and when {@link unpin} has ended it. Asks for the residency once every `everyMs`.
   */
  async leaseEnd({ everyMs = 1000 }: { readonly everyMs?: number } = {}): Promise<LeaseEnd | null> {
    for (;;) {
      const { leaseMs, leaseEnded } = await this.residency();
      if (leaseMs === 0) return leaseEnded;
      await sleep(Math.min(leaseMs, everyMs));
    }
  }

  /** Ends the lease. */
  unpin(): Promise<Residency> {
    return this.#ask((queue) => allocate.unpinExport(queue, this.name));
  }

  /** Hints that the context will be opened in `nextUseMs`: the tenant's contexts without a hint then leave the device first. 0 removes the hint. */
  retain(nextUseMs: number): Promise<Residency> {
    return this.#ask((queue) => allocate.retainExport(queue, this.name, nextUseMs));
  }

  /** Brings the pages to the device ahead of their use, as far as there is room. */
  prefetch(): Promise<Residency> {
    return this.#ask((queue) => allocate.prefetchExport(queue, this.name));
  }

  /**
   * Ends the lease and moves the pages off the device. On `disk` the pages count against no quota; this needs a context that was saved as
   * `persistent` (`unsupported` otherwise).
   */
  demote(tier: Exclude<Tier, 'device'> = 'memory'): Promise<Residency> {
    return this.#ask((queue) => allocate.demoteExport(queue, this.name, tier));
  }

  /**
   * Copies the present content to the storage that the platform's machines share. The name can then be opened even while its GPU host is away
   * or after that host is lost. Removing the name removes the copy. Throws `unsupported` on a platform without shared storage, and
   * `limit-exceeded` beyond the tenant's share of the storage.
   */
  async makeDurable(): Promise<void> {
    using queue = new Queue(this.#model);
    await settle(allocate.makeDurable(queue, this.name));
  }

  async #ask(call: (queue: Queue) => ReturnType<typeof allocate.exportResidency>): Promise<Residency> {
    using queue = new Queue(this.#model);
    const residency = await settle(call(queue));
    return { ...residency, bytes: Number(residency.bytes) };
  }
}

import type { Store } from '../store/store.ts';
import type { Admission } from './admission.ts';

/** Invocations that wait for a runtime: in their tenant's queue, or admitted and not yet fetched. */
export class AdmissionQueue {
  readonly #store: Store;
  readonly #admission: Admission;

  constructor(store: Store, admission: Admission) {
    this.#store = store;
    this.#admission = admission;
  }

  /** Counts the invocations that wait and those that runtimes hold. */
  async depth(): Promise<{ readonly waiting: number; readonly active: number }> {
    const { jobs } = this.#store.keys;
    const [tenants, admitted, active] = await Promise.all([
      this.#admission.tenants(),
      this.#admitted(),
      this.#store.call((redis) => redis.llen(`${jobs}:active`)),
    ]);
    return { waiting: tenants.reduce((sum, { waiting }) => sum + waiting, admitted.length), active };
  }

  /** Ids of waiting invocations: first the admitted ones in fetch order, then those in the queue by arrival. */
  async waiting(limit = 100): Promise<string[]> {
    const { waiting } = this.#store.keys;
    const [admitted, tenants] = await Promise.all([this.#admitted(), this.#admission.tenants()]);
    const queues = await Promise.all(
      tenants.map(({ tenant }) =>
        this.#store.call((redis) => redis.zrange(waiting(tenant), '0', `${limit - 1}`, 'WITHSCORES')),
      ),
    );
    const queued = queues.flatMap((queue) =>
      queue.flatMap((id, i) => (i % 2 === 0 ? [{ id, arrival: Number(queue[i + 1]) }] : [])),
    );
    queued.sort((a, b) => a.arrival - b.arrival);
    return [...admitted, ...queued.map(({ id }) => id)].slice(0, limit);
  }

  /** Ids of invocations on their way to runtimes, the next one first. */
  async #admitted(): Promise<string[]> {
    const wait = `${this.#store.keys.jobs}:wait`;
    return (await this.#store.call((redis) => redis.lrange(wait, 0, -1))).reverse();
  }
}

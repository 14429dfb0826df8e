import type { Store } from '../store/store.ts';
import type { Admission } from './admission.ts';

/** Lists the invocations that wait for a runtime: those in their tenant's queue, and the admitted ones that no runtime has fetched yet. */
export class AdmissionQueue {
  readonly #store: Store;
  readonly #admission: Admission;

  constructor(store: Store, admission: Admission) {
    this.#store = store;
    this.#admission = admission;
  }

  /** Numbers of invocations that wait for a runtime (`waiting`), and that runtimes hold (`active`). */
  async depth(): Promise<{ readonly waiting: number; readonly active: number }> {
    const { jobs } = this.#store.keys;
    const [tenants, admitted, active] = await Promise.all([
      this.#admission.tenants(),
      this.#admittedIds(),
      this.#store.call((redis) => redis.llen(`${jobs}:active`)),
    ]);
    return { waiting: tenants.reduce((sum, { waiting }) => sum + waiting, admitted.length), active };
  }

  /** Ids of waiting invocations: first the admitted ones in fetch order, then those in all tenants' queues by arrival. */
  async waiting(limit = 100): Promise<string[]> {
    const { waiting } = this.#store.keys;
    const [admitted, tenants] = await Promise.all([this.#admittedIds(), this.#admission.tenants()]);
    const queues = await Promise.all(
      tenants.map(({ tenant }) =>
        this.#store.call((redis) => redis.zrange(waiting(tenant), '0', `${limit - 1}`, 'WITHSCORES')),
      ),
    );
    // With WITHSCORES, each id is followed by its score, the arrival.
    const queued = queues.flatMap((queue) =>
      queue.flatMap((id, i) => (i % 2 === 0 ? [{ id, arrival: Number(queue[i + 1]) }] : [])),
    );
    queued.sort((a, b) => a.arrival - b.arrival);
    return [...admitted, ...queued.map(({ id }) => id)].slice(0, limit);
  }

  /** Ids of admitted invocations that no runtime has fetched yet, in fetch order. */
  async #admittedIds(): Promise<string[]> {
    const wait = `${this.#store.keys.jobs}:wait`;
    return (await this.#store.call((redis) => redis.lrange(wait, 0, -1))).reverse();
  }
}

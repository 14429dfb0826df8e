import type { Store } from '../store/store.ts';
import type { Admission } from './admission.ts';

/** What waits for a runtime: in its tenant's line, or admitted and not yet fetched. */
export class AdmissionQueue {
  readonly #store: Store;
  readonly #admission: Admission;

  constructor(store: Store, admission: Admission) {
    this.#store = store;
    this.#admission = admission;
  }

  /** How many wait, and how many are in the hands of runtimes. */
  async depth(): Promise<{ readonly waiting: number; readonly active: number }> {
    const { jobs } = this.#store.keys;
    const [tenants, admitted, active] = await Promise.all([
      this.#admission.tenants(),
      this.#admitted(),
      this.#store.call((redis) => redis.llen(`${jobs}:active`)),
    ]);
    return { waiting: tenants.reduce((sum, { waiting }) => sum + waiting, admitted.length), active };
  }

  /** Ids of waiting invocations: those that are admitted in the order in which they are fetched, then those in line by arrival. */
  async waiting(limit = 100): Promise<string[]> {
    const { waiting } = this.#store.keys;
    const [admitted, tenants] = await Promise.all([this.#admitted(), this.#admission.tenants()]);
    const lines = await Promise.all(
      tenants.map(({ tenant }) =>
        this.#store.call((redis) => redis.zrange(waiting(tenant), '0', `${limit - 1}`, 'WITHSCORES')),
      ),
    );
    const inLine = lines.flatMap((line) =>
      line.flatMap((id, i) => (i % 2 === 0 ? [{ id, arrival: Number(line[i + 1]) }] : [])),
    );
    inLine.sort((a, b) => a.arrival - b.arrival);
    return [...admitted, ...inLine.map(({ id }) => id)].slice(0, limit);
  }

  /** Those on their way to runtimes, next ones first. */
  async #admitted(): Promise<string[]> {
    const wait = `${this.#store.keys.jobs}:wait`;
    return (await this.#store.call((redis) => redis.lrange(wait, 0, -1))).reverse();
  }
}

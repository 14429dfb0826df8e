import { unexpected } from '../invocations/replies.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import { LEARNED_MS, MEMORY, type Peak, peakPairs } from './job.ts';

const ADMIT = loadScript(new URL('./admission.lua', import.meta.url), 'admit');
const OVERVIEW = loadScript(new URL('./admission.lua', import.meta.url), 'overview');
const REPAIR = loadScript(new URL('./admission.lua', import.meta.url), 'repair');
const OBSERVE = loadScript(new URL('./admission.lua', import.meta.url), 'observe-pages');

/** Maximum number of invocations that one script call admits (`MAX_STARTS` of rules.lua). When a call reaches it, `admit` makes another. */
const MAX_STARTS = 256;
/** Minimum time between two checks of the ledger (the list of admitted invocations), over all processes: the first call after it makes a check. */
const REPAIR_INTERVAL_MS = 5000;

/** A tenant that has invocations waiting or admitted. */
export interface TenantLoad {
  readonly tenant: string;
  /** Invocations in its queue. */
  readonly waiting: number;
  /** Admitted invocations: in a runtime, or on the way to one. */
  readonly running: number;
  readonly weight: number;
}

/** Capacity that the platform's runtimes offer, and the part that admitted invocations use. */
export interface PlatformCapacity {
  readonly slots: number;
  readonly usedSlots: number;
  /** For each model, KV pages of all GPU hosts times `overcommit`, and the pages that all admitted invocations are expected to hold. */
  readonly models: readonly { readonly model: string; readonly pages: number; readonly usedPages: number }[];
  /** Runtime memory, and the memory that all admitted invocations are expected to take; null while no runtime sets a bound. */
  readonly memory: { readonly totalMb: number; readonly usedMb: number } | null;
}

/** Faults that a ledger check found. All are zero unless Redis lost acknowledged writes or the platform has a bug. */
export interface Repairs {
  /** Number of removed ledger entries, whose invocations have ended or are unknown. */
  readonly dropped: number;
  /** Number of queued invocations that were in none of the lists where they belong, and that the check put back into their queues. */
  readonly returned: number;
  /** Number of corrected sums (of slots or pages, of the platform or a tenant): they did not equal the sum over the ledger's entries. */
  readonly sums: number;
  /** Ids of queued invocations that have no job, so that no runtime can run them. */
  readonly lost: readonly string[];
}

/**
 * Admission over all runtimes: fair among tenants by weight, first come first served inside each, within slots, KV pages and memory.
 * `AdmissionPolicy` states the rules. The scripts apply them in the step that makes a change (an invocation comes or ends, a runtime comes
 * or goes), so no process polls. Call the methods here for other changes.
 */
export class Admission {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /**
   * Admits every invocation that may start. Returns the number of admitted invocations.
   *
   * @param tenant the tenant whose limits changed; `*` for all tenants, empty for none
   */
  async admit(tenant = ''): Promise<number> {
    let admitted = 0;
    let first = true;
    for (;;) {
      // `settling` is 1 while a change that concerns all tenants has not reached each of them: one call of the script handles only some.
      const [started, settling] = (await this.#run(ADMIT, first ? tenant : '')).map(Number);
      first = false;
      admitted += started ?? 0;
      if ((started ?? 0) < MAX_STARTS && settling !== 1) return admitted;
    }
  }

  /** Tenants that have invocations waiting or admitted, sorted by name. */
  async tenants(): Promise<TenantLoad[]> {
    const reply = await this.#run(OVERVIEW);
    const tenants: TenantLoad[] = [];
    for (let i = 0; i < reply.length; i += 4) {
      const [tenant, waiting, running, weight] = reply.slice(i, i + 4);
      tenants.push({
        tenant: String(tenant),
        waiting: Number(waiting),
        running: Number(running),
        weight: Number(weight),
      });
    }
    return tenants.sort((a, b) => (a.tenant < b.tenant ? -1 : 1));
  }

  async capacity(): Promise<PlatformCapacity> {
    const { admission } = this.#store.keys;
    const [total, used] = await Promise.all(
      ['capacity', 'state'].map((part) => this.#store.call((redis) => redis.hgetall(`${admission}:${part}`))),
    );
    const models = new Map<string, { readonly model: string; pages: number; usedPages: number }>();
    for (const [field, pages] of Object.entries(total ?? {})) {
      // `pages:<model>`, or `pages:<model>@<host>` for each of several hosts.
      const model = /^pages:([^@]+)/.exec(field)?.[1];
      if (model === undefined || model === MEMORY) continue;
      const sum = models.get(model) ?? { model, pages: 0, usedPages: 0 };
      models.set(model, sum);
      sum.pages += Number(pages);
      sum.usedPages += Number(used?.[field] ?? 0);
    }
    const totalMb = total?.[`pages:${MEMORY}`];
    return {
      slots: Number(total?.slots ?? 0),
      usedSlots: Number(used?.slots ?? 0),
      models: [...models.values()],
      memory:
        totalMb === undefined ? null : { totalMb: Number(totalMb), usedMb: Number(used?.[`pages:${MEMORY}`] ?? 0) },
    };
  }

  /**
   * Records the peak of a run, from which admission learns the expected pages and memory of the version's next run. Call it only for a run
   * that did not end its invocation: `Invocations.finish` records the peak of one that did.
   */
  async observe(
    job: { readonly tenant: string; readonly function: string; readonly version: string },
    peak: Peak,
  ): Promise<void> {
    const key = this.#store.keys.learnedPages(job.tenant, job.function, job.version);
    await this.#store.script(OBSERVE, [key], [LEARNED_MS, ...peakPairs(peak)]);
  }

  /**
   * Checks the ledger against the invocations and repairs it. A check covers all admitted invocations and a few hundred of the others that have
   * not ended; the next check goes on after these. Returns null, without a check, when another call made one within the interval.
   */
  async repair(intervalMs = REPAIR_INTERVAL_MS): Promise<Repairs | null> {
    const reply = await this.#run(REPAIR, intervalMs);
    if (reply.length === 0) return null;
    const [dropped, returned, sums, ...lost] = reply;
    return { dropped: Number(dropped), returned: Number(returned), sums: Number(sums), lost: lost.map(String) };
  }

  async #run(script: typeof ADMIT, ...args: (string | number)[]): Promise<unknown[]> {
    const { keys, clock } = this.#store;
    const reply = await this.#store.script(script, [keys.admissionState], [keys.prefix, clock(), ...args]);
    if (!Array.isArray(reply)) throw unexpected(script.name, reply);
    return reply;
  }
}

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

import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/scripts.ts';
import type { Store } from '../store/store.ts';
import { MEMORY } from './policy.ts';

const ADMIT = loadScript(new URL('./scripts/admit.lua', import.meta.url));
const OVERVIEW = loadScript(new URL('./scripts/overview.lua', import.meta.url));
const REPAIR = loadScript(new URL('./scripts/repair.lua', import.meta.url));
const OBSERVE = loadScript(new URL('./scripts/observe-pages.lua', import.meta.url));

/** One script admits no more (`MAX_STARTS` of admission.lua); then it is called again. */
const MAX_STARTS = 256;
/** What was learned of a version that runs no more is forgotten after this. */
const LEARNED_MS = 30 * 86_400_000;
/** How often the ledger is held against the invocations; of all that ask, one does it. */
export const REPAIR_INTERVAL_MS = 5000;

/** A tenant with invocations that wait or are admitted. */
export interface TenantLoad {
  readonly tenant: string;
  /** In its line. */
  readonly waiting: number;
  /** Admitted: in a runtime, or on the way to one. */
  readonly running: number;
  readonly weight: number;
}

/** What the platform's runtimes offer, and what is admitted of it. */
export interface PlatformCapacity {
  readonly slots: number;
  readonly usedSlots: number;
  /** KV pages, `overcommit` included, and what is expected of all that is admitted. */
  readonly models: readonly { readonly model: string; readonly pages: number; readonly usedPages: number }[];
  /** Memory of the runtimes, and what is expected of all that is admitted; null while no runtime bounds its own. */
  readonly memory: { readonly totalMb: number; readonly usedMb: number } | null;
}

/** What a run held at most, children included. */
export interface Peak {
  /** KV pages by model. */
  readonly pages: Readonly<Record<string, number>>;
  readonly memoryMb: number;
}

/** What a look at the ledger found: all zero but after Redis has lost what it had acknowledged, or a fault of the platform. */
export interface Repairs {
  /** Entries of invocations that have ended or are unknown. */
  readonly dropped: number;
  /** Queued invocations that stood nowhere and are back in their lines. */
  readonly returned: number;
  /** Sums that did not equal their entries. */
  readonly sums: number;
  /** Queued invocations without a job: nothing can run them. */
  readonly lost: readonly string[];
}

/**
 * Who is admitted, over all runtimes: fair among tenants by their weights, first come first served inside each, within slots and expected KV
 * pages. `AdmissionPolicy` says the rules; the scripts of this folder follow them inside of what changes anything (an invocation comes or ends,
 * a runtime comes or goes), so nobody polls. These calls are for what else changes.
 */
export class Admission {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /**
   * Works the platform's capacity out anew and admits whoever may start. Answers how many.
   *
   * @param tenant whose limits have changed; `*` for any.
   */
  async admit(tenant = ''): Promise<number> {
    let admitted = 0;
    let first = true;
    for (;;) {
      const [started, settling] = list(await this.#run(ADMIT, first ? tenant : '')).map(Number);
      first = false;
      admitted += started ?? 0;
      if ((started ?? 0) < MAX_STARTS && settling !== 1) return admitted;
    }
  }

  /** Tenants with invocations that wait or are admitted, by name. */
  async tenants(): Promise<TenantLoad[]> {
    const reply = list(await this.#run(OVERVIEW));
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

  /** What there is, and what is admitted of it. */
  async capacity(): Promise<PlatformCapacity> {
    const { admission } = this.#store.keys;
    const [total, used] = await Promise.all(
      ['capacity', 'state'].map((part) => this.#store.call((redis) => redis.hgetall(`${admission}:${part}`))),
    );
    const models = new Map<string, { readonly model: string; pages: number; usedPages: number }>();
    for (const [field, pages] of Object.entries(total ?? {})) {
      // `pages:<model>`, or `pages:<model>@<host>` for each of several.
      const model = /^pages:([^@]+)/.exec(field)?.[1];
      if (model === undefined || model === MEMORY) continue;
      const sum = models.get(model) ?? { model, pages: 0, usedPages: 0 };
      models.set(model, sum);
      sum.pages += Number(pages);
      sum.usedPages += Number(used?.[field] ?? 0);
    }
    const totalMb = total?.[`pages:${MEMORY}`];
    return {
      ...{ slots: Number(total?.slots ?? 0), usedSlots: Number(used?.slots ?? 0), models: [...models.values()] },
      memory:
        totalMb === undefined ? null : { totalMb: Number(totalMb), usedMb: Number(used?.[`pages:${MEMORY}`] ?? 0) },
    };
  }

  /** What a run of a function version held at most: from this the next one's expected pages and memory are learned. */
  async observe(
    job: { readonly tenant: string; readonly function: string; readonly version: string },
    peak: Peak,
  ): Promise<void> {
    const key = this.#store.keys.learnedPages(job.tenant, job.function, job.version);
    const held = Object.entries({ ...peak.pages, [MEMORY]: peak.memoryMb });
    const pairs = held.flatMap(([model, pages]) => [model, Math.max(0, Math.ceil(pages))]);
    await this.#store.script(OBSERVE, [key], [LEARNED_MS, ...pairs]);
  }

  /**
   * Holds the ledger against the invocations, and puts right what does not fit. Every call looks at all that is admitted and at the next part
   * of what has not ended; null when another process did so within the interval.
   */
  async repair(intervalMs = REPAIR_INTERVAL_MS): Promise<Repairs | null> {
    const reply = list(await this.#run(REPAIR, intervalMs));
    if (reply.length === 0) return null;
    const [dropped, returned, sums, ...lost] = reply;
    return { dropped: Number(dropped), returned: Number(returned), sums: Number(sums), lost: lost.map(String) };
  }

  #run(script: typeof ADMIT, ...args: (string | number)[]): Promise<unknown> {
    const { keys, clock } = this.#store;
    return this.#store.script(script, [`${keys.admission}:state`], [keys.prefix, clock(), ...args]);
  }
}

function list(reply: unknown): unknown[] {
  if (!Array.isArray(reply)) throw new StoreError('store-corrupt', `Admission answered ${JSON.stringify(reply)}.`);
  return reply;
}

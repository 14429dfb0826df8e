import { randomBytes } from 'node:crypto';
import type { ActiveJobs } from '../admission/active-jobs.ts';
import type { Invocations } from '../invocations/invocations.ts';
import { StoreError } from '../store/errors.ts';
import type { Store } from '../store/store.ts';
import type { Vital } from '../store/vital.ts';
import { LEASE_MS, RuntimeLease, unregister } from './lease.ts';
import type { Recovery, RuntimeDescription, RuntimeInfo, RuntimeLoad } from './types.ts';

type StoredRuntime = Omit<RuntimeInfo, 'alive' | 'load'>;

/** The runtimes that are there: each holds a lease that it renews; who does not is dead. */
export class Runtimes {
  readonly #store: Store;
  readonly #active: ActiveJobs;
  readonly #invocations: Invocations;
  readonly #vital: Vital;
  readonly #leaseMs: number;

  /**
   * @param vital for leases.
   * @param leaseMs how long a lease holds; the same in every process.
   */
  constructor(store: Store, active: ActiveJobs, invocations: Invocations, vital: Vital, leaseMs = LEASE_MS) {
    this.#store = store;
    this.#vital = vital;
    this.#active = active;
    this.#invocations = invocations;
    this.#leaseMs = leaseMs;
  }

  /**
   * Registers this process as a runtime. What an earlier process of the same name left behind is recovered first, so a restart is the
   * fast path: nobody waits for the old lease to run out.
   */
  async acquire(description: RuntimeDescription): Promise<RuntimeLease> {
    for (const predecessor of await this.list()) {
      if (predecessor.name === description.name) await this.recover(predecessor.id);
    }
    const runtime: StoredRuntime = {
      ...description,
      id: `${description.name}~${randomBytes(6).toString('hex')}`,
      startedAt: this.#store.clock(),
    };
    const lease = new RuntimeLease(this.#vital.store, runtime, this.#leaseMs);
    await lease.start();
    return lease;
  }

  /** Registered runtimes, alive or not yet recovered. */
  async list(): Promise<RuntimeInfo[]> {
    const { keys } = this.#store;
    const stored = await this.#store.call((redis) => redis.hgetall(keys.runtimes));
    return Promise.all(
      Object.entries(stored).map(async ([id, text]) => {
        const load = await this.#store.call((redis) => redis.get(keys.alive(id)));
        return {
          ...parse<StoredRuntime>(text),
          alive: load !== null,
          load: load === null ? null : parse<RuntimeLoad>(load),
        };
      }),
    );
  }

  /** Where a runtime shows events before they are in the log; null when it shows none, or is not registered. */
  async liveAddress(runtimeId: string): Promise<string | null> {
    const text = await this.#store.call((redis) => redis.hget(this.#store.keys.runtimes, runtimeId));
    return text === null ? null : (parse<StoredRuntime>(text).live ?? null);
  }

  /** Ids of registered runtimes whose lease has run out, whatever else is known of them. */
  async dead(): Promise<string[]> {
    const { keys } = this.#store;
    const ids = await this.#store.call((redis) => redis.hkeys(keys.runtimes));
    const leases = await Promise.all(ids.map((id) => this.#store.call((redis) => redis.exists(keys.alive(id)))));
    return ids.filter((_, i) => leases[i] === 0);
  }

  /** Runtimes whose lease holds. */
  async alive(): Promise<RuntimeInfo[]> {
    return (await this.list()).filter(({ alive }) => alive);
  }

  /**
   * Takes everything that a dead runtime had out of its hands: invocations that had not begun go back to their places in line, restartable
   * ones as well in a new epoch, the others end with `runtime-lost`, and so does every child: it belongs to an attempt. May be called by
   * several at once, and for a runtime that was slow rather than dead: that one can write no more, and learns of it when it renews its lease.
   */
  async recover(runtimeId: string): Promise<Recovery> {
    await unregister(this.#store, runtimeId);
    const recovery = await this.#take((job) => job.runtimeId === runtimeId);
    await this.#loseChildren((owner) => owner === runtimeId);
    return recovery;
  }

  /** Recovers active jobs and children whose runtime is not registered: it took them after it had been declared dead. */
  async recoverOrphans(): Promise<Recovery> {
    const [before, children] = await Promise.all([this.#active.list(), this.#invocations.children()]);
    if (before.length === 0 && children.size === 0) return { waiting: 0, failed: 0, cancelled: 0, dropped: 0 };
    const registered = new Set(await this.#store.call((redis) => redis.hkeys(this.#store.keys.runtimes)));
    const orphans = new Set(
      before.filter((job) => job.runtimeId === null || !registered.has(job.runtimeId)).map(({ id }) => id),
    );
    const recovery = await this.#take(
      (job) => orphans.has(job.id) && (job.runtimeId === null || !registered.has(job.runtimeId)),
    );
    const dead = new Set([...children.values()].filter((owner) => !registered.has(owner)));
    await this.#loseChildren((owner) => dead.has(owner));
    return recovery;
  }

  /**
   * Ends all children of which `lost` is true of their runtime and whose parents have ended: from one generation to the next, until there
   * are none. A runtime that is slow rather than dead may launch more meanwhile, for parents that have not ended yet, and once it has
   * registered again it has new ones of living parents, which are its own.
   */
  async #loseChildren(lost: (runtimeId: string) => boolean): Promise<void> {
    for (;;) {
      const theirs = [...(await this.#invocations.children())].filter(([, runtimeId]) => lost(runtimeId));
      const ended = await Promise.all(theirs.map(([id, runtimeId]) => this.#invocations.loseChild(id, runtimeId)));
      if (!ended.includes(true)) return;
    }
  }

  async #take(which: (job: { id: string; runtimeId: string | null }) => boolean): Promise<Recovery> {
    const jobs = (await this.#active.list()).filter(which);
    const outcomes = await Promise.all(
      jobs.map(({ id, runtimeId }) => (runtimeId === null ? 'not-held' : this.#active.lost(id, runtimeId))),
    );
    const count = (outcome: string) => outcomes.filter((value) => value === outcome).length;
    return {
      waiting: count('waiting'),
      failed: count('failed'),
      cancelled: count('cancelled'),
      dropped: count('dropped'),
    };
  }
}

function parse<T>(text: string): T {
  try {
    return JSON.parse(text) as T;
  } catch (cause) {
    throw new StoreError('store-corrupt', 'What a runtime stored of itself is no JSON.', { cause });
  }
}

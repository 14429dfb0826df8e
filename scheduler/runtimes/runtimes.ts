import { randomBytes } from 'node:crypto';
import type { ActiveJobs, HeldJob } from '../admission/active-jobs.ts';
import { type Loss, MAX_LOGGED_IDS, UNEXPLAINED } from '../invocations/endings.ts';
import type { Invocations } from '../invocations/invocations.ts';
import type { LiveAddress } from '../live/live.ts';
import { readLooks } from '../machines/machines.ts';
import type { Logger } from '../policies/logger.ts';
import { lookAt, type ProcessEnd, type ProcessLook } from '../policies/silence.ts';
import type { Vital } from '../store/channels.ts';
import { StoreError } from '../store/errors.ts';
import type { Store } from '../store/store.ts';
import { LEASE_MS, RuntimeLease, unregister } from './lease.ts';
import type { Recovery, RuntimeDescription, RuntimeInfo, RuntimeLoad } from './types.ts';

type StoredRuntime = Omit<RuntimeInfo, 'alive' | 'load'>;

/** The registered runtimes. Each renews a lease; a runtime whose lease has run out is dead. */
export class Runtimes {
  readonly #store: Store;
  readonly #active: ActiveJobs;
  readonly #invocations: Invocations;
  readonly #vital: Vital;
  readonly #leaseMs: number;
  readonly #log: Logger;
  readonly #onRecovered: (runtimeId: string) => Promise<void>;

  /**
   * @param vital connections that the leases use.
   * @param options.leaseMs how long a lease holds; the same in every process.
   * @param options.onRecovered called after each recovery: gives up what else the runtime held.
   */
  constructor(
    store: Store,
    active: ActiveJobs,
    invocations: Invocations,
    vital: Vital,
    {
      leaseMs = LEASE_MS,
      log,
      onRecovered = async () => undefined,
    }: {
      readonly leaseMs?: number;
      readonly log: Logger;
      readonly onRecovered?: (runtimeId: string) => Promise<void>;
    },
  ) {
    this.#onRecovered = onRecovered;
    this.#store = store;
    this.#vital = vital;
    this.#active = active;
    this.#invocations = invocations;
    this.#leaseMs = leaseMs;
    this.#log = log;
  }

  /**
   * Registers this process as a runtime. It first recovers the jobs of an earlier process of the same name, so those jobs need not wait
   * until the old lease runs out.
   */
  async acquire(description: RuntimeDescription): Promise<RuntimeLease> {
    for (const predecessor of await this.list()) {
      if (predecessor.name !== description.name) continue;
      const seen = await this.look(predecessor.id);
      const ended = seen && 'why' in seen ? seen : undefined;
      const loss = ended
        ? { why: `it ended: ${ended.why}`, silentMs: ended.silentMs }
        : { why: 'another process has taken its name' };
      await this.recover(predecessor.id, loss);
    }
    const runtime: StoredRuntime = {
      ...description,
      id: `${description.name}~${randomBytes(6).toString('hex')}`,
      startedAt: this.#store.clock(),
    };
    const lease = new RuntimeLease(this.#vital.store, runtime, this.#leaseMs, this.#log);
    await lease.start();
    return lease;
  }

  /** Registered runtimes: alive, or dead and not recovered yet. */
  async list(): Promise<RuntimeInfo[]> {
    const { keys } = this.#store;
    const storedRuntimes = Object.entries(await this.#store.call((redis) => redis.hgetall(keys.runtimes)));
    if (storedRuntimes.length === 0) return [];
    const loads = await this.#store.call((redis) => redis.mget(storedRuntimes.map(([id]) => keys.alive(id))));
    return storedRuntimes.map(([, text], i) => {
      const load = loads[i] ?? null;
      return {
        ...parse<StoredRuntime>(text),
        alive: load !== null,
        load: load === null ? null : parse<RuntimeLoad>(load),
      };
    });
  }

  /**
   * Address at which a runtime sends events before they are in the log: its local socket when it runs on `machine`, else its network address.
   * Null when the runtime has no such address, or is not registered.
   */
  async liveAddress(runtimeId: string, machine?: string): Promise<LiveAddress | null> {
    const text = await this.#store.call((redis) => redis.hget(this.#store.keys.runtimes, runtimeId));
    if (text === null) return null;
    const runtime = parse<StoredRuntime>(text);
    const isHere = runtime.machine === machine;
    const address = isHere ? runtime.live : runtime.liveAt;
    if (address === undefined) return null;
    return { address, ...(!isHere && runtime.machine !== undefined && { machine: runtime.machine }) };
  }

  /** What the supervisor of its machine last saw of a runtime's process; undefined without a valid look, and for a broken description. */
  async look(runtimeId: string): Promise<ProcessLook | ProcessEnd | undefined> {
    try {
      const text = await this.#store.call((redis) => redis.hget(this.#store.keys.runtimes, runtimeId));
      if (text === null) return undefined;
      const { machine, pid } = parse<StoredRuntime>(text);
      if (machine === undefined || pid === undefined) return undefined;
      return lookAt(await readLooks(this.#store, machine), (process) => process.pid === pid);
    } catch (error) {
      if (StoreError.from(error).code !== 'store-corrupt') throw error;
      return undefined;
    }
  }

  /** Runtimes whose lease holds. */
  async alive(): Promise<RuntimeInfo[]> {
    return (await this.list()).filter(({ alive }) => alive);
  }

  /**
   * Recovers all invocations of a dead runtime. Three kinds go back to their places in the queue, in a new epoch: restartable ones, those that had
   * not begun, and those whose attempt had not reached the runtime. The others end with `runtime-lost`, as does every child, because a child
   * belongs to one attempt. Several processes may recover the same runtime at once. A runtime that was slow rather than dead can write nothing
   * more, and learns of the recovery when it renews its lease or changes its description.
   *
   * The log gets one record for the runtime, with the ids of its first invocations, and one for each invocation that ends.
   *
   * @param loss why the runtime counts as lost; clients and the log get the reason
   * @param onlyDead true to do nothing when the runtime's lease holds: since the runtime was found dead, it has renewed the lease, or another
   *   process has recovered it and it has registered again.
   */
  async recover(runtimeId: string, loss: Loss = UNEXPLAINED, onlyDead = false): Promise<Recovery> {
    const unregistered = await unregister(this.#store, runtimeId, onlyDead);
    // The lease holds: no job is recovered, and all counts are 0.
    if (unregistered === null) return this.#recoverJobs([], loss);
    const { wasRegistered, jobs } = unregistered;
    if (wasRegistered)
      this.#log.warn(
        {
          runtime: runtimeId,
          ...loss,
          count: jobs.length,
          invocations: jobs.slice(0, MAX_LOGGED_IDS).map(({ id }) => id),
        },
        'a runtime is lost; its invocations end or start again',
      );
    try {
      return await this.#recoverJobs(jobs, loss);
    } finally {
      await this.#loseChildren((owner) => owner === runtimeId, loss);
      await this.#onRecovered(runtimeId);
    }
  }

  /**
   * Recovers active jobs and children whose runtime is not registered: the runtime took them after it was declared dead. Ends the children that
   * a recovery left behind when it broke off. Resolves to null when another process looked for them within the interval.
   */
  async recoverOrphans(intervalMs = 0): Promise<Recovery | null> {
    const orphans = await this.#active.orphans(intervalMs);
    if (orphans === null) return null;
    const owners = new Set(orphans.children.map(({ runtimeId }) => runtimeId));
    try {
      return await this.#recoverJobs(orphans.jobs, ORPHANED);
    } finally {
      if (owners.size > 0) await this.#loseChildren((owner) => owners.has(owner), ORPHANED);
    }
  }

  /**
   * Ends the children whose runtime satisfies `isLost` and whose parents have ended, one generation after another, until none is left. Each pass
   * reads the children anew, since a slow runtime may still launch some for parents that have not ended. Children of running parents stay: a
   * runtime that has registered again goes on with them.
   */
  async #loseChildren(isLost: (runtimeId: string) => boolean, loss: Loss): Promise<void> {
    for (;;) {
      const lostChildren = [...(await this.#invocations.children())].filter(([, runtimeId]) => isLost(runtimeId));
      const results = await Promise.allSettled(
        lostChildren.map(([id, runtimeId]) => this.#invocations.loseChild(id, runtimeId, loss)),
      );
      if (results.some((one) => one.status === 'fulfilled' && one.value)) continue;
      // Throws the first failure.
      values(results);
      return;
    }
  }

  /**
   * Takes jobs from runtimes that were not registered when the jobs were listed. Since then, a runtime may have registered again and fetched one of
   * the jobs again: the token tells the new attempt from the lost one. A job that cannot be taken does not stop the others.
   */
  async #recoverJobs(jobs: readonly HeldJob[], loss: Loss): Promise<Recovery> {
    const results = await Promise.allSettled(
      jobs.map(({ id, runtimeId, fetchToken }) => this.#active.lost(id, runtimeId, fetchToken, loss)),
    );
    const outcomes = values(results);
    const count = (outcome: string) => outcomes.filter((value) => value === outcome).length;
    return {
      waiting: count('waiting'),
      failed: count('failed'),
      cancelled: count('cancelled'),
      dropped: count('dropped'),
    };
  }
}

const ORPHANED: Loss = { why: 'it took them after it had been declared lost' };

/** The values of calls that have all ended. @throws the error of the first call that failed */
function values<T>(outcomes: readonly PromiseSettledResult<T>[]): T[] {
  return outcomes.map((outcome) => {
    if (outcome.status === 'rejected') throw outcome.reason;
    return outcome.value;
  });
}

function parse<T>(text: string): T {
  try {
    return JSON.parse(text) as T;
  } catch (cause) {
    throw new StoreError('store-corrupt', 'The stored description of a runtime is not JSON.', { cause });
  }
}

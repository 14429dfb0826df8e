import { randomUUID } from 'node:crypto';
import type { HeldJob } from '../admission/active-jobs.ts';
import type { Logger } from '../policies/logger.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import type { RuntimeDescription, RuntimeLoad } from './types.ts';

/**
 * Length of a lease without renewal. Runtimes renew four times per lease and reapers check five times, so a late runtime is found within 3.6 s. It
 * loses its invocations unless its supervisor sees that its process lives (`policies/silence.ts`).
 */
export const LEASE_MS = 3000;
const RENEWALS_PER_LEASE = 4;

const RENEW = loadScript(new URL('./runtimes.lua', import.meta.url), 'renew');
const REGISTER = loadScript(new URL('./runtimes.lua', import.meta.url), 'register');
const UNREGISTER = loadScript(new URL('./runtimes.lua', import.meta.url), 'unregister');

/**
 * A runtime's lease. While it holds, the runtime counts as alive and may hold jobs. A renewal stores the runtime's load when it has changed. A runtime that
 * was declared dead by mistake learns of it at the next renewal or change of its description, settles its invocations, and continues with new work; a
 * successor of the same name recovers its predecessor at once.
 */
export class RuntimeLease {
  /** Unique to this run of the process; `beginAttempt` takes it. */
  readonly id: string;
  readonly #store: Store;
  #description: string;
  /** Length of the lease without renewal, ms. */
  readonly lengthMs: number;
  readonly #lostListeners = new Set<() => void>();
  /** Number of times that this runtime was declared dead and told its listeners. Several calls may find the same death; it counts once. */
  #deaths = 0;
  #timer: NodeJS.Timeout | undefined;
  #load: () => RuntimeLoad = () => ({ running: 0 });
  #isReleased = false;
  /** Revision of the description, and the last one that has reached Redis. */
  #revision = 0;
  #storedRevision = 0;
  /** The load that Redis holds; undefined while unknown. */
  #storedLoad: string | undefined;
  #answeredAt = performance.now();
  /**
   * Makes the next renewal store the description and the load again. After an outage this is needed: Redis may have lost the last ones, or may
   * receive older ones after them.
   */
  readonly #storeAgain = () => {
    this.#revision += 1;
    this.#storedLoad = undefined;
  };

  readonly #log: Logger;
  /** The last error that was reported; empty after a renewal that succeeded. */
  #reportedMessage = '';

  /** @param log gets the errors of renewals, except those of a Redis that cannot be reached */
  constructor(store: Store, description: RuntimeDescription & { readonly id: string }, leaseMs: number, log: Logger) {
    this.#store = store;
    this.#log = log;
    this.id = description.id;
    this.#description = JSON.stringify(description);
    this.lengthMs = leaseMs;
  }

  /** Registers the runtime and starts to renew its lease. */
  async start(): Promise<void> {
    await this.#register('new');
    this.#store.redis.on('ready', this.#storeAgain);
    this.#schedule();
  }

  /** Adds to the runtime's description, for example its models once the GPU hosts have answered. Admission uses the new description at once. */
  async describe(changes: Omit<Partial<RuntimeDescription>, 'name'>): Promise<void> {
    this.#description = JSON.stringify({ ...JSON.parse(this.#description), ...changes });
    this.#revision += 1;
    await this.#update();
  }

  /** Time at which Redis last answered a renewal, on the clock of `performance.now`. */
  get answeredAt(): number {
    return this.#answeredAt;
  }

  /** Time since Redis last answered a renewal, ms. */
  get #silentMs(): number {
    return Math.round(performance.now() - this.#answeredAt);
  }

  /** Sets the source of the load that each renewal stores. */
  reportLoad(load: () => RuntimeLoad): void {
    this.#load = load;
  }

  /**
   * Calls `listener` when this runtime was declared dead: other processes have taken over its invocations. The runtime registers again at
   * once, so the listener must stop those invocations before it returns.
   */
  onLost(listener: () => void): () => void {
    this.#lostListeners.add(listener);
    return () => this.#lostListeners.delete(listener);
  }

  /** Releases the lease. Jobs that the runtime still holds become orphans, so drain first. */
  async release(): Promise<void> {
    this.#isReleased = true;
    this.#store.redis.off('ready', this.#storeAgain);
    clearTimeout(this.#timer);
    await unregister(this.#store, this.id);
  }

  #schedule(): void {
    if (this.#isReleased) return;
    this.#timer = setTimeout(() => {
      this.#renew().finally(() => this.#schedule());
    }, this.lengthMs / RENEWALS_PER_LEASE);
  }

  async #renew(): Promise<void> {
    try {
      const deaths = this.#deaths;
      const isRegistered = await this.#prolong(JSON.stringify(this.#load()));
      const silentMs = this.#silentMs;
      this.#answeredAt = performance.now();
      if (!isRegistered) await this.#rejoin(deaths, silentMs);
      else if (!this.#isReleased && this.#storedRevision < this.#revision) await this.#update();
      this.#reportedMessage = '';
    } catch (cause) {
      // The next renewal tries again. While Redis is away, no reaper can declare this runtime dead.
      const error = StoreError.from(cause);
      if (error.code === 'store-unavailable' || error.message === this.#reportedMessage) return;
      this.#reportedMessage = error.message;
      this.#log.error({ error, runtime: this.id }, 'the lease of this runtime could not be renewed');
    }
  }

  /** Renews the lease, which may have run out; false when the runtime is not registered any more. */
  async #prolong(load: string): Promise<boolean> {
    const { keys } = this.#store;
    const aliveKey = keys.alive(this.id);
    try {
      // A lease that holds shows that the runtime is registered, since the script that unregisters a runtime ends its lease. So one plain command is
      // enough here: it takes a third of the time of `RENEW`. PEXPIRE writes less than SET to the append-only file.
      if (load === this.#storedLoad) {
        if (await this.#store.call((redis) => redis.pexpire(aliveKey, this.lengthMs))) return true;
      } else {
        this.#storedLoad = undefined;
        if (await this.#store.call((redis) => redis.set(aliveKey, load, 'PX', this.lengthMs, 'XX'))) {
          this.#storedLoad = load;
          return true;
        }
      }
    } catch (error) {
      // A full Redis refuses SET, but not `RENEW`.
      if (!StoreError.from(error).full) throw error;
    }
    // If the lease has run out, a recount of the platform's capacity may have left this runtime out. Only a registration adds it again.
    this.#storeAgain();
    return (await this.#store.script(RENEW, [keys.runtimes, aliveKey], [this.id, this.lengthMs, load])) === 1;
  }

  async #update(): Promise<void> {
    const deaths = this.#deaths;
    if (!(await this.#register('update'))) await this.#rejoin(deaths);
  }

  /**
   * Tells the listeners that this runtime was declared dead, and registers it again. When another call has done so for the same death, only
   * updates the description.
   *
   * @param deaths `#deaths` before the call that found this runtime not registered
   * @param silentMs time from the last renewal until that call
   */
  async #rejoin(deaths: number, silentMs = this.#silentMs): Promise<void> {
    if (this.#isReleased) return;
    if (deaths < this.#deaths) return this.#update();
    this.#deaths += 1;
    // The running invocations that end here are in the records of the listeners.
    this.#log.warn(
      { runtime: this.id, silentMs, leaseMs: this.lengthMs },
      'this runtime was declared lost, because it did not renew its lease in time; it registers again and takes new work',
    );
    for (const listener of [...this.#lostListeners]) listener();
    await this.#register('new');
  }

  /** False for an update of a runtime that is not registered any more. */
  async #register(mode: 'new' | 'update'): Promise<boolean> {
    const { keys, clock } = this.#store;
    const revision = this.#revision;
    const runtimeArgs = [this.id, this.lengthMs, JSON.stringify(this.#load()), this.#description];
    const args = [...runtimeArgs, keys.prefix, clock(), mode];
    try {
      const reply = await this.#store.script(REGISTER, [keys.runtimes, keys.alive(this.id)], args);
      if (reply !== 1) return false;
    } finally {
      // The load in Redis may be that of this call, and an earlier renewal may have set `#storedLoad` meanwhile.
      this.#storedLoad = undefined;
    }
    this.#storedRevision = Math.max(this.#storedRevision, revision);
    return true;
  }
}

/** Jobs that a runtime held when it was removed from the registered ones. */
export interface Unregistered {
  /** False when it was not registered any more, because another process has removed it. */
  readonly wasRegistered: boolean;
  readonly jobs: readonly HeldJob[];
}

/**
 * Removes a runtime from the registered ones. Returns the jobs that it holds; it can fetch others only once it has registered again.
 *
 * @param onlyDead true to do nothing, and to return null, when the runtime's lease holds
 */
export async function unregister(store: Store, runtimeId: string, onlyDead = false): Promise<Unregistered | null> {
  const { keys, clock } = store;
  const baseKeys = [keys.runtimes, keys.alive(runtimeId), keys.cancels(runtimeId), keys.reply(randomUUID())];
  const args = [runtimeId, keys.prefix, clock(), onlyDead ? 1 : 0, `${keys.jobs}:`];
  const reply = await store.script(UNREGISTER, [...baseKeys, keys.held(runtimeId)], args);
  if (!Array.isArray(reply)) return null;
  const [wasRegistered, ...pairs] = reply;
  const jobs = Array.from({ length: pairs.length / 2 }, (_, i) => ({
    id: String(pairs[2 * i]),
    runtimeId,
    fetchToken: String(pairs[2 * i + 1]),
  }));
  return { wasRegistered: wasRegistered === 1, jobs };
}

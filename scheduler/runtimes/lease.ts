import { loadScript } from '../store/scripts.ts';
import type { Store } from '../store/store.ts';
import type { RuntimeDescription, RuntimeLoad } from './types.ts';

/**
 * How long a lease holds without renewal. Leases are renewed four times as often and looked at five times as often, so the death of a
 * runtime is known within 2.4 s; an event loop that stands still for longer than the lease loses what it runs.
 */
export const LEASE_MS = 2000;
const RENEWALS_PER_LEASE = 4;

const RENEW = loadScript(new URL('./scripts/renew.lua', import.meta.url));
const REGISTER = loadScript(new URL('./scripts/register.lua', import.meta.url));
const UNREGISTER = loadScript(new URL('./scripts/unregister.lua', import.meta.url));

/** A runtime's lease. While it holds, the runtime counts as alive and may hold jobs. */
export class RuntimeLease {
  /** Unique to this run of the process; goes into `beginAttempt`. */
  readonly id: string;
  readonly #store: Store;
  #description: string;
  readonly #leaseMs: number;
  readonly #lost = new Set<() => void>();
  #timer: NodeJS.Timeout | undefined;
  #load: () => RuntimeLoad = () => ({ running: 0 });
  #released = false;
  /** How often it had something to say of itself, and what of that has reached Redis. */
  #words = 0;
  #said = 0;
  /** A Redis that was away may have lost what it was told last, or hear something earlier after it. */
  readonly #sayAgain = () => {
    this.#words += 1;
  };

  constructor(store: Store, description: RuntimeDescription & { readonly id: string }, leaseMs: number) {
    this.#store = store;
    this.id = description.id;
    this.#description = JSON.stringify(description);
    this.#leaseMs = leaseMs;
  }

  /** Registers, and renews from then on. */
  async start(): Promise<void> {
    await this.#register();
    this.#store.redis.on('ready', this.#sayAgain);
    this.#schedule();
  }

  /** Adds to what this runtime says of itself, once it knows more: its models, when the GPU hosts have answered. Admission heeds it at once. */
  async describe(more: Omit<Partial<RuntimeDescription>, 'name'>): Promise<void> {
    this.#description = JSON.stringify({ ...JSON.parse(this.#description), ...more });
    this.#words += 1;
    await this.#register();
  }

  /** What is written down at each renewal. */
  reportLoad(load: () => RuntimeLoad): void {
    this.#load = load;
  }

  /**
   * Calls back when this runtime was declared dead: others have taken over everything that it ran. It is registered again at once, so the
   * listener must stop what runs before it returns.
   */
  onLost(listener: () => void): () => void {
    this.#lost.add(listener);
    return () => this.#lost.delete(listener);
  }

  /** Gives the lease up; jobs still held are then orphans, so drain first. */
  async release(): Promise<void> {
    this.#released = true;
    this.#store.redis.off('ready', this.#sayAgain);
    clearTimeout(this.#timer);
    await unregister(this.#store, this.id);
  }

  #schedule(): void {
    if (this.#released) return;
    this.#timer = setTimeout(() => {
      this.#renew().finally(() => this.#schedule());
    }, this.#leaseMs / RENEWALS_PER_LEASE);
  }

  async #renew(): Promise<void> {
    const { keys } = this.#store;
    try {
      const args = [this.id, this.#leaseMs, JSON.stringify(this.#load())];
      const renewed = await this.#store.script(RENEW, [keys.runtimes, keys.alive(this.id)], args);
      if (renewed === 1 && this.#said < this.#words) await this.#register();
      if (renewed === 1 || this.#released) return;
      for (const listener of [...this.#lost]) listener();
      await this.#register();
    } catch {
      // Redis is away: nobody can declare this runtime dead meanwhile, and the next renewal tries again.
    }
  }

  async #register(): Promise<void> {
    const { keys, clock } = this.#store;
    const word = this.#words;
    const own = [this.id, this.#leaseMs, JSON.stringify(this.#load()), this.#description];
    const args = [...own, keys.prefix, clock()];
    await this.#store.script(REGISTER, [keys.runtimes, keys.alive(this.id)], args);
    this.#said = Math.max(this.#said, word);
  }
}

/** From here on a runtime is none. */
export async function unregister(store: Store, runtimeId: string): Promise<void> {
  const { keys, clock } = store;
  const own = [keys.runtimes, keys.alive(runtimeId), keys.cancels(runtimeId)];
  await store.script(UNREGISTER, own, [runtimeId, keys.prefix, clock()]);
}

import { randomUUID } from 'node:crypto';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';

/** A restore that has not renewed its lease for this long counts as dead. */
const LEASE_MS = 15_000;
const RENEWALS_PER_LEASE = 5;
/** Time limit of one command. It is long because a restore sends many commands at once, and each command waits for the earlier ones. */
const STEP_MS = 60_000;

const BEGIN = loadScript(new URL('./restore-mark.lua', import.meta.url), 'begin-restore');
const RENEW = loadScript(new URL('./restore-mark.lua', import.meta.url), 'renew-restore');
const STEP = loadScript(new URL('./restore-mark.lua', import.meta.url), 'restore-step');
const END = loadScript(new URL('./restore-mark.lua', import.meta.url), 'end-restore');

/** A Redis command of a restore: its name and arguments, at most {@link MOST_WORDS} words. */
export type RestoreCommand = readonly (string | Buffer)[];

/** Maximum words of a command: half of the about 8,000 values that Lua in Redis can pass to one call. */
export const MOST_WORDS = 4000;

/** Another restore writes into the same Redis. */
export class RestoreRuns extends Error {
  override readonly name = 'RestoreRuns';
  readonly holder: string;

  constructor(holder: string) {
    super(`Another restore runs: that of ${holder}.`);
    this.holder = holder;
  }
}

/** The lease of the restore has expired: another restore may run. */
export class RestoreLost extends Error {
  override readonly name = 'RestoreLost';

  constructor() {
    super('The restore stood still for so long that another one may have begun.');
  }
}

/**
 * The lease and the mark of a restore, in the Redis into which the restore writes. While the restore holds the lease, no machine starts, because no
 * supervisor can claim a machine's name; running machines go on. The mark also stops running machines. The mark stays when the restore breaks off,
 * so that no machine starts on an incomplete platform.
 */
export class RestoreMark {
  readonly #store: Store;
  readonly #holder: string;
  readonly #timer: NodeJS.Timeout;
  readonly #lost = new AbortController();
  /** True once the platform is complete. */
  #isWhole = false;
  /** Number of times that the connection to Redis has closed. */
  #closes = 0;
  readonly #onClose = () => {
    this.#closes += 1;
  };

  private constructor(store: Store, holder: string, renewMs: number) {
    this.#store = store;
    this.#holder = holder;
    // A failed renewal needs no handling: a later renewal succeeds, or the restore's own writes fail.
    this.#timer = setInterval(() => void this.renew().catch(() => undefined), renewMs);
    store.redis.on('close', this.#onClose);
  }

  /**
   * Takes the lease. The mark stays unset until `set`.
   * @param holder name of the restoring process, for messages
   * @param renewMs interval of the renewals
   * @throws RestoreRuns
   */
  static async begin(store: Store, holder: string, renewMs = LEASE_MS / RENEWALS_PER_LEASE): Promise<RestoreMark> {
    // The holder alone is not unique: containers may have the same host name and process id.
    const id = `${randomUUID()} ${holder}`;
    const other = await store.script(BEGIN, [store.keys.restoreLease], [id, LEASE_MS]);
    if (other !== null) throw new RestoreRuns(holderOf(String(other)));
    return new RestoreMark(store, id, renewMs);
  }

  /** Aborted with a `RestoreLost` once another restore may have begun: the restore must not change anything any more. */
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /** Keys that a restore must keep when it removes the platform's keys. */
  get keys(): readonly string[] {
    return keysOf(this.#store);
  }

  /**
   * Sets the mark. Call it before the restore begins to change the platform.
   * @throws RestoreLost
   */
  set(): Promise<void> {
    return this.#renew('1');
  }

  /**
   * Renews the lease; a timer also does so at intervals.
   * @throws RestoreLost
   */
  renew(): Promise<void> {
    return this.#renew('0');
  }

  /**
   * Runs a command. In the same step, Redis checks that this restore still holds its lease.
   * @throws RestoreLost
   * @throws StoreError when the command fails, and when the connection was lost meanwhile: Redis may then have run the command twice, which matters
   *   for commands like RPUSH
   */
  async run(command: RestoreCommand): Promise<void> {
    const closes = this.#closes;
    const done = await this.#store.script(STEP, keysOf(this.#store), [this.#holder, ...command], STEP_MS);
    if (done !== 1) this.#lose();
    if (closes !== this.#closes)
      throw new StoreError('store-unavailable', 'The connection to Redis was lost during a command of the restore.');
  }

  /** Records that the platform is complete: fully restored, or fully removed. */
  noteWhole(): void {
    this.#isWhole = true;
  }

  /** Ends the lease, and removes the mark if `noteWhole` was called. */
  async release(): Promise<void> {
    clearInterval(this.#timer);
    this.#store.redis.off('close', this.#onClose);
    await this.#store.script(END, keysOf(this.#store), [this.#holder, this.#isWhole ? '1' : '0']);
  }

  /** @param markFlag '1' to set the mark too, else '0' */
  async #renew(markFlag: '0' | '1'): Promise<void> {
    if ((await this.#store.script(RENEW, keysOf(this.#store), [this.#holder, LEASE_MS, markFlag])) === 1) return;
    this.#lose();
  }

  #lose(): never {
    this.#lost.abort(new RestoreLost());
    throw this.#lost.signal.reason;
  }
}

/** The restoring process that the value of a lease or a mark names. Pure. */
export const holderOf = (id: string): string => id.replace(/^[0-9a-f-]{36} /, '');

const keysOf = ({ keys }: Store): string[] => [keys.restoreLease, keys.restoreMark];

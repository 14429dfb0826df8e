import { randomUUID } from 'node:crypto';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import { actArguments, type NewAct } from '../tenants/audit.ts';
import { compareAliasNames } from './aliases.ts';
import { blobUser, fromMember, memberOf } from './functions.ts';
import { parseListed } from './records.ts';
import type { FunctionVersion } from './types.ts';

const SCRIPTS = {
  function: loadScript(new URL('./scripts/remove-function.lua', import.meta.url)),
  version: loadScript(new URL('./scripts/remove-version.lua', import.meta.url)),
  round: loadScript(new URL('./scripts/begin-removal-round.lua', import.meta.url)),
  drop: loadScript(new URL('./scripts/drop-version.lua', import.meta.url)),
};

const CANCEL_REASON = 'The function was removed.';
/** Cancels sent at once. */
const CANCELS_AT_ONCE = 32;
/** Maximum invocations of one version cancelled in one round. */
const CANCELS_PER_ROUND = 1000;
/** Interval after which one process repeats the cancels of invocations that have not ended. */
const CANCEL_AGAIN_MS = 5000;
/** Versions and cancels after which a round ends, since the reaper waits for it: a tenant may have removed thousands of versions. */
const STEPS_PER_ROUND = 64;

/** Invocations of a removed version that have not ended. */
export interface Draining {
  readonly version: string;
  readonly unfinished: number;
}

export interface RemovalOptions {
  /** Id of the key for the audit log, which gets an entry in the same step. Without it, the log gets none. */
  readonly actor?: string;
  /** Called as soon as no new invocation can run the function. Cancels and deletions follow. They may take long, or fail and be left to the reaper. */
  readonly onRemoved?: () => Promise<void>;
}

export interface RemovalsOptions {
  readonly store: Store;
  /** Cancels one invocation. */
  readonly cancel: (id: string, reason: string) => Promise<unknown>;
  /** Called when a version is gone for good, possibly twice. */
  readonly onGone?: (version: FunctionVersion) => Promise<void>;
  /** Receives an error that stopped one function's removal; the others continue. */
  readonly onError?: ((error: unknown) => void) | undefined;
}

/**
 * Removes functions and versions. A removed version starts no new invocations. It stays runnable until its last invocation has ended; then
 * the version and its unused component are deleted. The caller starts a removal, and the reaper's rounds finish it.
 */
export class Removals {
  readonly #options: RemovalsOptions;
  readonly #store: Store;
  /** A pass over all functions with removed versions. The next round goes on with it. */
  #pass = this.#members();
  /** The last round; the next one begins after it. */
  #round: Promise<void> = Promise.resolve();

  constructor(options: RemovalsOptions) {
    this.#options = options;
    this.#store = options.store;
  }

  /**
   * Removes a function with all versions; `now` cancels its invocations. Returns the draining versions; null without a function. The audit log
   * gets no entry when an earlier call had the same effect, and the versions still drain.
   */
  async removeFunction(
    tenant: string,
    name: string,
    now = false,
    { actor, onRemoved }: RemovalOptions = {},
  ): Promise<readonly Draining[] | null> {
    const act = actOf(actor, tenant, 'function.remove', name, now);
    const { keys, fields } = actArguments(this.#store, act);
    const args = [name, memberOf(tenant, name), now ? 'now' : 'drain', this.#store.keys.releaseChannel, ...fields];
    if ((await this.#store.script(SCRIPTS.function, [...this.#keys(tenant, name), ...keys], args)) !== 1) return null;
    await onRemoved?.();
    return this.#settle(tenant, name, () => now);
  }

  /** Removes one version, unless aliases serve it; then returns their names. Writes to the audit log as `removeFunction` does. */
  async removeVersion(
    tenant: string,
    name: string,
    version: string,
    now = false,
    { actor }: Pick<RemovalOptions, 'actor'> = {},
  ): Promise<{ draining: readonly Draining[] } | { servedBy: readonly string[] } | null> {
    const act = actOf(actor, tenant, 'version.remove', `${name}@${version}`, now);
    const { keys, fields } = actArguments(this.#store, act);
    const args = [name, memberOf(tenant, name), now ? 'now' : 'drain', version, ...fields];
    const reply = await this.#store.script(SCRIPTS.version, [...this.#keys(tenant, name), ...keys], args);
    const [code, ...aliases] = Array.isArray(reply) ? reply : [];
    if (code === 1) return { draining: await this.#settle(tenant, name, (removed) => now && removed === version) };
    return code === -1 ? { servedBy: aliases.map(String).sort(compareAliasNames) } : null;
  }

  /** A function's removed versions that still drain, also when the function was deployed again. */
  async draining(tenant: string, name: string): Promise<readonly Draining[]> {
    const removed = await this.#removed(tenant, name);
    const { keys } = this.#store;
    return Promise.all(
      removed.map(async ({ version }) => ({
        version,
        unfinished: await this.#store.call((redis) => redis.scard(keys.unfinished(tenant, name, version))),
      })),
    );
  }

  /**
   * One round: deletes removed versions that have drained, and cancels invocations of versions removed with `now`. A round looks at a bounded
   * number of functions; the next round continues with the others.
   */
  sweep(): Promise<void> {
    const round = this.#round.then(() => this.#sweep());
    this.#round = round.catch(() => undefined);
    return round;
  }

  async #sweep(): Promise<void> {
    for (let steps = 0; steps < STEPS_PER_ROUND; ) {
      const next = await this.#pass.next().catch((error: unknown) => {
        this.#pass = this.#members();
        throw error;
      });
      if (next.done === true) {
        this.#pass = this.#members();
        return;
      }
      try {
        steps += await this.#sweepOne(next.value);
      } catch (error) {
        steps += 1;
        this.#options.onError?.(error);
      }
    }
  }

  /** The functions with removed versions, read in parts. */
  async *#members(): AsyncGenerator<string, void, undefined> {
    let cursor = '0';
    do {
      const [next, entries] = await this.#store.call((redis) =>
        redis.hscan(this.#store.keys.removals, cursor, 'COUNT', STEPS_PER_ROUND),
      );
      cursor = next;
      // Each field is followed by its value. Fields `<tenant>/<name>@<version>` mark versions whose invocations are to be cancelled.
      yield* entries.filter((entry, i) => i % 2 === 0 && !entry.includes('@'));
    } while (cursor !== '0');
  }

  /** Returns the number of steps. */
  async #sweepOne(member: string): Promise<number> {
    const { tenant, name } = fromMember(member);
    const removed = await this.#removed(tenant, name);
    const marked = await this.#versionsToCancel(member, removed);
    const cancels = marked.size > 0 && (await this.#mayCancel(member));
    return 1 + (await this.#finish(removed, (version) => cancels && marked.has(version)));
  }

  /** The versions of a function that were removed with `now`. */
  async #versionsToCancel(member: string, removed: readonly FunctionVersion[]): Promise<ReadonlySet<string>> {
    if (removed.length === 0) return new Set();
    const fields = removed.map(({ version }) => `${member}@${version}`);
    const marks = await this.#store.call((redis) => redis.hmget(this.#store.keys.removals, ...fields));
    return new Set(removed.flatMap(({ version }, i) => (marks[i] === 'now' ? [version] : [])));
  }

  async #settle(tenant: string, name: string, cancel: (version: string) => boolean): Promise<readonly Draining[]> {
    await this.#finish(await this.#removed(tenant, name), cancel);
    return this.draining(tenant, name);
  }

  /** Deletes the versions that have drained. Returns the number of versions and of cancels. */
  async #finish(removed: readonly FunctionVersion[], cancel: (version: string) => boolean): Promise<number> {
    let steps = removed.length;
    for (const version of removed) {
      if (cancel(version.version)) steps += await this.#cancelAll(version);
      await this.#drop(version);
    }
    return steps;
  }

  async #drop(version: FunctionVersion): Promise<void> {
    const { keys } = this.#store;
    const { tenant, name, componentHash } = version;
    const reply = await this.#store.script(
      SCRIPTS.drop,
      [
        keys.removedVersions(tenant, name),
        keys.removals,
        keys.unfinished(tenant, name, version.version),
        keys.blob(componentHash),
        keys.blobUsers(componentHash),
        keys.conduct(tenant, name, version.version),
        keys.learnedPages(tenant, name, version.version),
      ],
      [
        ...[version.version, memberOf(tenant, name), blobUser(version)],
        ...[keys.account(tenant), `${name}@${version.version}`],
      ],
    );
    // Also when it was gone before: the process that deleted it may have died, or lost the reply.
    if (reply !== 0) await this.#options.onGone?.(version);
  }

  /** Returns the number of cancels. */
  async #cancelAll({ tenant, name, version }: FunctionVersion): Promise<number> {
    const key = this.#store.keys.unfinished(tenant, name, version);
    const unfinished = await this.#store.call((redis) => redis.srandmember(key, CANCELS_PER_ROUND));
    const ids = unfinished.values();
    const work = async () => {
      for (const id of ids) await this.#options.cancel(id, CANCEL_REASON);
    };
    await Promise.all(Array.from({ length: CANCELS_AT_ONCE }, work));
    return unfinished.length;
  }

  /** True for one process per `CANCEL_AGAIN_MS`, which repeats the cancels. */
  async #mayCancel(member: string): Promise<boolean> {
    const key = this.#store.keys.removalRound(member);
    return (await this.#store.script(SCRIPTS.round, [key], [CANCEL_AGAIN_MS])) === 1;
  }

  async #removed(tenant: string, name: string): Promise<FunctionVersion[]> {
    const texts = await this.#store.call((redis) => redis.hvals(this.#store.keys.removedVersions(tenant, name)));
    return texts.map(parseListed);
  }

  #keys(tenant: string, name: string): string[] {
    const { keys } = this.#store;
    return [
      keys.functions(tenant),
      keys.function(tenant, name),
      keys.removedVersions(tenant, name),
      keys.removals,
      keys.deployed,
      keys.reply(randomUUID()),
    ];
  }
}

function actOf(
  actor: string | undefined,
  tenant: string,
  action: 'function.remove' | 'version.remove',
  target: string,
  now: boolean,
): NewAct | null {
  return actor === undefined ? null : { actor, tenant, action, target, details: { now } };
}

import { randomUUID } from 'node:crypto';
import type { Logger } from '../policies/logger.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import { actArguments, type NewAct } from '../tenants/audit.ts';
import { compareAliasNames } from './aliases.ts';
import { blobUser, engineKeys, fromMember, memberOf } from './functions.ts';
import { parseListed } from './records.ts';
import type { FunctionVersion } from './types.ts';

const SCRIPTS = {
  function: loadScript(new URL('./removals.lua', import.meta.url), 'remove-function'),
  version: loadScript(new URL('./removals.lua', import.meta.url), 'remove-version'),
  round: loadScript(new URL('./removals.lua', import.meta.url), 'begin-removal-round'),
  drop: loadScript(new URL('./removals.lua', import.meta.url), 'drop-version'),
};

const CANCEL_REASON = 'The function was removed.';
/** Cancels sent at once. */
const CANCELS_AT_ONCE = 32;
/** Maximum invocations of one version cancelled in one round. */
const CANCELS_PER_ROUND = 1000;
/** Interval at which the cancels of a function's unfinished invocations are repeated, each time by one process. */
const CANCEL_AGAIN_MS = 5000;
/**
 * A step is one function, version or cancel. A round begins no further function after this many steps: the reaper waits for the round, and
 * a tenant may have removed thousands of versions.
 */
const STEPS_PER_ROUND = 64;

/** A removed version that drains: it stays stored until its last invocation has ended. */
export interface Draining {
  readonly version: string;
  /** Number of its invocations that have not ended. */
  readonly unfinished: number;
}

export interface RemovalOptions {
  /** Id of the API key that asks for the removal. The removal and its entry in the audit log are one step. Without an id, there is no entry. */
  readonly actor?: string;
  /**
   * Called as soon as no new invocation can run the function. Cancels and deletions follow; they may take long, and the reaper repeats those
   * that fail.
   */
  readonly onRemoved?: () => Promise<void>;
}

export interface RemovalsOptions {
  readonly store: Store;
  /** Cancels one invocation. */
  readonly cancel: (id: string, reason: string) => Promise<unknown>;
  /** Called when a removed version has been deleted, by this process or another one, or deployed again. One version may cause several calls. */
  readonly onGone?: (version: FunctionVersion) => Promise<void>;
  /** Gets an error that stopped the removal of one function in a round. The round continues with the other functions. */
  readonly log: Logger;
}

/**
 * Removes functions and versions. A removed version starts no new invocations, and it drains: once its last invocation has ended, the version is
 * deleted, and its component unless another version uses that. The caller starts a removal, and the rounds of the reaper (`sweep`) finish it.
 */
export class Removals {
  readonly #options: RemovalsOptions;
  readonly #store: Store;
  /** The present pass over all functions with removed versions. Each round continues it where the last round stopped. */
  #pass = this.#members();
  /** The last round; the next one begins after it. */
  #round: Promise<void> = Promise.resolve();

  constructor(options: RemovalsOptions) {
    this.#options = options;
    this.#store = options.store;
  }

  /**
   * Removes a function with all versions; `now` also cancels their invocations. Returns the versions that drain; null when there is neither
   * such a function nor a version of it that drains. A repeated call while versions drain may add `now`. If it changes nothing, the audit log
   * gets no entry.
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

  /**
   * Removes one version like `removeFunction`, and returns all draining versions of the function. If aliases serve the
   * version, it stays, and their names are returned. Null when there is no such version.
   */
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

  /** A function's versions that drain, even if the function was deployed again. */
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
   * One round: deletes versions that have drained, and cancels invocations of versions removed with `now`. A round visits a bounded number of
   * functions; the next round continues with the others. Rounds of one process run one after another.
   */
  sweep(): Promise<void> {
    const round = this.#round.then(() => this.#sweep());
    this.#round = round.catch(() => undefined);
    return round;
  }

  async #sweep(): Promise<void> {
    for (let steps = 0; steps < STEPS_PER_ROUND; ) {
      const next = await this.#pass.next().catch((error: unknown) => {
        // A generator that has thrown yields nothing more.
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
        this.#options.log.warn(
          { error, function: next.value },
          'the removal of a function stopped, and will be repeated',
        );
      }
    }
  }

  /** Names the functions with removed versions, as `<tenant>/<name>`; reads them from Redis in parts. */
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

  /** Does a round's work for one function. Returns the number of steps. */
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

  /** Does the part of a removal that waits for no invocation to end, and returns the versions that drain. */
  async #settle(tenant: string, name: string, cancel: (version: string) => boolean): Promise<readonly Draining[]> {
    await this.#finish(await this.#removed(tenant, name), cancel);
    return this.draining(tenant, name);
  }

  /** Cancels the invocations of the versions that `cancel` selects, then deletes the versions that have drained. Returns the number of steps. */
  async #finish(removed: readonly FunctionVersion[], cancel: (version: string) => boolean): Promise<number> {
    let steps = removed.length;
    for (const version of removed) {
      if (cancel(version.version)) steps += await this.#cancelAll(version);
      await this.#drop(version);
    }
    return steps;
  }

  /** Deletes a version if it has drained. */
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
        ...engineKeys(keys, version),
      ],
      [
        ...[version.version, memberOf(tenant, name), blobUser(version)],
        ...[keys.account(tenant), `${name}@${version.version}`],
      ],
    );
    // Call `onGone` even if an earlier call deleted the version (-1): the process that made it may have died, or lost the reply.
    if (reply !== 0) await this.#options.onGone?.(version);
  }

  /** Cancels up to `CANCELS_PER_ROUND` invocations of a version, chosen at random. Returns their number. */
  async #cancelAll({ tenant, name, version }: FunctionVersion): Promise<number> {
    const key = this.#store.keys.unfinished(tenant, name, version);
    const unfinished = await this.#store.call((redis) => redis.srandmember(key, CANCELS_PER_ROUND));
    // All workers take their ids from this one iterator, so each id is cancelled once.
    const remainingIds = unfinished.values();
    const work = async () => {
      for (const id of remainingIds) await this.#options.cancel(id, CANCEL_REASON);
    };
    await Promise.all(Array.from({ length: CANCELS_AT_ONCE }, work));
    return unfinished.length;
  }

  /** True for one call in each `CANCEL_AGAIN_MS`, whichever process makes it. */
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

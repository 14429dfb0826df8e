import { randomUUID } from 'node:crypto';
import type { Channels } from '../store/channels.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import {
  type AliasState,
  lastOf,
  MAX_ALIASES,
  MAX_HISTORY,
  type NamedAlias,
  type Share,
  sameShares,
  stepBack,
} from './aliases.ts';
import { type Functions, fromMember, memberOf } from './functions.ts';
import { parseState, stateText } from './records.ts';

const SCRIPTS = {
  set: loadScript(new URL('./functions.lua', import.meta.url), 'set-alias'),
  remove: loadScript(new URL('./functions.lua', import.meta.url), 'remove-alias'),
};

/** Attempts of a rollback. When the alias has changed since the plan was made, the next attempt makes a new plan. */
const TRIES = 5;

/** A change of an alias. The caller has checked `shares` with `sharesFault`. */
export interface AliasChange {
  readonly shares: readonly Share[];
  /** Id of the key that makes the change. */
  readonly by: string;
  readonly message?: string | undefined;
  /** The revision that the alias must have now, 0 for a new alias. */
  readonly ifRevision?: number | undefined;
  /** See `AliasState.restores`. */
  readonly restores?: number | undefined;
}

/**
 * `tag-of-several`: the alias is a tag (`AliasState.tag`), and a tag cannot divide invocations among several versions.
 */
export type AliasOutcome =
  | { readonly ok: true; readonly alias: NamedAlias }
  | { readonly ok: false; readonly reason: 'unknown-function' | 'too-many-aliases' | 'tag-of-several' }
  /** `revision` is 0 when there is no such alias. */
  | { readonly ok: false; readonly reason: 'changed'; readonly revision: number }
  | { readonly ok: false; readonly reason: 'unknown-version'; readonly version: string };

export interface RollbackWish {
  readonly by: string;
  /** An existing version to serve again. Without it, the rollback goes one step back. */
  readonly to?: string | undefined;
  readonly message?: string | undefined;
  readonly ifRevision?: number | undefined;
}

/** The changes that a rollback would make. */
export interface RollbackPlan {
  readonly from: AliasState;
  readonly to: readonly Share[];
  /** The restored revision; undefined when no known state serves the wanted version alone. */
  readonly restores: number | undefined;
}

export type RollbackOutcome =
  | { readonly ok: true; readonly plan: RollbackPlan; readonly alias: NamedAlias }
  | Extract<AliasOutcome, { ok: false }>
  | { readonly ok: false; readonly reason: 'no-alias' | 'nothing-before' | 'serves-it' };

/** Reads, sets, removes and rolls back the aliases of functions. */
export class Releases {
  readonly #store: Store;
  readonly #functions: Functions;
  readonly #channels: Channels;

  constructor(store: Store, functions: Functions, channels: Channels) {
    this.#store = store;
    this.#channels = channels;
    this.#functions = functions;
  }

  /** A function's aliases by name, `live` first; empty when there is no such function. */
  async aliases(tenant: string, name: string): Promise<readonly NamedAlias[]> {
    return (await this.#functions.read(tenant, name))?.aliases ?? [];
  }

  /** States of an alias, newest first, the present one included; empty when there is no such alias. */
  async history(tenant: string, name: string, alias: string): Promise<readonly AliasState[]> {
    const key = this.#store.keys.aliasHistory(tenant, name, alias);
    const texts = await this.#store.call((redis) => redis.lrange(key, 0, MAX_HISTORY - 1));
    return texts.map(parseState);
  }

  /** Points an alias at versions in one step. Existing invocations keep their version. */
  async set(tenant: string, name: string, alias: string, change: AliasChange): Promise<AliasOutcome> {
    const { keys } = this.#store;
    const reply = await this.#store.script(
      SCRIPTS.set,
      [keys.function(tenant, name), keys.reply(randomUUID())],
      [
        alias,
        stateText(change.shares, this.#store.clock(), change),
        change.ifRevision ?? '',
        MAX_HISTORY,
        MAX_ALIASES,
        keys.releaseChannel,
        memberOf(tenant, name),
      ],
    );
    const [code, value] = Array.isArray(reply) ? reply : [];
    if (code === 1) return { ok: true, alias: { alias, ...parseState(String(value)) } };
    if (code === -1) return { ok: false, reason: 'changed', revision: Number(value) };
    if (code === -2) return { ok: false, reason: 'unknown-version', version: String(value) };
    if (code === -3) return { ok: false, reason: 'too-many-aliases' };
    return { ok: false, reason: code === -4 ? 'tag-of-several' : 'unknown-function' };
  }

  /** Removes an alias with its history; false when there is none. */
  async remove(tenant: string, name: string, alias: string): Promise<boolean> {
    const { keys } = this.#store;
    const args = [alias, keys.releaseChannel, memberOf(tenant, name)];
    const scriptKeys = [keys.function(tenant, name), keys.reply(randomUUID())];
    return (await this.#store.script(SCRIPTS.remove, scriptKeys, args)) === 1;
  }

  /**
   * Calls `listener` with each function whose aliases changed, and with null when changes may have been missed.
   *
   * @returns the function that stops listening.
   */
  onChange(listener: (changed: { tenant: string; name: string } | null) => void): Promise<() => void> {
    return this.#channels.listen(this.#store.keys.releaseChannel, {
      message: (payload) => listener(fromMember(payload.toString('utf8'))),
      resumed: () => listener(null),
    });
  }

  /** Plans {@link rollback} without running it. */
  async planRollback(
    tenant: string,
    name: string,
    alias: string,
    { to, ifRevision }: RollbackWish,
  ): Promise<{ readonly ok: true; readonly plan: RollbackPlan } | Extract<RollbackOutcome, { ok: false }>> {
    const history = await this.history(tenant, name, alias);
    const [from] = history;
    if (from === undefined) return { ok: false, reason: 'no-alias' };
    if (ifRevision !== undefined && ifRevision !== from.revision)
      return { ok: false, reason: 'changed', revision: from.revision };
    const restoredState = to === undefined ? stepBack(history) : lastOf(to, history.slice(1));
    if (to === undefined && restoredState === null) return { ok: false, reason: 'nothing-before' };
    // When no known state served the version `to` alone, the rollback makes such a state. `to` is never undefined then:
    // the check above returns for a rollback without `to` that finds no state.
    const shares = restoredState?.shares ?? [{ version: to ?? '', weight: 100 }];
    if (sameShares(shares, from.shares)) return { ok: false, reason: 'serves-it' };
    return { ok: true, plan: { from, to: shares, restores: restoredState?.revision } };
  }

  /** Restores an alias's previous state, or makes it serve one version again. */
  async rollback(tenant: string, name: string, alias: string, wish: RollbackWish): Promise<RollbackOutcome> {
    for (let tries = 1; ; tries++) {
      const planOutcome = await this.planRollback(tenant, name, alias, wish);
      if (!planOutcome.ok) return planOutcome;
      const { plan } = planOutcome;
      const { by, message } = wish;
      const { to: shares, restores } = plan;
      const outcome = await this.set(tenant, name, alias, {
        shares,
        by,
        message,
        restores,
        ifRevision: plan.from.revision,
      });
      if (outcome.ok) return { ...outcome, plan };
      if (outcome.reason !== 'changed' || wish.ifRevision !== undefined || tries >= TRIES) return outcome;
    }
  }
}

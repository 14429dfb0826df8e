import { randomUUID } from 'node:crypto';
import { type FunctionVersion, ownerOf } from '../functions/types.ts';
import type { Logger } from '../policies/logger.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import { type AuditLog, PLATFORM_ACTOR } from '../tenants/audit.ts';
import { afterLoss, type Conduct, quarantineText, type Standing, standingOf } from './policy.ts';

const CHANGE = loadScript(new URL('./quarantine.lua', import.meta.url), 'change-conduct');

/** Maximum tries of a change of a conduct (the stored losses of a version); a try fails when another process changed the conduct meanwhile. */
const MAX_TRIES = 100;

type Version = Pick<FunctionVersion, 'tenant' | 'name' | 'version' | 'platform'>;

/**
 * Function versions whose sandboxes were lost: suspects run alone in a sandbox, and quarantined versions do not run. Conduct is kept per tenant, so
 * a platform function that one tenant breaks keeps running for the others. The conduct is deleted with the version.
 */
export class Quarantine {
  readonly #store: Store;
  readonly #audit: AuditLog;
  readonly #log: Logger;

  constructor(store: Store, audit: AuditLog, log: Logger) {
    this.#store = store;
    this.#audit = audit;
    this.#log = log;
  }

  /**
   * Records that a sandbox was lost while this invocation computed in it.
   *
   * @param isAlone true when the sandbox held only this run.
   * @returns the standing of the invocation's version; `clear` when the invocation does not exist (any more).
   */
  async noteLoss(id: string, isAlone: boolean): Promise<Standing> {
    const record = this.#store.keys.invocation(id);
    const [key, tenant, name, version] = await this.#store.call((redis) =>
      redis.hmget(record, 'conductKey', 'tenant', 'function', 'version'),
    );
    if (key == null || tenant == null) return 'clear';
    const now = this.#store.clock();
    const [before, after] = await this.#change(key, tenant, now, (storedConduct) =>
      afterLoss(storedConduct, isAlone, now),
    );
    const standing = standingOf(after, now);
    this.#logStanding(
      { invocation: id, tenant, function: name ?? '', version: version ?? '' },
      standing,
      after,
      isAlone,
    );
    if (standing === 'quarantined' && standingOf(before, now) !== 'quarantined') {
      const details = { invocation: id, losses: after?.strikes.map((at) => new Date(at).toISOString()) };
      await this.#audit.record(PLATFORM_ACTOR, tenant, 'function.quarantine', `${name}@${version}`, details);
    }
    return standing;
  }

  #logStanding(
    of: { readonly invocation: string; readonly tenant: string; readonly function: string; readonly version: string },
    standing: Standing,
    conduct: Conduct | null,
    isAlone: boolean,
  ): void {
    const { suspectUntil = 0, strikes = [] } = conduct ?? {};
    const figures = { isAlone, lossesAlone: strikes.length, suspectUntil: new Date(suspectUntil).toISOString() };
    if (standing === 'quarantined') {
      const cause = quarantineText(of.function, of.version);
      this.#log.warn({ ...of, cause, figures }, 'a version is quarantined');
    } else this.#log.warn({ ...of, figures }, 'a version lost its sandbox, and runs alone for a while');
  }

  /** For each version, the time at which it was quarantined for its tenant; null for no quarantine. One round trip. */
  async quarantineTimes(versions: readonly Version[]): Promise<(number | null)[]> {
    const texts = await this.#store.call((redis) =>
      Promise.all(versions.map((version) => redis.hget(this.#key(version), version.tenant))),
    );
    return texts.map((text) => parseConduct(text)?.quarantinedAt ?? null);
  }

  /** Lifts the quarantine of these versions and deletes their conduct. Returns those that were quarantined. */
  async lift<V extends Version>(versions: readonly V[]): Promise<V[]> {
    const now = this.#store.clock();
    const liftedVersions: V[] = [];
    for (const version of versions) {
      const lift = (storedConduct: Conduct | null) =>
        standingOf(storedConduct, now) === 'quarantined' ? null : storedConduct;
      const [before] = await this.#change(this.#key(version), version.tenant, now, lift);
      if (standingOf(before, now) === 'quarantined') liftedVersions.push(version);
    }
    return liftedVersions;
  }

  /** Replaces a tenant's conduct in the hash `key` by the result of `change`, which is called again when another process changed the conduct. */
  async #change(
    key: string,
    tenant: string,
    now: number,
    change: (storedConduct: Conduct | null) => Conduct | null,
  ): Promise<[before: Conduct | null, after: Conduct | null]> {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const text = await this.#store.call((redis) => redis.hget(key, tenant));
      const before = parseConduct(text);
      const after = change(before);
      if (after === before) return [before, after];
      const args = [tenant, text ?? '', after === null ? '' : JSON.stringify(after), now];
      // By this reply, a call that the connection sends twice, because its answer was lost, counts once.
      const reply = this.#store.keys.reply(randomUUID());
      if ((await this.#store.script(CHANGE, [key, reply], args)) === 1) return [before, after];
    }
    throw new StoreError('store-unavailable', `${key} was changed ${MAX_TRIES} times while it was read.`);
  }

  #key(version: Version): string {
    return this.#store.keys.conduct(ownerOf(version), version.name, version.version);
  }
}

function parseConduct(text: string | null): Conduct | null {
  if (text === null) return null;
  try {
    return JSON.parse(text) as Conduct;
  } catch (cause) {
    throw new StoreError('store-corrupt', 'The stored conduct of a function is not JSON.', { cause });
  }
}

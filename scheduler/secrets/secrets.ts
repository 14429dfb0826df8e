import { randomUUID } from 'node:crypto';
import type { FunctionVersion } from '../functions/types.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import { REPLY_MS, type Store } from '../store/store.ts';
import { type MasterKeys, seal, unseal } from './master-keys.ts';
import { faultOfSecret, MAX_REVISIONS, MAX_SECRETS, VARIABLE_NAME } from './rules.ts';

const SCRIPTS = {
  set: loadScript(new URL('./secrets.lua', import.meta.url), 'set-secret'),
  pin: loadScript(new URL('./secrets.lua', import.meta.url), 'pin-secrets'),
  remove: loadScript(new URL('./secrets.lua', import.meta.url), 'remove-secret'),
  drop: loadScript(new URL('./secrets.lua', import.meta.url), 'drop-values'),
  reseal: loadScript(new URL('./secrets.lua', import.meta.url), 'reseal'),
};

/** Length of a pin, longer than any build: when a pin ends, the deploy has stored a version that refers to the value, or has failed. */
const PIN_MS = 3_600_000;

/** A secret without its value. */
export interface Secret {
  readonly name: string;
  /** Grows with every value that the tenant stores; no revision is reused. */
  readonly revision: number;
  /** ISO 8601. */
  readonly changedAt: string;
  readonly changedBy: string;
}

/** Revisions of a function version's secrets, by name. */
export type Revisions = Readonly<Record<string, number>>;

export type PinOutcome =
  | { readonly ok: true; readonly revisions: Revisions }
  /** `unknown` lists the names that no secret of the tenant has. */
  | { readonly ok: false; readonly unknown: readonly string[] };

/** Looks up the versions that may refer to secrets. */
interface StoredVersions {
  /** Deployed versions, and removed ones with running invocations. */
  runnableVersions(tenant: string): Promise<readonly FunctionVersion[]>;
}

/** A secret cannot be opened. The message gives its name and the reason, and no part of its value. */
export class SecretError extends Error {
  override readonly name = 'SecretError';
}

/** The error for a value that cannot be opened. */
export function openError(what: string, cause: unknown): SecretError {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new SecretError(`${what} cannot be opened: ${why.replace(/\.$/, '')}.`, { cause });
}

/**
 * Secrets of tenants, sealed under the installation's master key before they are stored, and opened where a function runs. A deploy pins the current
 * revisions, and its version names them. A value stays while it is current or pinned, or while a version names it. Revision numbers are never reused.
 */
export class Secrets {
  readonly #store: Store;
  readonly #functions: StoredVersions;
  readonly #masterKeys: MasterKeys | undefined;

  /** Without master keys, values can neither be stored nor opened. */
  constructor(store: Store, functions: StoredVersions, masterKeys?: MasterKeys) {
    this.#store = store;
    this.#functions = functions;
    this.#masterKeys = masterKeys;
  }

  /** Sorted by name. */
  async list(tenant: string): Promise<Secret[]> {
    const fields = await this.#store.call((redis) => redis.hgetall(this.#store.keys.secrets(tenant)));
    return Object.entries(fields)
      .filter(([name]) => name !== '')
      .map(([name, text]) => ({ name, ...(JSON.parse(text) as Omit<Secret, 'name'>) }))
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** Stores a value. `too-many-*` when the tenant has `MAX_SECRETS` secrets, or `MAX_REVISIONS` stored values. */
  async set(
    tenant: string,
    name: string,
    value: string,
    changedBy: string,
  ): Promise<Secret | 'too-many-secrets' | 'too-many-revisions'> {
    const fault = VARIABLE_NAME.test(name) ? faultOfSecret(value) : 'the name is not valid';
    if (fault !== null) throw new StoreError('invalid-argument', `The secret cannot be stored: ${fault}.`);
    const { keys } = this.#store;
    const sealed = seal(await this.#keys().first(), { tenant, name }, value);
    const changedAt = new Date(this.#store.clock()).toISOString();
    const run = () =>
      this.#store.script(
        SCRIPTS.set,
        [keys.secrets(tenant), keys.secretValues(tenant), keys.reply(randomUUID())],
        [name, sealed, changedAt, changedBy, MAX_SECRETS, MAX_REVISIONS, REPLY_MS],
      );
    let revision = Number(await run());
    if (revision === -2 && (await this.release({ tenant })) > 0) revision = Number(await run());
    if (revision === -1) return 'too-many-secrets';
    if (revision === -2) return 'too-many-revisions';
    await this.release({ tenant });
    return { name, revision, changedAt, changedBy };
  }

  /** Removes a secret; versions deployed with it keep its value. */
  async remove(tenant: string, name: string): Promise<boolean> {
    if (!VARIABLE_NAME.test(name)) return false;
    const { keys } = this.#store;
    const reply = await this.#store.script(
      SCRIPTS.remove,
      [keys.secrets(tenant), keys.reply(randomUUID())],
      [name, REPLY_MS],
    );
    await this.release({ tenant });
    return reply === 1;
  }

  /**
   * The current revisions of these secrets. Keeps their values for an hour (`PIN_MS`): a version that is stored in this
   * time may refer to them, and then keeps them itself.
   */
  pin(tenant: string, names: readonly string[]): Promise<PinOutcome> {
    return this.#revisions(tenant, names, this.#store.clock() + PIN_MS);
  }

  /** Like `pin`, without keeping the values. */
  current(tenant: string, names: readonly string[]): Promise<PinOutcome> {
    return this.#revisions(tenant, names, '');
  }

  /** The values of these revisions, by name. Throws `SecretError` when one is missing or sealed under an unknown master key. */
  async open(tenant: string, revisions: Revisions): Promise<Map<string, string>> {
    const wanted = Object.entries(revisions);
    const opened = new Map<string, string>();
    if (wanted.length === 0) return opened;
    const fields = wanted.map(([name, revision]) => `${name}@${revision}`);
    const stored = await this.#store.call((redis) => redis.hmget(this.#store.keys.secretValues(tenant), ...fields));
    for (const [i, [name, revision]] of wanted.entries()) {
      const sealed = stored[i];
      if (typeof sealed !== 'string')
        throw new SecretError(`Revision ${revision} of the secret ${name} is not stored.`);
      try {
        opened.set(name, await unseal(this.#keys(), { tenant, name }, sealed));
      } catch (cause) {
        throw openError(`The secret ${name}`, cause);
      }
    }
    return opened;
  }

  /**
   * Drops the tenant's values that are neither current nor pinned and to which no version refers; returns their number.
   * Call it after a version was deleted.
   */
  async release({ tenant }: { readonly tenant: string }): Promise<number> {
    const { keys, clock } = this.#store;
    // Read the values before the versions: a version that is stored after this read has pinned its values.
    const values = await this.#store.call((redis) => redis.hkeys(keys.secretValues(tenant)));
    if (values.length === 0) return 0;
    const used = await this.#usedValues(tenant);
    const unused = values.filter((value) => !used.has(value));
    if (unused.length === 0) return 0;
    const dropped = await this.#store.script(
      SCRIPTS.drop,
      [keys.secrets(tenant), keys.secretValues(tenant), keys.secretPins(tenant)],
      [clock(), ...unused.flatMap((value) => value.split('@'))],
    );
    return Number(dropped);
  }

  /**
   * Reseals a tenant's values that are not under the first master key; returns their number.
   * @throws SecretError for a value that cannot be opened, once all others are resealed
   */
  async reseal(tenant: string): Promise<number> {
    const { keys } = this.#store;
    const values = await this.#store.call((redis) => redis.hgetall(keys.secretValues(tenant)));
    if (Object.keys(values).length === 0) return 0;
    const first = await this.#keys().first();
    const oldValues = Object.entries(values).filter(([, sealed]) => !sealed.startsWith(`${first.id}.`));
    let failure: SecretError | undefined;
    for (const [field, sealed] of oldValues) {
      const owner = { tenant, name: field.slice(0, field.indexOf('@')) };
      try {
        const resealed = seal(first, owner, await unseal(this.#keys(), owner, sealed));
        await this.#store.script(SCRIPTS.reseal, [keys.secretValues(tenant)], [field, sealed, resealed]);
      } catch (error) {
        if (error instanceof StoreError) throw error;
        failure ??= openError(`The secret ${owner.name}`, error);
      }
    }
    if (failure) throw failure;
    return oldValues.length;
  }

  async #revisions(tenant: string, names: readonly string[], until: number | ''): Promise<PinOutcome> {
    if (names.length === 0) return { ok: true, revisions: {} };
    const { keys } = this.#store;
    const sorted = [...new Set(names)].sort();
    const reply = await this.#store.script(
      SCRIPTS.pin,
      [keys.secrets(tenant), keys.secretPins(tenant)],
      [this.#store.clock(), until, ...sorted],
    );
    const found = (reply as unknown[]).map(Number);
    const unknown = sorted.filter((_, i) => found[i] === 0);
    if (unknown.length > 0) return { ok: false, unknown };
    return { ok: true, revisions: Object.fromEntries(sorted.map((name, i) => [name, found[i] ?? 0])) };
  }

  /** Values that stored versions refer to, as `<name>@<revision>`. */
  async #usedValues(tenant: string): Promise<Set<string>> {
    const used = new Set<string>();
    for (const { secrets } of await this.#functions.runnableVersions(tenant)) {
      for (const [secret, revision] of Object.entries(secrets ?? {})) used.add(`${secret}@${revision}`);
    }
    return used;
  }

  #keys(): MasterKeys {
    if (this.#masterKeys === undefined) throw new SecretError('This process has no master key.');
    return this.#masterKeys;
  }
}

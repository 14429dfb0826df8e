import { randomUUID } from 'node:crypto';
import { areLatencyTargets, type LatencyTargets } from '../invocations/types.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import { REPLY_MS, type Store } from '../store/store.ts';
import { MAX_TENANTS, TENANT_NAME, WEIGHT } from './rules.ts';

const SCRIPTS = {
  create: loadScript(new URL('./tenants.lua', import.meta.url), 'create-tenant'),
  change: loadScript(new URL('./tenants.lua', import.meta.url), 'change-tenant'),
};

export interface Tenant {
  readonly name: string;
  /** ISO 8601. */
  readonly createdAt: string;
  readonly weight: number;
  readonly suspended: boolean;
  /** Latency targets for invocations of functions that state none. */
  readonly latency: LatencyTargets | null;
}

export interface TenantSettings {
  readonly weight?: number | undefined;
  readonly suspended?: boolean | undefined;
  readonly latency?: LatencyTargets | null | undefined;
}

export type CreateTenantOutcome = 'created' | 'exists' | 'full';

/** Tenants own functions, keys, secrets and quotas. `rules.ts` has the rules for their names and weights. */
export class Tenants {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  async create(name: string, settings: TenantSettings = {}): Promise<CreateTenantOutcome> {
    if (!TENANT_NAME.test(name)) throw new StoreError('invalid-argument', `"${name}" is not a name of a tenant.`);
    const { keys } = this.#store;
    const fields = { createdAt: new Date(this.#store.clock()).toISOString(), ...toFields(settings) };
    const reply = await this.#store.script(
      SCRIPTS.create,
      [keys.tenants, keys.tenant(name), keys.reply(randomUUID())],
      [name, MAX_TENANTS, REPLY_MS, ...Object.entries(fields).flat()],
    );
    if (reply === 1) return 'created';
    return reply === 0 ? 'exists' : 'full';
  }

  /** Creates the tenant when it does not exist. */
  async ensure(name: string): Promise<void> {
    if ((await this.create(name)) === 'full') {
      throw new StoreError('invalid-argument', `There are ${MAX_TENANTS} tenants, which is the limit.`);
    }
  }

  async get(name: string): Promise<Tenant | null> {
    if (!TENANT_NAME.test(name)) return null;
    return toTenant(name, await this.#store.call((redis) => redis.hgetall(this.#store.keys.tenant(name))));
  }

  /** Sorted by name. */
  async list(): Promise<Tenant[]> {
    const { keys } = this.#store;
    const names = (await this.#store.call((redis) => redis.smembers(keys.tenants))).sort();
    const records = await this.#store.call((redis) =>
      Promise.all(names.map(async (name) => toTenant(name, await redis.hgetall(keys.tenant(name))))),
    );
    return records.filter((tenant) => tenant !== null);
  }

  /**
   * Changes the given settings; returns false when there is no such tenant. Admission applies weight and suspension from its next round on.
   * Latency targets apply to later invocations.
   */
  async change(name: string, settings: TenantSettings): Promise<boolean> {
    if (!TENANT_NAME.test(name)) return false;
    const fields = Object.entries(toFields(settings)).flat();
    return (await this.#store.script(SCRIPTS.change, [this.#store.keys.tenant(name)], fields)) === 1;
  }
}

function toFields({ weight, suspended, latency }: TenantSettings): Record<string, string> {
  if (weight !== undefined && !(Number.isInteger(weight) && weight >= WEIGHT.least && weight <= WEIGHT.most)) {
    throw new StoreError('invalid-argument', `A weight is a whole number from ${WEIGHT.least} to ${WEIGHT.most}.`);
  }
  if (latency && !areLatencyTargets(latency)) {
    throw new StoreError('invalid-argument', 'Latency targets are whole numbers of milliseconds within their bounds.');
  }
  return {
    ...(weight !== undefined && { weight: String(weight) }),
    ...(suspended !== undefined && { suspended: suspended ? '1' : '0' }),
    ...(latency !== undefined && { latency: latency === null ? '' : targetsText(latency) }),
  };
}

function toTenant(name: string, fields: Record<string, string>): Tenant | null {
  if (fields.createdAt === undefined) return null;
  return {
    name,
    createdAt: fields.createdAt,
    weight: Number(fields.weight ?? WEIGHT.usual),
    suspended: fields.suspended === '1',
    latency: fields.latency ? (JSON.parse(fields.latency) as LatencyTargets) : null,
  };
}

function targetsText({ firstTokenMs, perTokenMs }: LatencyTargets): string {
  return JSON.stringify({ firstTokenMs, perTokenMs });
}

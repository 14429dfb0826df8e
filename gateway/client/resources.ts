import type {
  ApiKey,
  AuditEntry,
  CreatedKey,
  GpuHostChange,
  GpuHostState,
  InvocationPage,
  InvocationQuery,
  JoinToken,
  JoinTokenRequest,
  MachineChange,
  MachineState,
  NewKey,
  PlatformLoad,
  AuditQuery as Query,
  Schedule,
  Secret,
  Tenant,
  TenantChange,
} from '../app/control.ts';
import type { ScheduleSettings } from '../app/routes/schedules.ts';
import type { MinuteRow, QuotaChange, QuotaFilter, QuotaStatus, UsageQuery, UsageRow } from '../app/schemas/quotas.ts';
import { type CallOptions, common, type Http, queryOf, withBody, withQuery } from './http.ts';

/** Without a limit, a page has 50 invocations. */
export interface InvocationListQuery extends CallOptions, Partial<InvocationQuery> {}

/** Lists of invocations, load, GPU hosts, machines, join tokens and the webhook secret. */
export class OperationsClient {
  readonly #http: Http;

  constructor(http: Http) {
    this.#http = http;
  }

  /** A page of invocations, newest first, without their outputs. More pages follow while `cursor` is not null. */
  async invocations(query: InvocationListQuery = {}): Promise<InvocationPage> {
    const status = [query.status ?? []].flat().join() || undefined;
    return this.#http.json(withQuery('/v1/invocations', { ...queryOf(query), status }), common(query));
  }

  /** Load of the platform; operators only. */
  async load(options: CallOptions = {}): Promise<PlatformLoad> {
    return this.#http.json('/v1/load', common(options));
  }

  /**
   * Drains a GPU host, or ends its drain; operators only. Resolves when all runtimes that use the host know of the change, at the latest after
   * the time of a runtime's lease.
   */
  async changeGpuHost(name: string, change: GpuHostChange, options: CallOptions = {}): Promise<GpuHostState> {
    return this.#http.json(`/v1/gpu-hosts/${encodeURIComponent(name)}`, withBody(options, 'PATCH', change));
  }

  /** Drains a machine with its GPU hosts, or ends their drain; operators only. Resolves like {@link changeGpuHost}. */
  async changeMachine(name: string, change: MachineChange, options: CallOptions = {}): Promise<MachineState> {
    return this.#http.json(`/v1/machines/${encodeURIComponent(name)}`, withBody(options, 'PATCH', change));
  }

  /** Makes a token with which one machine may join; operators only. */
  async createJoinToken(request: Partial<JoinTokenRequest> = {}, options: CallOptions = {}): Promise<JoinToken> {
    return this.#http.json('/v1/machines/tokens', withBody(options, 'POST', request));
  }

  /** Removes a machine for good; operators only. */
  async removeMachine(name: string, options: CallOptions = {}): Promise<void> {
    await this.#http.request(`/v1/machines/${encodeURIComponent(name)}`, { ...common(options), method: 'DELETE' });
  }

  /** The secret that signs the tenant's webhooks; `rotate` makes a new one. */
  async webhookSecret(options: CallOptions & { readonly rotate?: boolean } = {}): Promise<string> {
    const method = options.rotate === true ? 'POST' : 'GET';
    return (await this.#http.json<{ secret: string }>('/v1/webhooks/secret', { ...common(options), method })).secret;
  }
}

interface QuotaQuery extends CallOptions, QuotaFilter {}

/** By default, usage of the key's own tenant by day. */
interface UsageOptions extends CallOptions, Partial<UsageQuery> {}

/** Limits, their use, and usage. */
export class QuotasClient {
  readonly #http: Http;

  constructor(http: Http) {
    this.#http = http;
  }

  /** Lists every limit in force. */
  async list(query: QuotaQuery = {}): Promise<readonly QuotaStatus[]> {
    const path = withQuery('/v1/quotas', queryOf(query));
    return (await this.#http.json<{ quotas: QuotaStatus[] }>(path, common(query))).quotas;
  }

  /** Sets a limit. Returns the limit that is then in force, or null when there is none. Operators only. */
  async set(change: QuotaChange, options: CallOptions & { readonly tenant?: string | undefined } = {}) {
    const { tenant } = options;
    const body = { ...change, ...(tenant === undefined ? {} : { tenant }) };
    const path = '/v1/quotas';
    return (await this.#http.json<{ quota: QuotaStatus | null }>(path, withBody(options, 'PUT', body))).quota;
  }

  async usage(options: UsageOptions = {}): Promise<readonly UsageRow[]> {
    return (await this.#http.json<{ usage: UsageRow[] }>(usagePath(options), common(options))).usage;
  }

  /** The usage as CSV with a header line. */
  async usageCsv(options: UsageOptions = {}): Promise<string> {
    const { headers, ...otherOptions } = common(options);
    const csvRequest = { ...otherOptions, headers: { ...headers, accept: 'text/csv' } };
    const response = await this.#http.request(usagePath(options), csvRequest);
    return this.#http.text(response, otherOptions.signal);
  }

  /** Per-minute numbers of a tenant, oldest first, for at most 180 minutes. */
  async minutes(minutes: number, options: CallOptions & { readonly tenant?: string | undefined } = {}) {
    const path = withQuery('/v1/usage/minutes', { minutes, tenant: options.tenant });
    return (await this.#http.json<{ minutes: MinuteRow[] }>(path, common(options))).minutes;
  }
}

function usagePath({ perFunction, ...options }: UsageOptions): string {
  return withQuery('/v1/usage', { ...queryOf(options), 'per-function': perFunction === true ? 'true' : undefined });
}

export type { ScheduleSettings };

/** Schedules of the key's tenant. */
export class SchedulesClient {
  readonly #http: Http;

  constructor(http: Http) {
    this.#http = http;
  }

  /** Lists schedules by name. */
  async list(options: CallOptions = {}): Promise<readonly Schedule[]> {
    return (await this.#http.json<{ schedules: Schedule[] }>('/v1/schedules', common(options))).schedules;
  }

  /** Stores a schedule, or replaces the one of its name. */
  async put(name: string, settings: ScheduleSettings, options: CallOptions = {}): Promise<Schedule> {
    return this.#http.json(schedulePath(name), withBody(options, 'PUT', settings));
  }

  /** Resumes a suspended schedule, and leaves any other one as it is. */
  async resume(name: string, options: CallOptions = {}): Promise<Schedule> {
    return this.#http.json(`${schedulePath(name)}/resume`, { ...common(options), method: 'POST' });
  }

  async remove(name: string, options: CallOptions = {}): Promise<void> {
    await this.#http.request(schedulePath(name), { ...common(options), method: 'DELETE' });
  }
}

function schedulePath(name: string): string {
  return `/v1/schedules/${encodeURIComponent(name)}`;
}

/** Secrets of the key's tenant. The API never returns their values. */
export class SecretsClient {
  readonly #http: Http;

  constructor(http: Http) {
    this.#http = http;
  }

  /** Lists secrets by name. */
  async list(options: CallOptions = {}): Promise<readonly Secret[]> {
    return (await this.#http.json<{ secrets: Secret[] }>('/v1/secrets', common(options))).secrets;
  }

  /** Stores a new revision of a secret. Deployed versions keep the revision that they were deployed with. */
  async set(name: string, value: string, options: CallOptions = {}): Promise<Secret> {
    return this.#http.json(secretPath(name), withBody(options, 'PUT', { value }));
  }

  async remove(name: string, options: CallOptions = {}): Promise<void> {
    await this.#http.request(secretPath(name), { ...common(options), method: 'DELETE' });
  }
}

function secretPath(name: string): string {
  return `/v1/secrets/${encodeURIComponent(name)}`;
}

interface AuditQuery extends CallOptions, Partial<Query> {}

/** Tenants, their API keys, and the audit log. */
export class TenantsClient {
  readonly #http: Http;

  constructor(http: Http) {
    this.#http = http;
  }

  /** Lists tenants by name; without the scope `operator` only the key's own. */
  async list(options: CallOptions = {}): Promise<readonly Tenant[]> {
    return (await this.#http.json<{ tenants: Tenant[] }>('/v1/tenants', common(options))).tenants;
  }

  async get(name: string, options: CallOptions = {}): Promise<Tenant> {
    return this.#http.json(tenantPath(name), common(options));
  }

  async create(name: string, change: TenantChange = {}, options: CallOptions = {}): Promise<Tenant> {
    return this.#http.json('/v1/tenants', withBody(options, 'POST', { name, ...change }));
  }

  async change(name: string, change: TenantChange, options: CallOptions = {}): Promise<Tenant> {
    return this.#http.json(tenantPath(name), withBody(options, 'PATCH', change));
  }

  /** Keys of a tenant; of the caller's own tenant by default. */
  async keys(tenant?: string, options: CallOptions = {}): Promise<readonly ApiKey[]> {
    return (await this.#http.json<{ keys: ApiKey[] }>(keysPath(tenant), common(options))).keys;
  }

  /** Creates a key. No other answer ever contains the text of the key. */
  async createKey(key: NewKey, tenant?: string, options: CallOptions = {}): Promise<CreatedKey> {
    return this.#http.json(keysPath(tenant), withBody(options, 'POST', key));
  }

  /** Replaces a key; the old one works for `graceMs` longer. */
  async rotateKey(id: string, graceMs: number, tenant?: string, options: CallOptions = {}): Promise<CreatedKey> {
    const path = `${keysPath(tenant)}/${encodeURIComponent(id)}/rotate`;
    return this.#http.json(path, withBody(options, 'POST', { graceMs }));
  }

  async removeKey(id: string, tenant?: string, options: CallOptions = {}): Promise<void> {
    await this.#http.request(`${keysPath(tenant)}/${encodeURIComponent(id)}`, {
      ...common(options),
      method: 'DELETE',
    });
  }

  /** Administrative acts, newest first. */
  async audit(query: AuditQuery = {}): Promise<readonly AuditEntry[]> {
    const path = withQuery('/v1/audit', queryOf(query));
    return (await this.#http.json<{ entries: AuditEntry[] }>(path, common(query))).entries;
  }
}

function tenantPath(name: string): string {
  return `/v1/tenants/${encodeURIComponent(name)}`;
}

function keysPath(tenant: string | undefined): string {
  return tenant === undefined ? '/v1/keys' : `${tenantPath(tenant)}/keys`;
}

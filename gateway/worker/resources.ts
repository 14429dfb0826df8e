import type {
  Alias,
  ApiKey,
  AuditEntry,
  AuditQuery,
  Call,
  CreatedKey,
  DeployPlan,
  DeployTarget,
  Draining,
  FunctionManifest,
  FunctionVersion,
  GpuHostChange,
  GpuHostState,
  InvocationPage,
  InvocationQuery,
  JoinToken,
  JoinTokenRequest,
  MachineChange,
  MachineState,
  MinuteRow,
  NewKey,
  NewSchedule,
  Operations,
  PlatformLoad,
  QuotaChange,
  QuotaStatus,
  Quotas,
  Releases,
  Rollback,
  RollbackRequest,
  Schedule,
  Schedules,
  Secret,
  Secrets,
  SetAlias,
  StoredSchedule,
  Tenant,
  TenantChange,
  Tenants,
  UsageQuery,
  UsageRow,
} from '../app/control.ts';
import { exactJson } from '../app/http/json.ts';

import { type ClientOf, isFound, options, orNull, translating } from './origin.ts';

/** Lists of invocations, load, GPU hosts, machines, join tokens and the webhook secret, from the origin. */
export class OriginOperations implements Operations {
  readonly #client: ClientOf;

  constructor(client: ClientOf) {
    this.#client = client;
  }

  invocations(call: Call, query: InvocationQuery): Promise<InvocationPage> {
    return translating(() => this.#client(call).operations.invocations({ ...options(call), ...query }));
  }

  load(call: Call): Promise<PlatformLoad> {
    return translating(() => this.#client(call).operations.load(options(call)));
  }

  changeGpuHost(call: Call, name: string, change: GpuHostChange): Promise<GpuHostState | null> {
    return orNull('unknown-gpu-host', () => this.#client(call).operations.changeGpuHost(name, change, options(call)));
  }

  changeMachine(call: Call, name: string, change: MachineChange): Promise<MachineState | null> {
    return orNull('unknown-machine', () => this.#client(call).operations.changeMachine(name, change, options(call)));
  }

  createJoinToken(call: Call, request: JoinTokenRequest): Promise<JoinToken> {
    return translating(() => this.#client(call).operations.createJoinToken(request, options(call)));
  }

  removeMachine(call: Call, name: string): Promise<boolean> {
    return isFound('unknown-machine', () => this.#client(call).operations.removeMachine(name, options(call)));
  }

  webhookSecret(call: Call, rotate: boolean): Promise<string> {
    return translating(() => this.#client(call).operations.webhookSecret({ ...options(call), rotate }));
  }
}

/** Limits and usage by HTTP: the origin stores them, and decides about access. */
export class OriginQuotas implements Quotas {
  readonly #client: ClientOf;

  constructor(client: ClientOf) {
    this.#client = client;
  }

  status(call: Call, tenant: string, fn?: string): Promise<readonly QuotaStatus[]> {
    return translating(() => this.#client(call).quotas.list({ ...options(call), tenant, function: fn }));
  }

  set(call: Call, tenant: string, change: QuotaChange): Promise<QuotaStatus | null> {
    return translating(() => this.#client(call).quotas.set(change, { ...options(call), tenant }));
  }

  usage(call: Call, query: UsageQuery): Promise<readonly UsageRow[]> {
    return translating(() => this.#client(call).quotas.usage({ ...options(call), ...query }));
  }

  minutes(call: Call, tenant: string, minutes: number): Promise<readonly MinuteRow[]> {
    return translating(() => this.#client(call).quotas.minutes(minutes, { ...options(call), tenant }));
  }
}

/** Schedules at the edge. Each call becomes an HTTP request to the origin (a Node gateway), which stores the schedules and submits invocations. */
export class OriginSchedules implements Schedules {
  readonly #client: ClientOf;

  constructor(client: ClientOf) {
    this.#client = client;
  }

  list(call: Call): Promise<readonly StoredSchedule[]> {
    return translating(async () => (await this.#client(call).schedules.list(options(call))).map(toStored));
  }

  put(call: Call, { name, function: fn, input, timing }: NewSchedule): Promise<StoredSchedule | null> {
    // No check of the input here: the origin resolves the reference to a version, and checks the input against that version.
    const reference = fn.version === undefined ? fn.name : `${fn.name}@${fn.version}`;
    const settings = { function: reference, input: exactJson(input), ...timing };
    return orNull('unknown-function', async () =>
      toStored(await this.#client(call).schedules.put(name, settings, options(call))),
    );
  }

  resume(call: Call, name: string): Promise<StoredSchedule | null> {
    return orNull('unknown-schedule', async () =>
      toStored(await this.#client(call).schedules.resume(name, options(call))),
    );
  }

  remove(call: Call, name: string): Promise<boolean> {
    return isFound('unknown-schedule', () => this.#client(call).schedules.remove(name, options(call)));
  }
}

const toStored = ({ input, ...schedule }: Schedule): StoredSchedule => ({
  ...schedule,
  inputText: JSON.stringify(input),
});

/** Secrets by HTTP: the origin stores them. */
export class OriginSecrets implements Secrets {
  readonly #client: ClientOf;

  constructor(client: ClientOf) {
    this.#client = client;
  }

  list(call: Call): Promise<readonly Secret[]> {
    return translating(() => this.#client(call).secrets.list(options(call)));
  }

  set(call: Call, name: string, value: string): Promise<Secret> {
    return translating(() => this.#client(call).secrets.set(name, value, options(call)));
  }

  remove(call: Call, name: string): Promise<boolean> {
    return isFound('unknown-secret', () => this.#client(call).secrets.remove(name, options(call)));
  }
}

/** Tenants, keys and the audit log by HTTP: the origin stores them, and decides about access. */
export class OriginTenants implements Tenants {
  readonly #client: ClientOf;

  constructor(client: ClientOf) {
    this.#client = client;
  }

  list(call: Call): Promise<readonly Tenant[]> {
    return translating(() => this.#client(call).tenants.list(options(call)));
  }

  get(call: Call, name: string): Promise<Tenant | null> {
    return orNull('unknown-tenant', () => this.#client(call).tenants.get(name, options(call)));
  }

  create(call: Call, name: string, change: TenantChange): Promise<Tenant> {
    return translating(() => this.#client(call).tenants.create(name, change, options(call)));
  }

  change(call: Call, name: string, change: TenantChange): Promise<Tenant | null> {
    return orNull('unknown-tenant', () => this.#client(call).tenants.change(name, change, options(call)));
  }

  keys(call: Call, tenant: string): Promise<readonly ApiKey[]> {
    return translating(() => this.#client(call).tenants.keys(tenant, options(call)));
  }

  createKey(call: Call, tenant: string, key: NewKey): Promise<CreatedKey> {
    return translating(() => this.#client(call).tenants.createKey(key, tenant, options(call)));
  }

  rotateKey(call: Call, tenant: string, id: string, graceMs: number): Promise<CreatedKey | null> {
    return orNull('unknown-key', () => this.#client(call).tenants.rotateKey(id, graceMs, tenant, options(call)));
  }

  removeKey(call: Call, tenant: string, id: string): Promise<boolean> {
    return isFound('unknown-key', () => this.#client(call).tenants.removeKey(id, tenant, options(call)));
  }

  audit(call: Call, query: AuditQuery): Promise<readonly AuditEntry[]> {
    return translating(() => this.#client(call).tenants.audit({ ...options(call), ...query }));
  }
}

/** Aliases, rollbacks and removals by HTTP: the origin performs them. */
export class OriginReleases implements Releases {
  readonly #client: ClientOf;

  constructor(client: ClientOf) {
    this.#client = client;
  }

  async aliases(call: Call, name: string): Promise<readonly Alias[]> {
    return (await orNull('unknown-function', () => this.#client(call).aliases(name, options(call)))) ?? [];
  }

  async history(call: Call, name: string, alias: string): Promise<readonly Alias[]> {
    return (await orNull('unknown-alias', () => this.#client(call).aliasHistory(name, alias, options(call)))) ?? [];
  }

  setAlias(call: Call, name: string, alias: string, change: SetAlias): Promise<Alias> {
    return translating(() => this.#client(call).setAlias(name, alias, change, options(call)));
  }

  removeAlias(call: Call, name: string, alias: string): Promise<boolean> {
    return isFound('unknown-alias', () => this.#client(call).removeAlias(name, alias, options(call)));
  }

  rollback(call: Call, name: string, request: RollbackRequest): Promise<Rollback> {
    return translating(() => this.#client(call).rollback(name, request, options(call)));
  }

  plan(call: Call, manifest: FunctionManifest, component: Uint8Array, target: DeployTarget): Promise<DeployPlan> {
    return translating(() =>
      this.#client(call).planDeploy(manifest, new Uint8Array(component), { ...options(call), ...target }),
    );
  }

  removeVersion(call: Call, name: string, version: string, now: boolean): Promise<readonly Draining[] | null> {
    return orNull('unknown-function', () => this.#client(call).removeVersion(name, version, { ...options(call), now }));
  }

  draining(call: Call, name: string): Promise<readonly Draining[]> {
    return translating(() => this.#client(call).draining(name, options(call)));
  }

  liftQuarantine(call: Call, name: string): Promise<readonly string[] | null> {
    return orNull('unknown-function', () => this.#client(call).liftQuarantine(name, options(call)));
  }

  resolve(call: Call, name: string, reference: string | undefined): Promise<FunctionVersion | null> {
    const full = reference === undefined ? name : `${name}@${reference}`;
    return orNull('unknown-function', () => this.#client(call).function(full, { ...options(call), draw: true }));
  }
}

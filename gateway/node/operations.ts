import { setTimeout as sleep } from 'node:timers/promises';
import { FUNCTION_NAME } from '#scheduler/functions/aliases.ts';
import { machineEntry } from '#scheduler/gpu-hosts/drains.ts';
import type { Invocation } from '#scheduler/invocations/types.ts';
import type { JoinedMachine, MachineInfo } from '#scheduler/machines/types.ts';
import { isDrained, servingHost } from '#scheduler/policies/placement.ts';
import { LEASE_MS } from '#scheduler/runtimes/lease.ts';
import type { EncoderLoad as HostEncoderLoad, ModelLoad as HostLoad, RuntimeInfo } from '#scheduler/runtimes/types.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { includesScope } from '#scheduler/tenants/rules.ts';
import { CONTRACT } from '#wit/contract.ts';
import type { Call } from '../app/control.ts';
import { GatewayError, unknownTenant } from '../app/errors/gateway-error.ts';
import { requireScope } from '../app/require-scope.ts';
import type {
  GpuHostChange,
  GpuHostState,
  InvocationPage,
  InvocationQuery,
  JoinToken,
  JoinTokenRequest,
  MachineChange,
  MachineState,
  Operations,
  PlatformLoad,
} from '../app/resources/operations.ts';
import { gpuHostsOf, runningOn } from './gpu-hosts.ts';
import type { InvocationAccess } from './invocation-access.ts';
import type { Joining } from './joining.ts';
import { toInvocationState } from './present.ts';
import { translating } from './store-errors.ts';

/** Longest wait until all runtimes know of a drain. A runtime that does not hear of it for a whole lease counts as dead. */
const DRAIN_WAIT_MS = LEASE_MS;
const DRAIN_POLL_MS = 20;

/** Lists of invocations, load, GPU hosts, machines, join tokens and the webhook secret, in Redis. */
export class NodeOperations implements Operations {
  readonly #scheduler: Scheduler;
  readonly #joining: Joining;
  readonly #access: InvocationAccess;

  constructor(scheduler: Scheduler, joining: Joining, access: InvocationAccess) {
    this.#scheduler = scheduler;
    this.#joining = joining;
    this.#access = access;
  }

  invocations(call: Call, query: InvocationQuery): Promise<InvocationPage> {
    return translating(async () => {
      const { tenant = call.principal.tenant, function: name, status, limit, cursor } = query;
      if (tenant !== call.principal.tenant) {
        requireScope(call, 'operator');
        if ((await this.#scheduler.tenants.get(tenant)) === null) throw unknownTenant(tenant);
      }
      if (name !== undefined && !FUNCTION_NAME.test(name)) return { invocations: [], cursor: null };
      await this.#access.recordList(call, tenant);
      const statuses = typeof status === 'string' ? [status] : (status ?? []);
      const page = await this.#scheduler.invocations.list(tenant, { function: name, statuses, limit, cursor });
      const hostOf = await this.#servingHosts(call, page.invocations);
      return {
        invocations: page.invocations.map((record) => {
          const gpuHost = hostOf(record);
          return { ...toInvocationState(record), tenant, ...(gpuHost !== null && { gpuHost }) };
        }),
        cursor: page.cursor,
      };
    });
  }

  load(call: Call): Promise<PlatformLoad> {
    return translating(async () => {
      requireScope(call, 'operator');
      const { machines, runtimes, admission, drains, redisUsers } = this.#scheduler;
      const [allRuntimes, tenants, registeredMachines, drainedNames, joinedMachines] = await Promise.all([
        runtimes.list(),
        admission.tenants(),
        machines.list(),
        drains.names(),
        redisUsers.joined(),
      ]);
      const registeredNames = new Set(registeredMachines.map(({ name }) => name));
      const joinedAt = new Map(joinedMachines.map((machine) => [machine.name, machine.joinedAt]));
      const sum = (of: 'waiting' | 'running') => tenants.reduce((total, tenant) => total + tenant[of], 0);
      return {
        machines: [
          ...registeredMachines.map((machine) =>
            machineOf(machine, allRuntimes, drainedNames, joinedAt.get(machine.name)),
          ),
          ...joinedMachines
            .filter(({ name }) => !registeredNames.has(name))
            .map((machine) => absentMachine(machine, drainedNames)),
        ],
        runtimes: allRuntimes.map(({ name, machine = null, alive, slots, isolation, limits, load }) => ({
          name,
          machine,
          alive,
          slots,
          isolation: isolation?.layers ?? null,
          isolationNotice: isolation?.notice ?? null,
          limits: limits ? { ...limits, notice: limits.notice ?? null } : null,
          running: load?.running ?? 0,
        })),
        otherContracts: allRuntimes
          .filter(({ alive, accepting, contract }) => alive && accepting !== false && contract !== CONTRACT)
          .map(({ name }) => name),
        gpuHosts: gpuHostsOf(allRuntimes),
        ...loadsOf(allRuntimes),
        waiting: sum('waiting'),
        running: sum('running'),
        tenants,
      };
    });
  }

  /** Finds the GPU host of each running invocation, for operators. The runtimes' reports name the hosts; the invocations' records do not. */
  async #servingHosts(call: Call, records: readonly Invocation[]): Promise<(record: Invocation) => string | null> {
    const hasRunning = records.some(({ status }) => status === 'running');
    if (!hasRunning || !includesScope(call.principal.scopes, 'operator')) return () => null;
    const runtimes = new Map((await this.#scheduler.runtimes.list()).map((runtime) => [runtime.id, runtime]));
    const roots = await this.#rootsOf(records);
    return (record) => {
      const runtime = record.status === 'running' ? runtimes.get(record.runtimeId ?? '') : undefined;
      const { placement, startedAt } = roots.get(record.root ?? '') ?? record;
      return runtime ? servingHost(runtime, { ...record, placement, startedAt }) : null;
    };
  }

  /** The roots of the running invocations, by id: the GPU host of a root also serves its children. Leaves out roots that have not begun. */
  async #rootsOf(records: readonly Invocation[]): Promise<ReadonlyMap<string, Invocation>> {
    const ids = new Set(records.flatMap(({ status, root }) => (status === 'running' && root !== null ? [root] : [])));
    const roots = await Promise.all([...ids].map((id) => this.#scheduler.invocations.get(id)));
    return new Map(roots.flatMap((root) => (root?.startedAt == null ? [] : [[root.id, root] as const])));
  }

  changeGpuHost(call: Call, name: string, { drained, force = false }: GpuHostChange): Promise<GpuHostState | null> {
    return translating(async () => {
      requireScope(call, 'operator');
      const { keyId, tenant } = call.principal;
      const { drains, audit } = this.#scheduler;
      if (drained) {
        const outcome = await drains.drain(name, { by: keyId, force });
        if (outcome === 'unknown') return null;
        if (outcome === 'last')
          throw new GatewayError('conflict', `${name} is the last available GPU host that is not drained.`, {
            hint: `First undrain another GPU host (\`pie gpu-hosts undrain\`), or use \`pie gpu-hosts drain ${name} --force\`: new invocations then wait in the queue until a GPU host is available.`,
          });
        if (outcome === 'drained') await audit.record(keyId, tenant, 'gpu-host.drain', name, force ? { force } : {});
      } else {
        if (!gpuHostsOf(await this.#scheduler.runtimes.list()).some((host) => host.name === name)) return null;
        if (await drains.undrain(name)) await audit.record(keyId, tenant, 'gpu-host.undrain', name);
      }
      const runtimes = await this.#whenKnown((runtime) => isBehind(runtime, [name], drained));
      return gpuHostsOf(runtimes).find((host) => host.name === name) ?? null;
    });
  }

  /** Waits until no living runtime lags behind a change of a drain, but at most `DRAIN_WAIT_MS`. Returns the runtimes. */
  async #whenKnown(lags: (runtime: RuntimeInfo) => boolean): Promise<readonly RuntimeInfo[]> {
    for (const giveUpAt = performance.now() + DRAIN_WAIT_MS; ; await sleep(DRAIN_POLL_MS)) {
      const runtimes = await this.#scheduler.runtimes.list();
      const isKnown = !runtimes.some((runtime) => runtime.alive && lags(runtime));
      if (isKnown || performance.now() > giveUpAt) return runtimes;
    }
  }

  changeMachine(call: Call, name: string, { drained, force = false }: MachineChange): Promise<MachineState | null> {
    return translating(async () => {
      requireScope(call, 'operator');
      const { keyId, tenant } = call.principal;
      const { drains, machines, redisUsers, audit } = this.#scheduler;
      const machine = (await machines.list()).find((each) => each.name === name);
      const joinedMachine = (await redisUsers.joined()).find((each) => each.name === name);
      if (!machine && joinedMachine)
        throw new GatewayError('conflict', `The machine ${name} is stopped, so its GPU hosts are not known.`, {
          hint: `Start it (\`pie up\` there) before you drain or undrain it. A drain that it has holds at the start.`,
        });
      if (!machine) return null;
      if (drained) {
        const outcome = await drains.drainMachine(machine, { by: keyId, force });
        if (outcome === 'last')
          throw new GatewayError('conflict', 'This drain would leave no runtime that reaches an undrained GPU host.', {
            hint: `First undrain another machine (\`pie machines undrain\`), or use \`pie machines drain ${name} --force\`: new invocations then wait in the queue until one is available.`,
          });
        if (outcome === 'drained') await audit.record(keyId, tenant, 'machine.drain', name, force ? { force } : {});
      } else if (await drains.undrainMachine(machine)) await audit.record(keyId, tenant, 'machine.undrain', name);
      const hostNames = machine.gpuHosts.map((host) => host.name);
      // A drain also waits until the machine's runtime stops accepting work. An undrain does not wait for the opposite: the runtime may pause
      // for other reasons.
      const stillAccepts = (runtime: RuntimeInfo) => drained && runtime.machine === name && runtime.accepting === true;
      const lags = (runtime: RuntimeInfo) => stillAccepts(runtime) || isBehind(runtime, hostNames, drained);
      const runtimes = await this.#whenKnown(lags);
      return machineOf(machine, runtimes, await drains.names(), joinedMachine?.joinedAt);
    });
  }

  createJoinToken(call: Call, { ttlSeconds, roles }: JoinTokenRequest): Promise<JoinToken> {
    return translating(async () => {
      requireScope(call, 'operator');
      const { keyId, tenant } = call.principal;
      // Computed before Redis stores the token, so that Redis keeps the token at least until `expiresAt`.
      const expiresAt = new Date(Date.now() + ttlSeconds * 1000).toISOString();
      const token = await this.#joining.createToken(ttlSeconds * 1000, { roles, by: keyId, tenant });
      await this.#scheduler.audit.record(keyId, tenant, 'machine.token', 'machines', { ttlSeconds, roles });
      return { token, expiresAt };
    });
  }

  removeMachine(call: Call, name: string): Promise<boolean> {
    return translating(async () => {
      requireScope(call, 'operator');
      const { keyId, tenant } = call.principal;
      const { machines, redisUsers, audit } = this.#scheduler;
      const removed = await machines.remove(name);
      // A gateway whose Redis user may not delete users leaves this to a process that may: the removal reaches that process as a message.
      if (removed && (await redisUsers.mayChange())) await redisUsers.reconcile();
      if (removed) await audit.record(keyId, tenant, 'machine.remove', name);
      return removed;
    });
  }

  webhookSecret(call: Call, rotate: boolean): Promise<string> {
    return translating(async () => {
      requireScope(call, 'admin');
      const { tenant, keyId } = call.principal;
      const { webhookSecrets, audit } = this.#scheduler;
      const secret = await (rotate ? webhookSecrets.rotate(tenant) : webhookSecrets.get(tenant));
      await audit.record(keyId, tenant, rotate ? 'webhook-secret.rotate' : 'webhook-secret.read', 'webhooks');
      return secret;
    });
  }
}

/** True while a runtime reports for one of these GPU hosts another state than `drained` says. */
function isBehind({ gpuHosts = [] }: RuntimeInfo, hostNames: readonly string[], drained: boolean): boolean {
  return gpuHosts.some((host) => hostNames.includes(host.name) && isDrained(host) !== drained);
}

function machineOf(
  { name, roles, alive, host, version, startedAt, gpuHosts }: MachineInfo,
  runtimes: readonly RuntimeInfo[],
  drainedNames: ReadonlySet<string>,
  joinedAt: number | undefined,
): MachineState {
  const ownHostNames = [...new Set(gpuHosts.map((each) => each.name))];
  const runningHere = ({ machine, alive: isAlive, load }: RuntimeInfo): number => {
    if (!isAlive || !load) return 0;
    // A runtime of this machine counts all its invocations; a runtime of another machine, only those that this machine's GPU hosts serve.
    if (machine === name) return load.running;
    return ownHostNames.reduce((total, host) => total + runningOn(host, load), 0);
  };
  return {
    name,
    roles,
    alive,
    host,
    version,
    startedAt: new Date(startedAt).toISOString(),
    joinedAt: timeOf(joinedAt),
    drained: drainedNames.has(machineEntry(name)),
    running: runtimes.reduce((total, runtime) => total + runningHere(runtime), 0),
  };
}

/** A machine that has joined and does not run: it was never started, or it was stopped. */
function absentMachine({ name, roles, joinedAt }: JoinedMachine, drainedNames: ReadonlySet<string>): MachineState {
  const absentState = { alive: false, host: null, version: null, startedAt: null, running: 0 };
  const drained = drainedNames.has(machineEntry(name));
  return { name, roles, ...absentState, joinedAt: timeOf(joinedAt), drained };
}

/** The time of joining. Null for a machine that joined without a token, or whose time of joining was not recorded. */
const timeOf = (at: number | undefined): string | null => (at ? new Date(at).toISOString() : null);

/** Lists each model and encoder of each GPU host once, although all runtimes that use the host report it. */
function loadsOf(runtimes: readonly RuntimeInfo[]): Pick<PlatformLoad, 'models' | 'encoders'> {
  const models = new Map<string, HostLoad>();
  const encoders = new Map<string, HostEncoderLoad>();
  const names = new Map<string, string>();
  for (const { alive, load, gpuHosts = [] } of runtimes) {
    if (!alive) continue;
    for (const { hostId, name } of gpuHosts) if (hostId !== undefined) names.set(hostId, name);
    for (const model of load?.models ?? []) models.set(`${model.hostId} ${model.model}`, model);
    for (const encoder of load?.encoders ?? []) encoders.set(`${encoder.hostId} ${encoder.encoder}`, encoder);
  }
  return {
    models: [...models.values()].map(
      ({
        model,
        hostId,
        pages,
        freePages,
        cachedPages,
        batchSize,
        utilisation,
        hitRate,
        tokensPerSecond,
        efficientTokens,
        stepTimes,
      }) => ({
        model,
        gpuHost: names.get(hostId) ?? null,
        pages,
        freePages,
        cachedPages,
        utilisation,
        batchSize: batchSize > 0 ? batchSize : null,
        hitRate: tokensPerSecond > 0 ? hitRate : null,
        efficientTokens: efficientTokens ?? null,
        stepTimes: stepTimes ?? { tokens: [], sequences: [] },
      }),
    ),
    encoders: [...encoders.values()].map(({ hostId, device, batchSize, ...rest }) => ({
      ...rest,
      gpuHost: names.get(hostId) ?? null,
      device: device.name,
      deviceIndex: device.index ?? null,
      batchSize: batchSize > 0 ? batchSize : null,
    })),
  };
}

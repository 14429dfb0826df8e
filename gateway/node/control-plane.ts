import { FUNCTION_NAME, parseManifest, resolveLimits } from '#scheduler/functions/manifest.ts';
import type { FunctionVersion as StoredVersion } from '#scheduler/functions/types.ts';
import {
  MAX_FAMILY_FILES_BYTES,
  MAX_FILES,
  MAX_FILES_BYTES,
  MAX_TENANT_FILES_BYTES,
} from '#scheduler/invocations/file-rules.ts';
import type { FileInfo } from '#scheduler/invocations/files.ts';
import { newInvocationId } from '#scheduler/invocations/id.ts';
import { hasEnded, type Invocation, type InvocationLimits } from '#scheduler/invocations/types.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import type { Operations } from '../app/control/operations.ts';
import type { Quotas } from '../app/control/quotas.ts';
import type { Releases } from '../app/control/releases.ts';
import type { Secrets } from '../app/control/secrets.ts';
import type { Tenants } from '../app/control/tenants.ts';
import type {
  Call,
  ControlPlane,
  Deployed,
  Deployment,
  FileContent,
  FunctionReference,
  FunctionVersion,
  Health,
  InvocationEvent,
  InvocationFile,
  InvocationState,
  InvokeRequest,
  LogEntry,
  LogOptions,
  ModelInfo,
  Principal,
  SessionMessage,
} from '../app/control.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';
import type { Keys } from './keys.ts';
import { readLogs } from './logs.ts';
import { NodeOperations } from './operations.ts';
import { toFunctionVersion, toInvocationState, toModels } from './present.ts';
import { NodeQuotas } from './quotas.ts';
import { NodeReleases } from './releases.ts';
import { NodeSecrets } from './secrets.ts';
import { translating, translatingStream } from './store-errors.ts';
import { NodeTenants } from './tenants.ts';

export interface NodeControlPlaneOptions {
  /** What a function gets whose manifest asks for nothing. */
  readonly limits: InvocationLimits;
  /** From submission to the end, waiting included, on top of a function's own wall time. */
  readonly queueMs?: number;
  /** Invocations of one tenant that may wait for their turn; no bound without it. */
  readonly maxWaiting?: number;
  /** Other names of models: alias to model. */
  readonly modelAliases?: ReadonlyMap<string, string>;
}

/** Whoever asks for health asks again soon. */
const HEALTH_DEADLINE_MS = 1000;

const INVOCATION_ID = /^[A-Za-z0-9_-]{1,128}$/;

/** How long an invocation may wait for its turn, unless told otherwise. */
const DEFAULT_QUEUE_MS = 300_000;

/** The control plane on Redis: what the gateway of Node serves. */
export class NodeControlPlane implements ControlPlane {
  readonly releases: Releases;
  readonly secrets: Secrets;
  readonly tenants: Tenants;
  readonly quotas: Quotas;
  readonly operations: Operations;
  readonly #scheduler: Scheduler;
  readonly #keys: Keys;
  readonly #limits: InvocationLimits;
  readonly #queueMs: number;
  readonly #maxWaiting: number | undefined;
  readonly #modelAliases: ReadonlyMap<string, string>;
  /** What was read for the app comes back in `invoke`: it need not be read twice. */
  readonly #stored = new WeakMap<FunctionVersion, StoredVersion>();

  constructor(scheduler: Scheduler, keys: Keys, options: NodeControlPlaneOptions) {
    this.releases = new NodeReleases();
    this.secrets = new NodeSecrets();
    this.tenants = new NodeTenants();
    this.quotas = new NodeQuotas();
    this.operations = new NodeOperations();
    this.#scheduler = scheduler;
    this.#keys = keys;
    this.#limits = options.limits;
    this.#queueMs = options.queueMs ?? DEFAULT_QUEUE_MS;
    this.#maxWaiting = options.maxWaiting;
    this.#modelAliases = options.modelAliases ?? new Map();
  }

  authenticate(apiKey: string): Promise<Principal | null> {
    return translating(() => this.#keys.authenticate(apiKey));
  }

  functions({ principal }: Call): Promise<readonly FunctionVersion[]> {
    return translating(async () => {
      const stored = await this.#scheduler.functions.visible(principal.tenant);
      return stored.map(toFunctionVersion).sort((a, b) => (a.name < b.name ? -1 : 1));
    });
  }

  function({ principal }: Call, { name, version }: FunctionReference): Promise<FunctionVersion | null> {
    return translating(async () => {
      if (!FUNCTION_NAME.test(name)) return null;
      const stored = await this.#scheduler.functions.find(principal.tenant, name, version);
      if (stored === null) return null;
      const shown = toFunctionVersion(stored);
      this.#stored.set(shown, stored);
      return shown;
    });
  }

  versions({ principal }: Call, name: string): Promise<readonly FunctionVersion[]> {
    return translating(async () => {
      if (!FUNCTION_NAME.test(name)) return [];
      return (await this.#scheduler.functions.visibleVersions(principal.tenant, name)).map(toFunctionVersion);
    });
  }

  deploy({ principal, signal }: Call, { manifest, component }: Deployment): Promise<Deployed> {
    return translating(async () => {
      const parsed = parseManifest(manifest);
      if (!parsed.ok) {
        const faults = parsed.errors.map(({ field, message }) => `${field || 'the whole'} ${message}`);
        const [first] = parsed.errors;
        throw new GatewayError('invalid-manifest', `The manifest is not valid: ${faults.join('; ')}.`, {
          field: first === undefined || first.field === '' ? '' : `/${first.field.replaceAll('.', '/')}`,
        });
      }
      const outcome = await this.#scheduler.deployments.deploy(
        { tenant: principal.tenant, manifest: parsed.manifest, component, defaults: this.#limits },
        { signal },
      );
      if (!outcome.ok) throw new GatewayError(outcome.code, outcome.message, { hint: outcome.hint });
      return { function: toFunctionVersion(outcome.version), created: outcome.created };
    });
  }

  removeFunction({ principal }: Call, name: string): Promise<boolean> {
    return translating(
      async () => FUNCTION_NAME.test(name) && (await this.#scheduler.functions.remove(principal.tenant, name)),
    );
  }

  invoke(call: Call, { function: fn, input, idempotencyKey }: InvokeRequest): Promise<InvocationState> {
    return translating(async () => {
      const { tenant } = call.principal;
      const stored = this.#stored.get(fn) ?? (await this.#scheduler.functions.find(tenant, fn.name, fn.version));
      if (stored?.tenant !== tenant)
        throw new GatewayError('unknown-function', `There is no function "${fn.name}" any more.`);
      const limits = resolveLimits(stored.manifest, this.#limits);
      const submission = {
        id: newInvocationId(),
        tenant,
        function: stored.name,
        version: stored.version,
        submittedAt: Date.now(),
        deadlineMs: limits.wallMs + this.#queueMs,
        restartable: stored.manifest.restartable === true,
        input,
        limits,
        traceparent: call.traceparent,
        ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
        ...(this.#maxWaiting === undefined ? {} : { maxWaiting: this.#maxWaiting }),
      };
      const { id, created } = await this.#scheduler.submit(submission);
      if (!created) return this.#repeated(call.principal, id, stored);
      return {
        id,
        function: stored.name,
        version: stored.version,
        status: 'queued',
        createdAt: new Date(submission.submittedAt).toISOString(),
        lastEventId: 0,
      };
    });
  }

  invocation({ principal }: Call, id: string): Promise<InvocationState | null> {
    return translating(() => this.#state(principal, id));
  }

  events({ signal }: Call, id: string, afterSeq: number): AsyncIterable<InvocationEvent> {
    return translatingStream(
      this.#scheduler.events.follow(id, afterSeq, signal),
      () => new GatewayError('unknown-invocation', `The store has no invocation "${id}" (any more).`),
    );
  }

  sendMessage({ principal }: Call, id: string, message: SessionMessage): Promise<boolean> {
    return translating(async () => {
      const record = await this.#record(principal, id);
      if (record === null) return false;
      if (hasEnded(record.status)) throw ended(id);
      if ('close' in message) {
        await this.#scheduler.inbox.close(id);
        return true;
      }
      const outcome = await this.#scheduler.inbox.push(id, message);
      switch (outcome) {
        case 'ok':
          return true;
        case 'unknown':
          return false;
        case 'ended':
          throw ended(id);
        case 'closed':
          throw new GatewayError('conflict', `The client's side of ${id} was closed before.`);
        case 'too-large':
          throw new GatewayError('body-too-large', 'The message is too large.');
        case 'full':
          throw new GatewayError('too-many-requests', `Too many messages wait for ${id} to receive them.`);
      }
    });
  }

  files({ principal }: Call, id: string): Promise<readonly InvocationFile[] | null> {
    return translating(async () => {
      if ((await this.#record(principal, id)) === null) return null;
      return (await this.#scheduler.files.list(id)).map(toFile);
    });
  }

  file({ principal }: Call, id: string, name: string): Promise<FileContent | null> {
    return translating(async () => {
      if ((await this.#record(principal, id)) === null) {
        throw new GatewayError('unknown-invocation', `There is no invocation "${id}".`);
      }
      return this.#scheduler.files.get(id, name);
    });
  }

  putFile({ principal }: Call, id: string, file: FileContent): Promise<InvocationFile | null> {
    return translating(async () => {
      if ((await this.#record(principal, id)) === null) return null;
      const { name, mediaType, content } = file;
      switch (await this.#scheduler.files.put(id, name, mediaType, content)) {
        case 'ok':
          return { name, mediaType, bytes: content.byteLength };
        case 'unknown':
          return null;
        case 'ended':
          throw ended(id);
        case 'too-many':
          throw new GatewayError('conflict', `The invocation ${id} has ${MAX_FILES} files already.`, {
            hint: 'Replace one of them, or put several into one archive.',
          });
        case 'too-large':
          throw new GatewayError(
            'body-too-large',
            `The files of ${id} would have more than ${MAX_FILES_BYTES} bytes together.`,
          );
        case 'family-full':
          throw new GatewayError(
            'body-too-large',
            `The files of ${id}, its parents and their children would have more than ${MAX_FAMILY_FILES_BYTES} bytes together.`,
          );
        case 'tenant-full':
          throw new GatewayError(
            'too-many-requests',
            `The stored files of this tenant would have more than ${MAX_TENANT_FILES_BYTES} bytes together.`,
            { hint: 'The files of an invocation are kept for a day after its end; fetch less, or try again later.' },
          );
      }
    });
  }

  cancel({ principal }: Call, id: string, reason: string): Promise<InvocationState | null> {
    return translating(async () => {
      if ((await this.#record(principal, id)) === null) return null;
      await this.#scheduler.cancel(id, reason);
      return this.#state(principal, id);
    });
  }

  logs({ principal, signal }: Call, name: string, options: LogOptions): AsyncIterable<LogEntry> {
    return translatingStream(readLogs(this.#scheduler.logs, principal.tenant, name, options, signal));
  }

  models(): Promise<readonly ModelInfo[]> {
    return translating(async () => toModels(await this.#scheduler.runtimes.list(), this.#modelAliases));
  }

  async health(): Promise<Health> {
    try {
      await this.#scheduler.store.ping(HEALTH_DEADLINE_MS);
      const alive = (await this.#scheduler.runtimes.list()).filter((runtime) => runtime.alive);
      const runtimes = { name: 'runtimes', ok: alive.length > 0, detail: `${alive.length} alive` };
      return { ready: runtimes.ok, checks: [{ name: 'store', ok: true }, runtimes] };
    } catch (error) {
      const detail = error instanceof Error ? error.message : String(error);
      return { ready: false, checks: [{ name: 'store', ok: false, detail }] };
    }
  }

  /** The request was made before: its invocation, if it is of the same function. */
  async #repeated(principal: Principal, id: string, { name }: StoredVersion): Promise<InvocationState> {
    const state = await this.#state(principal, id);
    if (state === null || state.function !== name) {
      throw new GatewayError('conflict', 'The idempotency key was used before, for another invocation.', {
        hint: 'Use a new key for every invocation that is meant to be another.',
      });
    }
    return state;
  }

  async #state(principal: Principal, id: string): Promise<InvocationState | null> {
    const record = await this.#record(principal, id);
    if (record === null) return null;
    if (record.status !== 'succeeded') return toInvocationState(record, null);
    const [last] = await this.#scheduler.events.read(id, record.seq - 1, 1);
    return toInvocationState(record, last ?? null);
  }

  /** The record, when it is of the caller's tenant. */
  async #record(principal: Principal, id: string): Promise<Invocation | null> {
    // Whatever else is asked for would be another key of the store.
    if (!INVOCATION_ID.test(id)) return null;
    const record = await this.#scheduler.invocations.get(id);
    return record !== null && record.tenant === principal.tenant ? record : null;
  }
}

function toFile({ name, mediaType, size }: FileInfo): InvocationFile {
  return { name, mediaType, bytes: size };
}

function ended(id: string): GatewayError {
  return new GatewayError('conflict', `The invocation ${id} has ended.`);
}

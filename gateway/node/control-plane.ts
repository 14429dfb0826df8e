import type { PendingFunction } from '#infra/pending-functions.ts';
import { Reach } from '#scheduler/addresses/reach.ts';
import { FUNCTION_NAME } from '#scheduler/functions/aliases.ts';
import { SHARED_FUNCTIONS } from '#scheduler/functions/functions.ts';
import { manifestModels, resolveLimits } from '#scheduler/functions/manifest.ts';
import { isStale, type Resolved } from '#scheduler/functions/resolutions.ts';
import { ownerOf, PLATFORM_TENANT } from '#scheduler/functions/types.ts';
import type { OpenFeed } from '#scheduler/invocations/feed.ts';
import { MAX_MESSAGE_BYTES } from '#scheduler/invocations/inbox.ts';
import { fingerprintOf, newInvocationId } from '#scheduler/invocations/submission.ts';
import { hasEnded, type Invocation, type InvocationLimits, type Position } from '#scheduler/invocations/types.ts';
import type { Logger } from '#scheduler/policies/logger.ts';
import { QuotaExceeded, type QuotaUse } from '#scheduler/quotas/exceeded.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import { includesScope } from '#scheduler/tenants/rules.ts';
import { webhookFault } from '#scheduler/webhooks/webhooks.ts';
import type {
  Call,
  ControlPlane,
  Deployed,
  Deployment,
  Draining,
  FileContent,
  FunctionReference,
  FunctionVersion,
  Health,
  HeldInvocation,
  InvocationEvent,
  InvocationFile,
  Invoked,
  InvokeRequest,
  LogEntry,
  LogOptions,
  ModelInfo,
  Operations,
  PersonAnswer,
  Principal,
  Quotas,
  Releases,
  Schedules,
  Secrets,
  SessionMessage,
  Tenants,
} from '../app/control.ts';
import { GatewayError, inFlight } from '../app/errors/gateway-error.ts';
import { LARGE_BYTES } from '../app/http/answer.ts';
import { rateLimitHeaders } from '../app/http/authenticate.ts';
import { Answers } from './answers.ts';
import { fileRefusal } from './file-refusal.ts';
import { NodeFunctions } from './functions.ts';
import { functionsCheck, notDeployedYet, runningChecks, toPending } from './health.ts';
import { InvocationAccess } from './invocation-access.ts';
import { Joining, type JoinSource } from './joining.ts';
import { type LogSource, readLogs } from './logs.ts';
import { NodeOperations } from './operations.ts';
import { shownUrl, toFile, toInvocationState, toModels, unsent, withOutput, withProofs } from './present.ts';
import { NodeQuotas } from './quotas.ts';
import { NodeReleases } from './releases.ts';
import { NodeSchedules } from './schedules.ts';
import { NodeSecrets } from './secrets.ts';
import { translating, translatingFeed, translatingStream } from './store-errors.ts';
import { NodeTenants, toPrincipal } from './tenants.ts';

export interface NodeControlPlaneOptions {
  /** Limits of a function whose manifest sets none. */
  readonly limits: InvocationLimits;
  /** Longest wait in the queue. The default deadline is this plus the function's own wall time and the delay of a debounce. */
  readonly queueMs?: number;
  /** Models by alias. */
  readonly modelAliases?: ReadonlyMap<string, string>;
  /** The bundled functions that the platform's start has not deployed yet. `health` reports ready only once the awaited ones are deployed. */
  readonly pendingFunctions?: () => readonly PendingFunction[];
  /** Allowed addresses of webhooks; the public internet by default. */
  readonly reach?: Reach;
  /** Settings and keys for machines that join; without them no machine can join. */
  readonly joining?: JoinSource;
  /** Gets the store's faults that `health` meets, since the answer of `health` carries no details. */
  readonly log: Logger;
}

/** Time limit on the store's answer to `health`: clients poll `health`, so a late answer is useless. */
const HEALTH_DEADLINE_MS = 1000;

/** Copies of a large stored text (a result or an input) in memory at once: the text, and the answer made of it. */
const HELD_FACTOR = 2;

const DEFAULT_QUEUE_MS = 300_000;

/** Hint for an invocation that takes nothing more from its client. */
const START_ANOTHER = 'Start another invocation.';

/** The control plane on Redis, for the Node gateway. */
export class NodeControlPlane implements ControlPlane {
  readonly releases: Releases;
  readonly secrets: Secrets;
  readonly tenants: Tenants;
  readonly quotas: Quotas;
  readonly operations: Operations;
  readonly schedules: Schedules;
  readonly #scheduler: Scheduler;
  readonly joining: Joining;
  readonly #answers: Answers;
  readonly #access: InvocationAccess;
  readonly #functions: NodeFunctions;
  readonly #limits: InvocationLimits;
  readonly #queueMs: number;
  readonly #modelAliases: ReadonlyMap<string, string>;
  readonly #pendingFunctions: () => readonly PendingFunction[];
  readonly #reach: Reach;
  readonly #log: Logger;
  /** The store's last fault that `health` logged; empty while the store is well. */
  #storeFault = '';

  constructor(scheduler: Scheduler, options: NodeControlPlaneOptions) {
    this.#functions = new NodeFunctions(scheduler, options.limits);
    this.releases = new NodeReleases(scheduler, this.#functions);
    this.secrets = new NodeSecrets(scheduler);
    this.tenants = new NodeTenants(scheduler);
    this.quotas = new NodeQuotas(scheduler);
    this.schedules = new NodeSchedules(scheduler);
    this.#answers = new Answers(scheduler.questions);
    this.#access = new InvocationAccess(scheduler, () => performance.now());
    this.joining = new Joining(scheduler, options.joining);
    this.operations = new NodeOperations(scheduler, this.joining, this.#access);
    this.#scheduler = scheduler;
    this.#limits = options.limits;
    this.#queueMs = options.queueMs ?? DEFAULT_QUEUE_MS;
    this.#modelAliases = options.modelAliases ?? new Map();
    this.#pendingFunctions = options.pendingFunctions ?? (() => []);
    this.#reach = options.reach ?? new Reach();
    this.#log = options.log;
  }

  authenticate(apiKey: string): Promise<Principal | null> {
    return translating(async () => toPrincipal(await this.#scheduler.apiKeys.authenticate(apiKey)));
  }

  functions(call: Call): Promise<readonly FunctionVersion[]> {
    return this.#functions.list(call);
  }

  function(call: Call, reference: FunctionReference): Promise<FunctionVersion | null> {
    return this.#functions.find(call, reference);
  }

  versions(call: Call, name: string): Promise<readonly FunctionVersion[]> {
    return this.#functions.versions(call, name);
  }

  deploy(call: Call, deployment: Deployment): Promise<Deployed> {
    return this.#functions.deploy(call, deployment);
  }

  removeFunction(call: Call, name: string, now: boolean): Promise<readonly Draining[] | null> {
    return this.#functions.remove(call, name, now);
  }

  invoke(call: Call, request: InvokeRequest): Promise<Invoked | null> {
    return translating(() => this.#invoke(call, request));
  }

  async #invoke(call: Call, request: InvokeRequest): Promise<Invoked | null> {
    const { function: fn, check } = request;
    if (!FUNCTION_NAME.test(fn.name)) return null;
    const resolution = this.#scheduler.resolutions.of(call.principal.tenant, fn.name, fn.version ?? '', check);
    const cached = resolution.cached();
    if (cached !== null) {
      try {
        return await this.#submit(call, request, cached);
      } catch (error) {
        if (!isStale(error)) throw error;
      }
    }
    const current = await resolution.current();
    if (current !== null) return this.#submit(call, request, current);
    const missing = (await this.#missingFunctions()).find(({ name }) => name === fn.name);
    if (missing) throw notDeployedYet(missing, Date.now());
    return null;
  }

  invocation(call: Call, id: string): Promise<HeldInvocation | null> {
    return translating(async () => {
      const record = await this.#access.open(call, id, 'read');
      if (record === null) return null;
      return this.#stateOf(call, record);
    });
  }

  input(call: Call, id: string): Promise<string | null> {
    return translating(async () => {
      const record = await this.#access.open(call, id, 'read');
      if (record === null) return null;
      const input = await this.#scheduler.invocations.input(id);
      if (input === null) throw new GatewayError('unknown-input', `The input of ${id} is not stored, or no longer.`);
      const inputBytes = Buffer.byteLength(input);
      if (inputBytes > LARGE_BYTES) call.memory?.hold(HELD_FACTOR * inputBytes);
      return input;
    });
  }

  deleteEvents(call: Call, id: string): Promise<boolean> {
    return translating(async () => {
      const record = await this.#access.find(call.principal, id);
      if (record === null) return false;
      if (!hasEnded(record.status))
        throw new GatewayError('conflict', `The invocation ${id} has not ended.`, {
          hint: 'Cancel it, or wait for its end.',
        });
      await this.#access.record(call, record, 'delete-events');
      await this.#scheduler.invocations.deleteEvents(id);
      return true;
    });
  }

  events(call: Call, id: string, after: Position): OpenFeed<InvocationEvent> {
    // The route has checked that this caller may reach the invocation. If the invocation is another tenant's, the caller is an operator, and
    // `open` records the read.
    const isOperator = includesScope(call.principal.scopes, 'operator');
    const recordRead = isOperator ? async () => void (await this.#access.open(call, id, 'read')) : undefined;
    return translatingFeed(
      this.#scheduler.events.feed(id, after, { tenant: call.principal.tenant, before: recordRead }),
      () => new GatewayError('unknown-invocation', `No events of "${id}" are stored. They are deleted after its end.`),
    );
  }

  sendMessage(call: Call, id: string, message: SessionMessage, idempotencyKey?: string): Promise<boolean> {
    return translating(async () => {
      const record = await this.#access.find(call.principal, id);
      if (record === null) return false;
      if ('close' in message) {
        if (hasEnded(record.status)) throw alreadyEnded(id);
        await this.#scheduler.inbox.close(id);
        await this.#access.record(call, record, 'message');
        return true;
      }
      const outcome = await this.#scheduler.inbox.push(id, message, idempotencyKey);
      switch (outcome) {
        case 'ok':
          await this.#access.record(call, record, 'message');
          return true;
        case 'unknown':
          return false;
        case 'ended':
          throw alreadyEnded(id);
        case 'closed':
          throw new GatewayError('conflict', `The client has already closed its side of ${id}.`, {
            hint: START_ANOTHER,
          });
        case 'too-large':
          throw new GatewayError('body-too-large', `The message is larger than ${MAX_MESSAGE_BYTES} bytes, the limit.`);
        case 'full':
          throw new GatewayError('too-many-requests', `Too many messages wait for ${id} to receive them.`);
      }
    });
  }

  files(call: Call, id: string): Promise<readonly InvocationFile[] | null> {
    return translating(async () => {
      const record = await this.#access.open(call, id, 'read');
      if (record === null) return null;
      return (await this.#scheduler.files.list(id)).map(toFile);
    });
  }

  fileInfo(call: Call, id: string, name: string): Promise<InvocationFile | null> {
    return translating(async () => {
      if ((await this.#access.open(call, id, 'read-file', { name })) === null) throw unknownInvocation(id);
      const file = (await this.#scheduler.files.list(id)).find((listed) => listed.name === name);
      return file === undefined ? null : toFile(file);
    });
  }

  file(call: Call, id: string, name: string): Promise<FileContent | null> {
    return translating(async () => {
      const record = await this.#access.open(call, id, 'read-file', { name });
      if (record === null) throw unknownInvocation(id);
      return this.#scheduler.files.get(id, name);
    });
  }

  putFile(call: Call, id: string, file: FileContent): Promise<InvocationFile | null> {
    return translating(async () => {
      const record = await this.#access.find(call.principal, id);
      if (record === null) return null;
      const { name, mediaType, content } = file;
      const outcome = await this.#scheduler.files.put(id, name, mediaType, content);
      switch (outcome) {
        case 'ok':
          await this.#access.record(call, record, 'put-file', { name });
          return { name, mediaType, bytes: content.byteLength };
        case 'unknown':
          return null;
        case 'ended':
          throw alreadyEnded(id);
        case 'too-many':
        case 'too-large':
        case 'family-full':
        case 'tenant-full':
          throw fileRefusal(id, outcome);
      }
    });
  }

  answer(call: Call, id: string, answer: PersonAnswer): Promise<HeldInvocation | null> {
    return translating(async () => {
      const record = await this.#access.find(call.principal, id);
      if (record === null) return null;
      await this.#answers.give(record, answer);
      await this.#access.record(call, record, 'answer');
      return this.#readState(call, id);
    });
  }

  cancel(call: Call, id: string, reason: string): Promise<HeldInvocation | null> {
    return translating(async () => {
      const record = await this.#access.open(call, id, 'cancel');
      if (record === null) return null;
      await this.#scheduler.cancel(id, reason);
      return this.#readState(call, id);
    });
  }

  logs({ principal, signal, memory }: Call, name: string | null, options: LogOptions): AsyncIterable<LogEntry> {
    const { logs, functions, invocations } = this.#scheduler;
    const { tenant } = principal;
    const source: LogSource = {
      logs,
      tenant,
      // A platform function writes into the logs of the tenant that invokes it.
      names: async () =>
        name === null ? [...new Set([...(await functions.names(tenant)), ...SHARED_FUNCTIONS])] : [name],
      statuses: (ids) => invocations.statuses(ids),
    };
    return translatingStream(readLogs(source, options, signal, memory));
  }

  models(): Promise<readonly ModelInfo[]> {
    return translating(async () => toModels(await this.#scheduler.runtimes.list(), this.#modelAliases));
  }

  provenModels(): Promise<readonly ModelInfo[]> {
    return translating(async () => {
      const [runtimes, machines] = await Promise.all([
        this.#scheduler.runtimes.list(),
        this.#scheduler.machines.list(),
      ]);
      return withProofs(toModels(runtimes, this.#modelAliases), machines);
    });
  }

  async health(): Promise<Health> {
    try {
      await this.#scheduler.store.ping(HEALTH_DEADLINE_MS);
      const { runtimes, store } = this.#scheduler;
      const missing = await this.#missingFunctions();
      const checks = [
        { name: 'store', ok: true },
        ...runningChecks(await runtimes.list(), store.clock()),
        ...functionsCheck(missing, Date.now()),
      ];
      this.#storeFault = '';
      const pending = missing.map(toPending);
      return { ready: checks.every(({ ok }) => ok), checks, ...(pending.length > 0 && { pendingFunctions: pending }) };
    } catch (error) {
      // Health needs no key and may be polled often: the answer has no details, and each fault is logged once.
      const diskFault = error instanceof StoreError ? error.diskFault : undefined;
      const detail = diskFault === undefined ? 'does not answer' : `cannot write to its disk: ${diskFault}`;
      if (this.#storeFault !== String(error)) this.#log.warn({ error }, `the store ${detail}`);
      this.#storeFault = String(error);
      return { ready: false, checks: [{ name: 'store', ok: false, detail }] };
    }
  }

  /** The bundled functions that are not there: those of an earlier start serve until this start has deployed them anew. */
  async #missingFunctions(): Promise<readonly PendingFunction[]> {
    const pending = this.#pendingFunctions();
    if (pending.length === 0) return [];
    const deployedNames = new Set(await this.#scheduler.functions.names(PLATFORM_TENANT));
    return pending.filter(({ name }) => !deployedNames.has(name));
  }

  async #submit(call: Call, request: InvokeRequest, { version: storedVersion, basis }: Resolved): Promise<Invoked> {
    const { input, idempotencyKey, cancelAfterMs, webhookUrl, affinity, concurrency, debounce, schedule } = request;
    const { tenant } = call.principal;
    const fault = webhookUrl === undefined ? null : webhookFault(webhookUrl, tenant, this.#reach);
    if (fault !== null)
      throw new GatewayError('invalid-webhook', `The webhook is refused: ${fault}.`, { field: 'webhook-url' });
    const { name, version, manifest } = storedVersion;
    const limits = resolveLimits(manifest, this.#limits, input);
    const id = newInvocationId();
    const { submitter } = this.#scheduler;
    const submission = {
      id,
      tenant,
      function: name,
      version,
      functionOwner: ownerOf(storedVersion),
      submittedAt: this.#scheduler.store.clock(),
      deadlineMs: cancelAfterMs ?? limits.wallMs + this.#queueMs + (debounce?.delayMs ?? 0),
      restartable: manifest.restartable === true,
      input,
      limits,
      models: manifestModels(manifest),
      ...(manifest.limits?.memoryMb !== undefined && { expectedMemoryMb: manifest.limits.memoryMb }),
      ...(manifest.latency !== undefined && { latency: manifest.latency }),
      ...(manifest.expectedPages === undefined ? {} : { expectedPages: manifest.expectedPages }),
      traceparent: call.traceparent,
      ...(idempotencyKey === undefined ? {} : { idempotencyKey, fingerprint: fingerprintOf(name, input) }),
      ...(webhookUrl === undefined ? {} : { webhookUrl }),
      ...(affinity === undefined ? {} : { affinity }),
      ...(concurrency === undefined ? {} : { concurrency }),
      ...(debounce === undefined ? {} : { debounce }),
      ...(schedule === undefined ? {} : { schedule }),
      ...(basis === undefined ? {} : { basis }),
      // The runtime also sends the invocation's events to the channel with this name, on which this gateway listens.
      // `expect` keeps them until the follower reads them.
      ...(request.isFollowed === true && submitter.expect(id) && { submitter: submitter.name }),
    };
    // Redis may store a submission after the gateway has answered with an error. A retry with the same key finds that invocation. Without such
    // a key, a retry makes a second invocation, so `withdrawals` cancels the first.
    const isFindableByRetry = idempotencyKey !== undefined && request.hasSingleUseKey !== true;
    const submitTarget = isFindableByRetry ? this.#scheduler : this.#scheduler.withdrawals;
    const submitted = await submitTarget.submit(submission).catch((error: unknown) => {
      submitter.forget(id);
      if (error instanceof QuotaExceeded) this.#addLimitHeaders(call, error.counted);
      throw error;
    });
    this.#addLimitHeaders(call, submitted.quotas);
    if (!submitted.created) {
      submitter.forget(id);
      return this.#repeatedAnswer(call, submitted.id, request.join === true);
    }
    // A client that has left may never follow its invocation, so do not keep the invocation's events.
    if (call.signal.aborted) submitter.forget(id);
    return {
      id,
      function: name,
      version,
      status: 'queued',
      createdAt: new Date(submission.submittedAt).toISOString(),
      ...(submitted.notBefore !== undefined && { notBefore: new Date(submitted.notBefore).toISOString() }),
      attempts: 0,
      lastEventId: '0-0',
      ...(webhookUrl === undefined ? {} : { webhook: unsent(shownUrl(webhookUrl)) }),
    };
  }

  /** Answers a repeated request with its invocation; refuses while the invocation has not ended, unless `mayJoin`. */
  async #repeatedAnswer(call: Call, id: string, mayJoin: boolean): Promise<Invoked> {
    const state = await this.#readState(call, id);
    // A key expires no later than the record of its invocation, so a record is missing only if Redis lost data.
    if (state === null)
      throw new GatewayError(
        'unknown-invocation',
        `The record of the invocation ${id}, which this idempotency key started, was deleted.`,
        { hint: 'Use another key to start a new invocation.' },
      );
    if (mayJoin || hasEnded(state.status)) return { ...state, replayed: true };
    throw inFlight(id);
  }

  /** Sets the answer's headers that tell how much of the counted quotas is left. */
  #addLimitHeaders(call: Call, quotas: readonly QuotaUse[]): void {
    if (quotas.length > 0) call.answerHeaders?.(rateLimitHeaders(quotas, this.#scheduler.store.clock()));
  }

  async #readState(call: Call, id: string): Promise<HeldInvocation | null> {
    const record = await this.#access.find(call.principal, id);
    return record === null ? null : this.#stateOf(call, record);
  }

  async #stateOf(call: Call, record: Invocation): Promise<HeldInvocation> {
    if (record.status !== 'succeeded') return toInvocationState(record);
    if (record.resultBytes > LARGE_BYTES) call.memory?.hold(HELD_FACTOR * record.resultBytes);
    return withOutput(record, await this.#scheduler.events.terminal(record.id, record));
  }
}

function unknownInvocation(id: string): GatewayError {
  return new GatewayError('unknown-invocation', `There is no invocation "${id}".`);
}

function alreadyEnded(id: string): GatewayError {
  return new GatewayError('conflict', `The invocation ${id} has ended.`, { hint: START_ANOTHER });
}

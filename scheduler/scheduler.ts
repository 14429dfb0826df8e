import { randomUUID } from 'node:crypto';
import type { Redis } from 'ioredis';
import { ActiveJobs } from './admission/active-jobs.ts';
import { Admission, AdmissionQueue } from './admission/admission.ts';
import { AdmissionWorker, type AdmissionWorkerOptions } from './admission/worker.ts';
import { Builds } from './builds/builds.ts';
import { Deployments } from './builds/deployments.ts';
import { BuildWorker, type BuildWorkerOptions, giveUpBuilds } from './builds/worker.ts';
import { DurableNames, NameOwners } from './exports/exports.ts';
import { Blobs, Functions } from './functions/functions.ts';
import { Releases } from './functions/releases.ts';
import { Removals } from './functions/removals.ts';
import { Resolutions } from './functions/resolutions.ts';
import { Drains } from './gpu-hosts/drains.ts';
import { IndexBytes } from './indexes/index-bytes.ts';
import { type CancelOutcome, Control, EndLog } from './invocations/endings.ts';
import { Files } from './invocations/files.ts';
import { Submitter } from './invocations/follower.ts';
import { Inbox } from './invocations/inbox.ts';
import { Invocations } from './invocations/invocations.ts';
import { EventLog, FunctionLogs } from './invocations/log.ts';
import { Questions } from './invocations/questions.ts';
import { DEFAULT_RETENTION, type Retention } from './invocations/replies.ts';
import { type Submission, Withdrawals } from './invocations/submission.ts';
import type { Submitted } from './invocations/types.ts';
import { KeyValues } from './key-values/key-values.ts';
import type { LinkSecurity } from './links/security.ts';
import { LiveClient } from './live/client.ts';
import { JoinTokens } from './machines/join-tokens.ts';
import { Machines } from './machines/machines.ts';
import { RedisUsers } from './machines/redis-users.ts';
import { Messaging } from './messaging/messaging.ts';
import { MetricsBoard } from './metrics/board.ts';
import type { Logger } from './policies/logger.ts';
import { Quarantine } from './quarantine/quarantine.ts';
import { Quotas } from './quotas/quotas.ts';
import { Reaper } from './runtimes/reaper.ts';
import { Runtimes } from './runtimes/runtimes.ts';
import { Schedules } from './schedules/schedules.ts';
import { ScheduleWorker, type ScheduleWorkerOptions } from './schedules/worker.ts';
import { Environments } from './secrets/environments.ts';
import type { MasterKeys } from './secrets/master-keys.ts';
import { Secrets } from './secrets/secrets.ts';
import { Channels, Vital } from './store/channels.ts';
import { PlatformClock } from './store/platform-clock.ts';
import { Store, type StoreOptions } from './store/store.ts';
import { ApiKeys } from './tenants/api-keys.ts';
import { AuditLog } from './tenants/audit.ts';
import { Tenants } from './tenants/tenants.ts';
import { UsageCounters } from './usage/usage.ts';
import { WebhookSecrets } from './webhooks/secrets.ts';
import { Webhooks, type WebhooksOptions } from './webhooks/webhooks.ts';

export interface SchedulerOptions extends StoreOptions {
  /**
   * Opens a connection with `connectionOptions()`. The scheduler has one for commands, one for subscriptions, one for build requests, one for
   * schedules and one for each worker, and in a runtime two more (see `Vital`).
   */
  readonly connect: () => Redis;
  readonly retention?: Partial<Retention>;
  /** Maximum time that a follower of events waits for Redis to reconnect; 4,500 ms by default. */
  readonly outageMs?: number;
  /** Length of a runtime's lease without renewal, the same in every process; 3,000 ms by default. */
  readonly leaseMs?: number;
  /** Name of this process's machine. Only processes of one machine reach the sockets of its runtimes; see `machines/`. */
  readonly machine?: string;
  /** Secures connections to other machines. Without it, events of runtimes on other machines come from the log. */
  readonly links?: LinkSecurity | undefined;
  /** Keys that seal and open the tenants' secrets, see `openMasterKeys`. Without them, secrets can neither be stored nor used. */
  readonly masterKeys?: MasterKeys;
  /** Gets errors of background work, which has no caller. */
  readonly log: Logger;
}

export type { Submission } from './invocations/submission.ts';

/** Options of workers that the scheduler itself supplies. */
type SuppliedOption = 'store' | 'control' | 'active' | 'admission' | 'connect' | 'log';

/** All parts of the scheduler over one Redis. Each gateway and each runtime opens one. */
export class Scheduler {
  readonly store: Store;
  readonly invocations: Invocations;
  /** Writes the record of each end that this process decides. */
  readonly ends: EndLog;
  readonly events: EventLog;
  readonly live: LiveClient;
  readonly submitter: Submitter;
  readonly logs: FunctionLogs;
  readonly inbox: Inbox;
  readonly files: Files;
  readonly control: Control;
  readonly withdrawals: Withdrawals;
  readonly questions: Questions;
  readonly admission: Admission;
  readonly queue: AdmissionQueue;
  readonly active: ActiveJobs;
  readonly runtimes: Runtimes;
  readonly drains: Drains;
  readonly nameOwners: NameOwners;
  readonly durableNames: DurableNames;
  readonly machines: Machines;
  readonly joinTokens: JoinTokens;
  readonly redisUsers: RedisUsers;
  /** Every gateway and runtime starts it with `reaper.start()`. */
  readonly reaper: Reaper;
  readonly functions: Functions;
  readonly releases: Releases;
  readonly resolutions: Resolutions;
  readonly removals: Removals;
  readonly blobs: Blobs;
  readonly builds: Builds;
  readonly deployments: Deployments;
  readonly keyValues: KeyValues;
  readonly indexBytes: IndexBytes;
  readonly quotas: Quotas;
  readonly schedules: Schedules;
  readonly usage: UsageCounters;
  readonly messaging: Messaging;
  readonly metrics: MetricsBoard;
  readonly tenants: Tenants;
  readonly apiKeys: ApiKeys;
  readonly audit: AuditLog;
  readonly quarantine: Quarantine;
  readonly secrets: Secrets;
  readonly environments: Environments;
  readonly webhookSecrets: WebhookSecrets;
  readonly #options: SchedulerOptions;
  readonly #channels: Channels;
  readonly #vital: Vital;
  readonly #connections: readonly Redis[];

  constructor(givenOptions: SchedulerOptions) {
    const platformClock = givenOptions.clock === undefined ? new PlatformClock() : undefined;
    const options = platformClock === undefined ? givenOptions : { ...givenOptions, clock: platformClock.now };
    const commands = options.connect();
    const subscriber = options.connect();
    // Calls that use a connection report its errors.
    for (const connection of [commands, subscriber]) connection.on('error', () => undefined);
    if (platformClock) commands.on('ready', () => void readRedisTime(commands, platformClock));
    const store = new Store(commands, options);
    const channels = new Channels(subscriber);
    const retention = { ...DEFAULT_RETENTION, ...options.retention };
    this.#options = options;
    this.#channels = channels;
    this.#vital = new Vital(options.connect, options);
    this.#connections = [commands, subscriber];
    this.store = store;
    this.ends = new EndLog(options.log);
    this.invocations = new Invocations(store, this.ends, retention);
    this.submitter = new Submitter(channels, store.keys.submitter(randomUUID()));
    this.live = new LiveClient(
      (runtimeId) => this.runtimes.liveAddress(runtimeId, options.machine),
      this.submitter.name,
      {
        security: options.links,
        onRefused: (why) => options.log.warn({ why }, 'refused a connection for live events'),
      },
    );
    this.events = new EventLog(store, channels, this.live, this.submitter, options.outageMs);
    this.logs = new FunctionLogs(store, channels);
    this.inbox = new Inbox(store, channels);
    this.files = new Files(store, channels);
    this.control = new Control(store, this.#vital, retention);
    this.withdrawals = new Withdrawals(this.invocations, this.control, options.log);
    this.questions = new Questions(store, retention);
    this.admission = new Admission(store);
    this.queue = new AdmissionQueue(store, this.admission);
    this.active = new ActiveJobs(store, this.ends, retention);
    this.runtimes = new Runtimes(store, this.active, this.invocations, this.#vital, {
      ...options,
      onRecovered: (runtimeId) => giveUpBuilds(store, runtimeId),
    });
    this.drains = new Drains(store, channels);
    this.nameOwners = new NameOwners(store);
    this.durableNames = new DurableNames(store);
    this.machines = new Machines(store, channels);
    this.joinTokens = new JoinTokens(store);
    this.redisUsers = new RedisUsers(store, channels);
    this.functions = new Functions(store);
    this.resolutions = new Resolutions(store, this.functions);
    this.releases = new Releases(store, this.functions, channels);
    this.removals = new Removals({
      store,
      cancel: (id, reason) => this.cancel(id, reason),
      onGone: async (version) => void (await this.secrets.release(version)),
      log: options.log,
    });
    this.blobs = new Blobs(store);
    this.builds = new Builds(store, channels, this.runtimes, options.connect);
    this.keyValues = new KeyValues(store);
    this.indexBytes = new IndexBytes(store);
    this.quotas = new Quotas(store);
    this.schedules = new Schedules(store, this.quotas, options.connect);
    this.usage = new UsageCounters(store);
    this.tenants = new Tenants(store);
    this.apiKeys = new ApiKeys(store);
    this.audit = new AuditLog(store, options.log);
    this.quarantine = new Quarantine(store, this.audit, options.log);
    this.secrets = new Secrets(store, this.functions, options.masterKeys);
    this.environments = new Environments(store, this.functions, options.masterKeys);
    this.deployments = new Deployments(this);
    this.webhookSecrets = new WebhookSecrets(store, options.masterKeys);
    this.messaging = new Messaging(store, channels);
    this.metrics = new MetricsBoard(store);
    this.reaper = new Reaper({
      ...this.#parts(),
      runtimes: this.runtimes,
      invocations: this.invocations,
      questions: this.questions,
      removals: this.removals,
      keyValues: this.keyValues,
      quotas: this.quotas,
      ...(platformClock && { clock: platformClock }),
    });
  }

  /** Stores an invocation and puts it into its tenant's queue. The scheduler admits it at once when there is room. */
  async submit(submission: Submission): Promise<Submitted> {
    return this.invocations.create(submission);
  }

  /**
   * Admits the waiting invocations that fit, of one tenant or by default of all. Call it after a change of weight,
   * suspension or limits.
   */
  async pokeAdmission(tenant = '*'): Promise<void> {
    await this.admission.admit(tenant);
  }

  /** Cancels an invocation: at once while it waits, otherwise through its runtime. */
  async cancel(id: string, reason: string): Promise<CancelOutcome> {
    return this.control.cancel(id, reason);
  }

  /** A worker that runs invocations; see `AdmissionWorkerOptions`. */
  createWorker(options: Omit<AdmissionWorkerOptions, SuppliedOption>): AdmissionWorker {
    return new AdmissionWorker({ ...this.#parts(), ...options });
  }

  /** Delivers the end of each invocation to the webhook that its client named. Every gateway runs one; see `WebhooksOptions`. */
  createWebhooks(
    options: Pick<WebhooksOptions, 'reach' | 'payload' | 'version' | 'firstWaitMs' | 'onAttempt'>,
  ): Webhooks {
    const { connect, log } = this.#options;
    const { store, invocations, webhookSecrets: secrets } = this;
    return new Webhooks({ store, channels: this.#channels, invocations, secrets, connect, log, ...options });
  }

  /** Makes the invocations of schedules. Every gateway runs one; see `ScheduleWorkerOptions`. */
  createScheduleWorker({ run }: Pick<ScheduleWorkerOptions, 'run'>): ScheduleWorker {
    const { connect, log } = this.#options;
    return new ScheduleWorker({ store: this.store, schedules: this.schedules, connect, run, log });
  }

  /** A worker that answers build requests; see `BuildWorkerOptions`. */
  createBuildWorker(options: Omit<BuildWorkerOptions, SuppliedOption>): BuildWorker {
    return new BuildWorker({ ...this.#parts(), ...options });
  }

  /** @throws StoreError unless Redis answers within the deadline. */
  ping(deadlineMs?: number): Promise<void> {
    return this.store.ping(deadlineMs);
  }

  /** Closes the connections. The caller must have closed its workers and leases. */
  async close(): Promise<void> {
    this.withdrawals.stop();
    await this.reaper.stop();
    this.ends.flush();
    this.messaging.close();
    this.live.close();
    this.#channels.close();
    this.#vital.close();
    await this.builds.close();
    await this.schedules.close();
    for (const connection of this.#connections) connection.disconnect();
  }

  #parts() {
    const { connect, log } = this.#options;
    const { store, control, active, admission } = this;
    return { store, control, active, admission, connect, log };
  }
}

/**
 * Reads the time of Redis whenever a connection begins: a process whose own clock is wrong then keeps the wrong time
 * only until the first answer, and not until the reaper's first round.
 */
async function readRedisTime(redis: Redis, clock: PlatformClock): Promise<void> {
  const askedAt = clock.steadyTime();
  try {
    const [seconds, microseconds] = await redis.time();
    clock.adjust(Number(seconds) * 1000 + Math.floor(Number(microseconds) / 1000), askedAt);
  } catch {
    // The connection has ended; the next one asks again, as do the reaper's rounds.
  }
}

/**
 * Opens the scheduler. It connects in the background; `scheduler.store.ping()` tests the connection.
 *
 * @example
 * const scheduler = openScheduler({ connect: () => openConnection('/run/pie/redis.sock'), log });
 */
export function openScheduler(options: SchedulerOptions): Scheduler {
  return new Scheduler(options);
}

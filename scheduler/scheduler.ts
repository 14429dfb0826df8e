import type { Redis } from 'ioredis';
import { ActiveJobs } from './admission/active-jobs.ts';
import type { InvocationJob } from './admission/job.ts';
import { AdmissionQueue } from './admission/queue.ts';
import { AdmissionWorker, type AdmissionWorkerOptions } from './admission/worker.ts';
import { Builds } from './builds/builds.ts';
import { Deployments } from './builds/deployments.ts';
import { BuildWorker, type BuildWorkerOptions } from './builds/worker.ts';
import { Blobs } from './functions/blobs.ts';
import { Functions } from './functions/functions.ts';
import { type CancelOutcome, Control } from './invocations/control.ts';
import { EventLog } from './invocations/event-log.ts';
import { Files } from './invocations/files.ts';
import { FunctionLogs } from './invocations/function-logs.ts';
import { Inbox } from './invocations/inbox.ts';
import { Invocations } from './invocations/invocations.ts';
import { DEFAULT_RETENTION, type Retention } from './invocations/retention.ts';
import type { NewInvocation } from './invocations/types.ts';
import { KeyValues } from './key-values/key-values.ts';
import { Messaging } from './messaging/messaging.ts';
import { Reaper } from './runtimes/reaper.ts';
import { Runtimes } from './runtimes/runtimes.ts';
import { Channels } from './store/channels.ts';
import { Store, type StoreOptions } from './store/store.ts';
import { Vital } from './store/vital.ts';

export interface SchedulerOptions extends StoreOptions {
  /** Opens a connection as `connectionOptions()` says; called for commands, for subscriptions, twice in a runtime (see `Vital`), and once for each worker. */
  readonly connect: () => Redis;
  readonly retention?: Partial<Retention>;
  /** How long a follower of events waits for Redis to come back; 4,500 ms by default. */
  readonly outageMs?: number;
  /** How long a runtime's lease holds without renewal, the same in every process; 2,000 ms by default. */
  readonly leaseMs?: number;
  /** Told of errors that no caller sees. */
  readonly onError?: (error: unknown) => void;
}

/** What an invocation needs beyond its record. */
export type Submission = NewInvocation & Pick<InvocationJob, 'input' | 'limits' | 'expectedPages' | 'traceparent'>;

/** `id` is the first request's when its idempotency key was used before; then nothing was stored. */
export interface Submitted {
  readonly id: string;
  readonly created: boolean;
}

type Own = 'store' | 'control' | 'active' | 'connect';

/** Everything of the scheduler over one Redis. Each gateway and each runtime opens one. */
export class Scheduler {
  readonly store: Store;
  readonly invocations: Invocations;
  readonly events: EventLog;
  readonly logs: FunctionLogs;
  readonly inbox: Inbox;
  readonly files: Files;
  readonly control: Control;
  readonly queue: AdmissionQueue;
  readonly active: ActiveJobs;
  readonly runtimes: Runtimes;
  /** Not started by itself: `reaper.start()` in every gateway and runtime. */
  readonly reaper: Reaper;
  readonly functions: Functions;
  readonly blobs: Blobs;
  readonly builds: Builds;
  readonly deployments: Deployments;
  readonly keyValues: KeyValues;
  readonly messaging: Messaging;
  readonly #options: SchedulerOptions;
  readonly #channels: Channels;
  readonly #vital: Vital;
  readonly #connections: readonly Redis[];

  constructor(options: SchedulerOptions) {
    const commands = options.connect();
    const subscriber = options.connect();
    // What goes wrong with a connection is reported by the calls that need it.
    for (const connection of [commands, subscriber]) connection.on('error', () => undefined);
    const store = new Store(commands, options);
    const channels = new Channels(subscriber);
    const retention = { ...DEFAULT_RETENTION, ...options.retention };
    this.#options = options;
    this.#channels = channels;
    this.#vital = new Vital(options.connect, options);
    this.#connections = [commands, subscriber];
    this.store = store;
    this.invocations = new Invocations(store, retention);
    this.events = new EventLog(store, channels, options.outageMs);
    this.logs = new FunctionLogs(store, channels);
    this.inbox = new Inbox(store, channels);
    this.files = new Files(store, channels);
    this.control = new Control(store, this.#vital, retention);
    this.queue = new AdmissionQueue(store);
    this.active = new ActiveJobs(store, retention);
    this.runtimes = new Runtimes(store, this.active, this.invocations, this.#vital, options.leaseMs);
    this.functions = new Functions(store);
    this.blobs = new Blobs(store);
    this.builds = new Builds(store, channels, this.runtimes);
    this.deployments = new Deployments(this);
    this.keyValues = new KeyValues(store);
    this.messaging = new Messaging(store, channels);
    this.reaper = new Reaper({
      ...this.#parts(),
      runtimes: this.runtimes,
      invocations: this.invocations,
      queue: this.queue,
      keyValues: this.keyValues,
    });
  }

  /** Stores an invocation and puts it in line. Should the second fail, the invocation is ended, so that it does not wait for nothing. */
  async submit(submission: Submission): Promise<Submitted> {
    const { id, input, limits, expectedPages, traceparent } = submission;
    const outcome = await this.invocations.create(submission);
    if (!outcome.created) return outcome;
    const { tenant, function: name, version, deadlineMs, submittedAt } = submission;
    try {
      await this.queue.enqueue({
        ...{ id, tenant, function: name, version, input, limits, deadlineMs, submittedAt },
        arrival: outcome.arrival,
        ...(expectedPages && { expectedPages }),
        ...(traceparent !== undefined && { traceparent }),
      });
    } catch (error) {
      // Not waited for, since Redis is likely away; when this fails too, the deadline ends the invocation.
      this.invocations.fail(id, 'internal', 'The invocation could not be put in line.').catch(() => undefined);
      throw error;
    }
    return { id, created: true };
  }

  /** Cancels an invocation: at once while it waits, else through its runtime. */
  async cancel(id: string, reason: string): Promise<CancelOutcome> {
    const outcome = await this.control.requestCancel(id, reason);
    if (outcome === 'cancelled' && !(await this.queue.remove(id))) {
      // Fetched by a runtime that has no room for it yet: it may let go.
      const holder = await this.active.holder(id);
      if (holder !== null) await this.control.tell(holder, id, reason);
    }
    return outcome;
  }

  /** A worker that runs invocations; see `AdmissionWorkerOptions`. */
  createWorker(options: Omit<AdmissionWorkerOptions, Own>): AdmissionWorker {
    return new AdmissionWorker({ ...this.#parts(), ...options });
  }

  /** A worker that answers build requests; see `BuildWorkerOptions`. */
  createBuildWorker(options: Omit<BuildWorkerOptions, Own>): BuildWorker {
    return new BuildWorker({ ...this.#parts(), ...options });
  }

  /** Fails with a `StoreError` unless Redis answers within the deadline. */
  ping(deadlineMs?: number): Promise<void> {
    return this.store.ping(deadlineMs);
  }

  /** Closes the connections. Workers and leases are closed before by whoever made them. */
  async close(): Promise<void> {
    await this.reaper.stop();
    this.messaging.close();
    this.#channels.close();
    this.#vital.close();
    await Promise.all([this.queue.close(), this.builds.close()]);
    for (const connection of this.#connections) connection.disconnect();
  }

  #parts() {
    const { connect, onError } = this.#options;
    return { store: this.store, control: this.control, active: this.active, connect, ...(onError && { onError }) };
  }
}

/**
 * Opens the scheduler. Connections are made in the background; `scheduler.store.ping()` tells whether Redis is there.
 *
 * @example
 * const scheduler = openScheduler({ connect: () => openConnection('/run/pie/redis.sock') });
 */
export function openScheduler(options: SchedulerOptions): Scheduler {
  return new Scheduler(options);
}

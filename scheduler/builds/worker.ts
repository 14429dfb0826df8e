import { type Job, Worker } from 'bullmq';
import type { Redis } from 'ioredis';
import { BUILD_QUEUE } from '../keys.ts';
import type { Logger } from '../policies/logger.ts';
import { MAX_EXCUSED_MS } from '../policies/silence.ts';
import { textForTenant } from '../policies/text-for-tenant.ts';
import { WorkerConnection } from '../store/connection.ts';
import { isConnectionError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import type { BuildReply, BuildRequest } from './builds.ts';

/**
 * Duration of BullMQ's lock on a build, unless it is renewed: longer than a runtime is excused when it gets no core. The runtime's own lease decides
 * whether it is lost; `giveUpBuilds` then ends the locks, and another runtime takes the builds over.
 */
const LOCK_MS = MAX_EXCUSED_MS + 5000;
/** Interval of BullMQ's search for builds whose lock has run out. */
const STALLED_CHECK_MS = 2000;
/** Time for which a reply is kept for its requester. */
const REPLY_MS = 60_000;

const GIVE_UP = loadScript(new URL('./builds.lua', import.meta.url), 'give-up-builds');
const BEGIN_TURN = loadScript(new URL('./builds.lua', import.meta.url), 'begin-turn');

export interface BuildWorkerOptions {
  readonly store: Store;
  /** Opens a connection for the worker alone, with `maxRetriesPerRequest: null` and no command timeout. */
  readonly connect: () => Redis;
  /** Id of the runtime that builds. */
  readonly runtimeId: string;
  /** Builds at once; 1 by default. */
  readonly concurrency?: number;
  /** Builds one component. The signal aborts at the request's deadline and when the worker closes. An error becomes `build-failed`. */
  readonly build: (request: BuildRequest, signal: AbortSignal) => Promise<BuildReply>;
  readonly log: Logger;
}

/** Ends the locks of the builds of a runtime that is lost or stops: another runtime takes them over at once. */
export async function giveUpBuilds(store: Store, runtimeId: string): Promise<void> {
  const queue = `${store.keys.bull}:${BUILD_QUEUE}`;
  await store.script(GIVE_UP, [`${queue}:active`], [runtimeId, `${queue}:`]);
}

/** Answers build requests. Every runtime has one. */
export class BuildWorker {
  readonly #options: BuildWorkerOptions;
  readonly #closing = new AbortController();
  #connection: WorkerConnection | undefined;
  #worker: Worker<BuildRequest> | undefined;

  constructor(options: BuildWorkerOptions) {
    this.#options = options;
  }

  /** Starts to take requests. */
  start(): void {
    const { store, runtimeId, connect, concurrency, log } = this.#options;
    const connection = new WorkerConnection(connect());
    const worker = new Worker<BuildRequest>(BUILD_QUEUE, (job) => this.#answer(job), {
      connection: connection.redis,
      prefix: store.keys.bull,
      name: runtimeId,
      concurrency: concurrency ?? 1,
      lockDuration: LOCK_MS,
      stalledInterval: STALLED_CHECK_MS,
      maxStalledCount: 1,
      runRetryDelay: 500,
      // In seconds, unlike the other times.
      drainDelay: 2,
      removeOnComplete: { count: 0 },
      removeOnFail: { count: 0 },
    });
    worker.on('error', (error) => {
      if (!this.#closing.signal.aborted && !isConnectionError(error))
        log.error({ error }, 'the queue of builds failed');
    });
    // The runtime that had the build has died, or left.
    worker.on('stalled', (build) =>
      log.warn({ build, figures: { lockMs: LOCK_MS } }, 'a build starts again on another runtime'),
    );
    // BullMQ gives up a build during which two runtimes died.
    worker.on('failed', (job, error) => {
      if (job && !this.#closing.signal.aborted) log.error({ ...named(job.data), error }, 'a build was given up');
      if (job)
        this.#reply(job.data.id, failedReply(error)).catch((cause) => {
          log.error({ error: cause, build: job.data.id }, 'the answer of a build could not be stored');
        });
    });
    this.#connection = connection;
    this.#worker = worker;
  }

  /** Takes no more requests and aborts the running builds; another runtime takes them over. */
  async close(): Promise<void> {
    this.#closing.abort(new Error('The runtime is shutting down.'));
    await this.#worker?.close(true);
    this.#connection?.close();
    const { store, runtimeId, log } = this.#options;
    await giveUpBuilds(store, runtimeId).catch((error: unknown) =>
      log.warn(
        { error },
        'the builds of this runtime could not be given up; another runtime takes them over once their locks have run out',
      ),
    );
  }

  async #answer({ data: request }: Job<BuildRequest>): Promise<void> {
    const leftMs = request.deadlineAt - this.#options.store.clock();
    if (leftMs <= 0) {
      this.#options.log.warn(
        { ...named(request), figures: { lateMs: -leftMs } },
        'a build came too late, and was dropped',
      );
      return;
    }
    const beginMs = performance.now();
    // A build has no turn after its requester, a gateway, has given up or its deadline has passed.
    const beginReply = await this.#options.store.script(
      BEGIN_TURN,
      [this.#options.store.keys.buildTurns],
      [request.id],
    );
    if (beginReply !== 1) return;
    const signal = AbortSignal.any([AbortSignal.timeout(leftMs), this.#closing.signal]);
    let reply: BuildReply;
    try {
      reply = this.#shown(request, await this.#options.build(request, signal), beginMs);
    } catch (error) {
      // BullMQ ignores the error, because `close` has told it to close. Once the lock has run out, another runtime takes the build over.
      if (this.#closing.signal.aborted) throw error;
      const figures = { tookMs: Math.round(performance.now() - beginMs) };
      this.#options.log.warn({ ...named(request), error, figures }, 'a build failed');
      reply = failedReply(error);
    }
    await this.#reply(request.id, reply);
  }

  /**
   * The reply for the requester. The message of a failed build may contain paths of this machine: the log gets them, the requester does not. The log
   * also gets the builds that passed a limit; it gets no others, which only judge the component.
   */
  #shown(request: BuildRequest, reply: BuildReply, beginMs: number): BuildReply {
    if (reply.ok) return reply;
    const message = reply.code === 'build-failed' ? textForTenant(reply.message) : reply.message;
    if (message !== reply.message || reply.code === 'build-timeout') {
      const figures = { tookMs: Math.round(performance.now() - beginMs) };
      this.#options.log.warn({ ...named(request), code: reply.code, cause: reply.message, figures }, 'a build failed');
    }
    return { ...reply, message };
  }

  async #reply(id: string, reply: BuildReply): Promise<void> {
    const { store } = this.#options;
    const { keys } = store;
    await store.call((redis) =>
      redis
        .multi()
        .set(keys.build(id), JSON.stringify(reply), 'PX', REPLY_MS, 'NX')
        .publish(keys.buildChannel(id), 'done')
        .exec(),
    );
  }
}

/** Fields of a log record about a build. */
const named = ({ id, tenant, name }: BuildRequest) => ({ build: id, tenant, function: name });

function failedReply(error: unknown): BuildReply {
  return {
    ok: false,
    code: 'build-failed',
    message: textForTenant(error),
    hint: 'If the component runs elsewhere, this is a fault of the platform: please report it.',
  };
}

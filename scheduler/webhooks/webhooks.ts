import { setTimeout as sleep } from 'node:timers/promises';
import { DelayedError, type Job, Queue, UnrecoverableError, Worker } from 'bullmq';
import type { Redis } from 'ioredis';
import type { Reach } from '../addresses/reach.ts';
import type { Invocations } from '../invocations/invocations.ts';
import type { Invocation, WebhookState } from '../invocations/types.ts';
import { WEBHOOK_QUEUE } from '../keys.ts';
import type { Logger } from '../policies/logger.ts';
import { MAX_EXCUSED_MS } from '../policies/silence.ts';
import type { Channels } from '../store/channels.ts';
import { CrashGuard } from '../store/crash-guard.ts';
import { isConnectionError, StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import { Wakeup } from '../store/wakeup.ts';
import { WorkerConnection } from '../store/worker-connection.ts';
import { type Answer, askedWait, MAX_ATTEMPTS, verdictOn, waitAfter } from './attempts.ts';
import { DeliverySlots } from './delivery-slots.ts';
import { post } from './post.ts';
import type { WebhookSecrets } from './secrets.ts';
import { signedHeaders } from './signature.ts';

const NOTE_ATTEMPT = loadScript(new URL('./webhooks.lua', import.meta.url), 'note-attempt');

/** Time limit of a whole attempt: resolving, connecting, sending, the response. */
const ATTEMPT_MS = 10_000;
/** Concurrent deliveries of one gateway. They mostly wait for other servers and cost little. */
const CONCURRENCY = 256;
/** Concurrent deliveries of one tenant in a gateway. */
const MAX_PER_TENANT = 8;
/** A gateway looks for ended invocations at least this often, because a wake-up may be lost. */
const IDLE_MS = 5000;
/** Wait after an error of the platform itself. */
const RETRY_MS = 2000;
/** Maximum ended invocations that one round puts into the queue. */
const ROUND_SIZE = 100;
/** Time for which a delivery stays locked after its gateway died: longer than a gateway is excused when it gets no core. */
const LOCK_MS = MAX_EXCUSED_MS + 5000;
/** Approximate number of entries in BullMQ's own stream of events, which Pie does not read. */
const BULL_EVENTS = 100;

/** Outcome of an attempt to report the end of an invocation to its webhook. */
export const WEBHOOK_OUTCOMES = ['delivered', 'retry', 'failed'] as const;
export type WebhookOutcome = (typeof WEBHOOK_OUTCOMES)[number];

export interface WebhooksOptions {
  readonly store: Store;
  readonly channels: Channels;
  readonly invocations: Invocations;
  readonly secrets: WebhookSecrets;
  readonly reach: Reach;
  /** Opens a connection for the worker alone, with `maxRetriesPerRequest: null` and no command timeout. */
  readonly connect: () => Redis;
  /** The JSON body that describes an invocation's end. */
  readonly payload: (invocation: Invocation) => Promise<string>;
  /** Version in the `user-agent` header. */
  readonly version: string;
  /** The wait after the first failed attempt; 5 s by default. It doubles each time. */
  readonly firstWaitMs?: number;
  /** Called after each attempt: another attempt follows `retry`, none follows `failed`. */
  readonly onAttempt?: ((outcome: WebhookOutcome) => void) | undefined;
  readonly log: Logger;
}

/** What is sent to the receiver, or why the platform could not make it. */
type Message = { readonly body: string } | { readonly error: string };

/** An attempt after which another one follows. */
class FailedAttempt extends Error {
  readonly waitMs: number;
  constructor(message: string, waitMs: number) {
    super(message);
    this.waitMs = waitMs;
  }
}

interface Delivery {
  readonly id: string;
  readonly tenant: string;
}

/**
 * Reports the end of each invocation to the webhook that its client named; a delivery is one such report, with all its
 * attempts. The script that ends an invocation adds its id to a set. Each gateway moves ids from this set into a BullMQ
 * queue, and works on the queue. An end is delivered at least once, always with the same `webhook-id`.
 */
export class Webhooks {
  readonly #options: WebhooksOptions;
  readonly #connection: WorkerConnection;
  readonly #queue: Queue<Delivery>;
  readonly #worker: Worker<Delivery>;
  readonly #guard: CrashGuard;
  readonly #slots = new DeliverySlots(MAX_PER_TENANT);
  readonly #stopping = new AbortController();
  #moving: Promise<void> = Promise.resolve();

  constructor(options: WebhooksOptions) {
    const { store, connect, log, firstWaitMs } = options;
    this.#options = options;
    this.#guard = new CrashGuard(store, WEBHOOK_QUEUE, (invocation) =>
      log.warn(
        { invocation },
        'the body of a webhook is made alone: the last two gateways that made it died meanwhile',
      ),
    );
    this.#connection = new WorkerConnection(connect());
    const { redis } = this.#connection;
    this.#queue = new Queue(WEBHOOK_QUEUE, {
      // Do not use the store's connection: each pipeline of ioredis copies the scripts that BullMQ defines on a connection.
      connection: redis,
      prefix: store.keys.bull,
      streams: { events: { maxLen: BULL_EVENTS } },
    });
    this.#queue.on('error', () => undefined);
    this.#worker = new Worker<Delivery>(WEBHOOK_QUEUE, (job, token) => this.#deliver(job, token), {
      connection: redis,
      prefix: store.keys.bull,
      autorun: false,
      concurrency: CONCURRENCY,
      lockDuration: LOCK_MS,
      // A delivery that a dying gateway held is repeated, however often that happens: the delivery at fault may be another one. The guard gives up
      // the one at fault.
      maxStalledCount: 1000,
      removeOnComplete: { count: 0 },
      removeOnFail: { count: 0 },
      settings: {
        backoffStrategy: (attempts, _type, error) =>
          error instanceof FailedAttempt ? error.waitMs : waitAfter(attempts, firstWaitMs),
      },
    });
    this.#worker.on('error', (error) => {
      if (!this.#stopping.signal.aborted && !isConnectionError(error))
        log.error({ error }, 'the queue of webhooks failed');
    });
  }

  start(): void {
    this.#worker.run().catch((error: unknown) => this.#options.log.error({ error }, 'the queue of webhooks failed'));
    this.#moving = this.#move();
  }

  /** Stops. Another gateway, or this one after its restart, repeats the running attempts. */
  async stop(): Promise<void> {
    // Close the worker first: a closed worker records no outcome of a job, and the job is repeated when its lock ends.
    // An open worker would record each attempt that the abort below interrupts as a failure, and would give up the
    // delivery if that was its last attempt.
    await this.#worker.close(true);
    this.#stopping.abort(new Error('The gateway is being stopped.'));
    await this.#moving;
    await this.#queue.close();
    this.#connection.close();
  }

  /** Moves ended invocations from the set into the queue as they arrive. */
  async #move(): Promise<void> {
    const { store, channels, log } = this.#options;
    const { signal } = this.#stopping;
    const wakeup = new Wakeup();
    const wake = () => wakeup.set();
    let stop: (() => void) | undefined;
    while (!signal.aborted) {
      try {
        stop ??= await channels.listen(store.keys.webhooksChannel, { message: wake, resumed: wake });
        if (!(await this.#moveSome())) await wakeup.wait(IDLE_MS, signal);
      } catch (error) {
        if (!signal.aborted && !isConnectionError(error))
          log.warn({ error }, 'the webhooks of ended invocations could not be queued');
        await wakeup.wait(RETRY_MS, signal);
      }
    }
    stop?.();
  }

  /** Moves one round. Returns true for a full round, after which the set may hold more. */
  async #moveSome(): Promise<boolean> {
    const { store, log } = this.#options;
    const { keys } = store;
    const ids = await store.call((redis) => redis.zrange(keys.webhooks, 0, String(ROUND_SIZE - 1)));
    let moved = 0;
    for (const id of ids) {
      try {
        await this.#moveOne(id);
        moved += 1;
      } catch (error) {
        if (StoreError.from(error).code === 'store-unavailable') throw error;
        log.warn({ error, invocation: id }, 'the webhook of an ended invocation could not be queued');
        // The invocation stays in the set, behind later ones, so that it does not block them.
        await store.call((redis) => redis.zadd(keys.webhooks, store.clock() + RETRY_MS, id));
      }
    }
    return moved === ROUND_SIZE;
  }

  async #moveOne(id: string): Promise<void> {
    const { store } = this.#options;
    const { keys } = store;
    const tenant = await store.call((redis) => redis.hget(keys.invocation(id), 'tenant'));
    if (tenant !== null) {
      // Adding an invocation twice is harmless: `#deliver` skips a webhook that is no longer pending.
      const options = { jobId: id, attempts: MAX_ATTEMPTS, backoff: { type: 'custom' } };
      await store.call(() => this.#queue.add('deliver', { id, tenant }, options));
    }
    await store.call((redis) => redis.zrem(keys.webhooks, id));
  }

  async #deliver(job: Job<Delivery>, token: string | undefined): Promise<void> {
    const { id, tenant } = job.data;
    const startedAt = Date.now();
    const waitMs = this.#slots.enter(tenant, startedAt);
    if (waitMs > 0) {
      await job.moveToDelayed(startedAt + waitMs, token);
      // Tells BullMQ that the job was moved: it has neither succeeded nor failed.
      throw new DelayedError();
    }
    try {
      const invocation = await this.#options.invocations.get(id).catch(async (error) => {
        if (StoreError.from(error).code !== 'store-unavailable') throw error;
        // BullMQ counts a failed job as an attempt. After the last attempt it drops the job, and the webhook would stay
        // pending for good.
        await job.moveToDelayed(Date.now() + RETRY_MS, token);
        throw new DelayedError();
      });
      if (invocation?.webhook?.status !== 'pending') return;
      const { webhook } = invocation;
      const attempt = job.attemptsMade + 1;
      const made = await this.#guard.run(id, () => this.#make(invocation));
      switch (made.kind) {
        case 'ended':
          return await this.#attempt(invocation, webhook, made.result, attempt);
        case 'later':
          await job.moveToDelayed(Date.now() + RETRY_MS, token);
          throw new DelayedError();
        case 'refused':
          await this.#giveUp(invocation, attempt);
      }
    } finally {
      const now = Date.now();
      this.#slots.leave(tenant, now, now - startedAt);
    }
  }

  async #attempt(invocation: Invocation, { url }: WebhookState, message: Message, attempt: number): Promise<void> {
    const { store, firstWaitMs, onAttempt } = this.#options;
    const answer = 'error' in message ? message : await this.#send(invocation, url, message.body);
    // The stop has interrupted the attempt: the gateway that takes over the delivery repeats it.
    if (this.#stopping.signal.aborted && 'error' in answer) throw new Error(answer.error);
    const verdict = verdictOn(answer);
    const isLast = verdict !== 'retry' || attempt >= MAX_ATTEMPTS;
    const statusOfFailure = isLast ? 'failed' : 'pending';
    const status = verdict === 'delivered' ? 'delivered' : statusOfFailure;
    const now = store.clock();
    const waitMs = waitAfter(attempt, firstWaitMs, 'status' in answer ? askedWait(answer.retryAfter, now) : 0);
    await this.#note(invocation.id, [
      attempt,
      status,
      'status' in answer ? answer.status : '',
      'error' in answer ? answer.error : '',
      status === 'pending' ? now + waitMs : '',
    ]);
    onAttempt?.(status === 'pending' ? 'retry' : status);
    if (status === 'delivered') return;
    const why = 'error' in answer ? answer.error : `status ${answer.status}`;
    throw isLast ? new UnrecoverableError(why) : new FailedAttempt(why, waitMs);
  }

  /** Ends the repetition of a delivery during which the gateway died each time. */
  async #giveUp({ id, tenant }: Invocation, attempt: number): Promise<void> {
    const { log, onAttempt } = this.#options;
    await this.#note(id, [
      attempt,
      'failed',
      '',
      'three gateways in a row died while they made the body of this webhook',
      '',
    ]);
    await this.#guard.forget(id);
    onAttempt?.('failed');
    log.error(
      { tenant, invocation: id, unendedRuns: 3 },
      'a webhook is given up: three gateways in a row died while they made its body',
    );
  }

  /**
   * Stores the outcome of an attempt. Tries again until Redis answers or the gateway stops: after the last attempt, no later one would replace a lost
   * outcome.
   *
   * @param args the arguments of `note-attempt` of webhooks.lua
   */
  async #note(id: string, args: (string | number)[]): Promise<void> {
    const { store } = this.#options;
    for (;;) {
      try {
        await store.script(NOTE_ATTEMPT, [store.keys.invocation(id)], args);
        return;
      } catch (error) {
        const { signal } = this.#stopping;
        if (signal.aborted || StoreError.from(error).code !== 'store-unavailable') throw error;
        await sleep(RETRY_MS, undefined, { signal });
      }
    }
  }

  /** Makes the body from the invocation's result, which a tenant chose: the only part of a delivery that can kill a gateway. */
  async #make(invocation: Invocation): Promise<Message> {
    try {
      return { body: await this.#options.payload(invocation) };
    } catch (error) {
      return this.#unmade(invocation, error);
    }
  }

  /** This failure is stored like any other. Its text shows that the platform is at fault. */
  #unmade({ id, tenant }: Invocation, error: unknown): { readonly error: string } {
    this.#options.log.error({ error, invocation: id, tenant }, 'a notification could not be made');
    return { error: 'the platform could not make the notification' };
  }

  async #send(invocation: Invocation, url: string, body: string): Promise<Answer> {
    const { store, secrets, reach, version } = this.#options;
    let secret: string;
    try {
      secret = await secrets.get(invocation.tenant);
    } catch (error) {
      return this.#unmade(invocation, error);
    }
    const headers = {
      'content-type': 'application/json',
      'user-agent': `pie/${version}`,
      ...signedHeaders(secret, invocation.id, store.clock(), body),
    };
    const signal = AbortSignal.any([AbortSignal.timeout(ATTEMPT_MS), this.#stopping.signal]);
    return post(new URL(url), headers, body, { reach, tenant: invocation.tenant }, signal);
  }
}

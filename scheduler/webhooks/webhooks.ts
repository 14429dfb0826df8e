import type { IncomingMessage } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { DelayedError, type Job, Queue, UnrecoverableError, Worker } from 'bullmq';
import type { Redis } from 'ioredis';
import type { Reach } from '../addresses/reach.ts';
import { respond, untilAborted } from '../addresses/respond.ts';
import type { Invocations } from '../invocations/invocations.ts';
import type { Invocation, WebhookState } from '../invocations/types.ts';
import { WEBHOOK_QUEUE } from '../keys.ts';
import type { Logger } from '../policies/logger.ts';
import { MAX_EXCUSED_MS } from '../policies/silence.ts';
import { type Channels, Wakeup } from '../store/channels.ts';
import { WorkerConnection } from '../store/connection.ts';
import { CrashGuard } from '../store/crash-guard.ts';
import { isConnectionError, StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import { signedHeaders, type WebhookSecrets } from './secrets.ts';

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
 * queue, and works on the queue. An end is delivered at least once, always with the same `webhook-id`, as in Standard Webhooks. The record of the invocation
 * keeps the state of its delivery. Each attempt resolves and checks the host anew, connects to the checked address, and follows no redirect.
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

/** Minimum time between the times at which two waiting deliveries of a tenant ask again. */
const MIN_SPACING_MS = 5;
/** Longest time that a delivery waits before it asks again. */
const MAX_WAIT_MS = 300_000;
/** Weight of the latest duration in the mean. */
const LATEST = 0.3;
/** Mean duration of a tenant's deliveries that is assumed before the first one ends. */
const FIRST_GUESS_MS = 50;

interface Tenant {
  active: number;
  meanMs: number;
  /** The latest time at which a waiting delivery was told to ask again, at most `MAX_WAIT_MS` ahead. */
  givenUntil: number;
}

/**
 * Bounds the concurrent deliveries of one tenant, so that a tenant with dead endpoints does not take all concurrent
 * deliveries of a gateway. A delivery beyond the bound learns when to ask again. The waits follow the speed of the
 * tenant's endpoints: deliveries to fast endpoints wait little, and deliveries to dead ones ask rarely. Pure: callers
 * pass the time.
 */
export class DeliverySlots {
  readonly #maxActive: number;
  readonly #tenants = new Map<string, Tenant>();

  /** @param maxActive concurrent deliveries of one tenant. */
  constructor(maxActive: number) {
    this.#maxActive = maxActive;
  }

  /** Number of tenants with stored state. */
  get size(): number {
    return this.#tenants.size;
  }

  /** 0 when the delivery may begin (call `leave` at its end), else the time to wait before asking again. */
  enter(tenant: string, nowMs: number): number {
    const state = this.#tenants.get(tenant) ?? { active: 0, meanMs: FIRST_GUESS_MS, givenUntil: nowMs };
    this.#tenants.set(tenant, state);
    if (state.active < this.#maxActive) {
      state.active += 1;
      return 0;
    }
    const spacingMs = Math.max(MIN_SPACING_MS, state.meanMs / this.#maxActive);
    // Each delivery that asks again gets a time behind all earlier ones. Without the bound `MAX_WAIT_MS`, an outage of the endpoints would therefore
    // delay deliveries for hours after its end.
    state.givenUntil = Math.min(Math.max(nowMs, state.givenUntil) + spacingMs, nowMs + MAX_WAIT_MS);
    return Math.ceil(state.givenUntil - nowMs);
  }

  leave(tenant: string, nowMs: number, tookMs: number): void {
    const state = this.#tenants.get(tenant);
    if (state === undefined) return;
    state.active -= 1;
    state.meanMs += (tookMs - state.meanMs) * LATEST;
    if (state.active === 0 && state.givenUntil <= nowMs) this.#tenants.delete(tenant);
  }
}

/** Wait after the first failed attempt. Each further wait is twice as long: 5 s, 10 s, 20 s … */
const FIRST_WAIT_MS = 5000;
/** The waits between 15 attempts add up to 22.8 hours, so an endpoint may be down for most of a day. */
export const MAX_ATTEMPTS = 15;

/** Longest wait that a receiver may ask for. The output of an invocation is kept for a day by default. */
const MAX_ASKED_WAIT_MS = 6 * 3_600_000;

/** Wait after the failure of the n-th attempt, counted from 1. A receiver may ask for a longer wait (`askedWait`), but for none that is shorter. */
export function waitAfter(attempt: number, firstWaitMs = FIRST_WAIT_MS, askedMs = 0): number {
  return Math.max(firstWaitMs * 2 ** (attempt - 1), Math.min(askedMs, MAX_ASKED_WAIT_MS));
}

/** The three forms of a date in HTTP (RFC 9110, section 5.6.7); all are in UTC, and the oldest does not say so. */
const HTTP_DATE =
  /^(?:\w{3}, \d{2} \w{3} \d{4} \d{2}:\d{2}:\d{2} GMT|\w{6,9}, \d{2}-\w{3}-\d{2} \d{2}:\d{2}:\d{2} GMT|\w{3} \w{3} [ \d]\d \d{2}:\d{2}:\d{2} \d{4})$/;

/** The wait that the header `Retry-After` asks for: a number of seconds, or a date. 0 without one, and for a date in the past. */
export function askedWait(retryAfter: string | undefined, nowMs: number): number {
  const text = retryAfter?.trim() ?? '';
  if (/^\d{1,10}$/.test(text)) return Number(text) * 1000;
  if (!HTTP_DATE.test(text)) return 0;
  const at = Date.parse(text.endsWith('GMT') ? text : `${text} GMT`);
  return Number.isNaN(at) ? 0 : Math.max(0, at - nowMs);
}

/** Outcome of an attempt: the HTTP status of the response and its header `Retry-After`, or the reason why there was no response. */
export type Answer = { readonly status: number; readonly retryAfter?: string } | { readonly error: string };

/** `delivered` when the receiver accepted the webhook; `gone` when the receiver wants no further attempt (410 Gone); else `retry`. */
export function verdictOn(answer: Answer): 'delivered' | 'retry' | 'gone' {
  if (!('status' in answer)) return 'retry';
  if (answer.status >= 200 && answer.status < 300) return 'delivered';
  return answer.status === 410 ? 'gone' : 'retry';
}

/** Maximum bytes read of a response's body. The content is ignored, but reading lets a normal server finish its response. */
const MAX_DRAINED_BYTES = 64 * 1024;
const MAX_HEAD_BYTES = 16 * 1024;

/**
 * Sends a body and returns the response's status and `Retry-After`. Connects only to the addresses that `reach` has checked, follows no redirect, and gives up when
 * the signal aborts, whatever the server does. Never throws.
 */
export async function post(
  url: URL,
  headers: Readonly<Record<string, string>>,
  body: string,
  { reach, tenant }: { readonly reach: Reach; readonly tenant: string },
  signal: AbortSignal,
): Promise<Answer> {
  try {
    const addresses = await untilAborted(reach.addresses(url, tenant, signal), signal);
    const sentHeaders = { ...headers, 'content-length': String(Buffer.byteLength(body)) };
    const request = { url, addresses, method: 'POST', headers: sentHeaders, body, maxHeadBytes: MAX_HEAD_BYTES };
    const { response } = await untilAborted(respond(request, signal), signal);
    // The status is the result, even when reading the body fails.
    await untilAborted(drainBody(response), signal).catch(() => undefined);
    const retryAfter = response.headers['retry-after'];
    return { status: response.statusCode ?? 0, ...(retryAfter !== undefined && { retryAfter }) };
  } catch (error) {
    return { error: signal.aborted ? 'no answer in time' : reasonOf(error) };
  }
}

async function drainBody(response: IncomingMessage): Promise<void> {
  let bytes = 0;
  for await (const chunk of response) {
    bytes += (chunk as Buffer).length;
    if (bytes > MAX_DRAINED_BYTES) break;
  }
  response.destroy();
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code } = error as NodeJS.ErrnoException;
  return (code ?? error.message).slice(0, 200);
}

const MAX_URL_BYTES = 2048;

/**
 * Checks the URL of a webhook as far as its text allows; null when it is valid. The IP addresses of its host name are
 * checked when the webhook is sent.
 */
export function webhookFault(text: string, tenant: string, reach: Reach): string | null {
  if (Buffer.byteLength(text) > MAX_URL_BYTES) return `it has more than ${MAX_URL_BYTES} bytes`;
  if (!URL.canParse(text)) return 'it is not an absolute URL';
  const url = new URL(text);
  if (url.protocol !== 'https:' && url.protocol !== 'http:')
    return `${url.protocol} is not a protocol of webhooks; use https:`;
  if (url.username !== '' || url.password !== '') return 'it holds credentials; check the signature instead';
  // The operator has allowed this private host for the tenant, so the checks below do not apply.
  if (reach.trusts(url, tenant)) return null;
  if (url.protocol === 'http:') return 'it is not https';
  if (reach.refuses(url, tenant)) return `${url.hostname} is not a public address outside this machine`;
  if (/(^|\.)localhost\.?$/.test(url.hostname)) return 'localhost is this machine';
  return null;
}

import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Queue } from 'bullmq';
import type { Redis } from 'ioredis';
import { BUILD_QUEUE } from '../keys.ts';
import type { Runtimes } from '../runtimes/runtimes.ts';
import { type Channels, Wakeup } from '../store/channels.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';

/** A request to check a component and build its artifact, before the deploy registers the version. */
export interface BuildRequest {
  readonly id: string;
  readonly tenant: string;
  readonly name: string;
  /** Hash of the component in `Blobs`. */
  readonly componentHash: string;
  /** Memory limit compiled into the artifact. */
  readonly memoryMb: number;
  /** Milliseconds since the Unix epoch; afterwards the requester no longer waits. */
  readonly deadlineAt: number;
}

/** The reason why a component was refused. `build-timeout`, `runtime-unavailable` and `too-many-requests` do not judge the component. */
export type BuildFailureCode =
  | 'not-wasm'
  | 'core-module'
  | 'wrong-world'
  | 'component-too-large'
  | 'unsupported-component'
  | 'build-failed'
  | 'build-timeout'
  | 'runtime-unavailable'
  | 'too-many-requests';

export interface BuildRefusal {
  readonly ok: false;
  readonly code: BuildFailureCode;
  readonly message: string;
  readonly hint: string;
}

/**
 * `artifact` is the report of the build: `hash`, `cached`, times in ms (`buildMs`, and its steps `checkMs`, `transpileMs`, `meterMs`,
 * `writeMs`; `coldStartMs`, `warmStartMs`), sizes in bytes (`componentBytes`, `moduleBytes`; `instanceBytes` of a ready instance,
 * `poolBytes` that the runtime keeps for all of them).
 */
export type BuildReply = { readonly ok: true; readonly artifact: Readonly<Record<string, unknown>> } | BuildRefusal;

/**
 * Covers a build of 150 s on a busy machine, the examination of its artifact and a wait behind other builds. Node's `fetch` in the client waits
 * 300 s for the gateway's answer; the rest of this time is for the transfer of the component.
 */
const BUILD_DEADLINE_MS = 240_000;
/** Longest wait for a runtime. Covers a restart of the only runtime, including the supervisor's longest pause of 5 s. */
const RUNTIME_GRACE_MS = 10_000;
/** Interval of reads of the reply, in case its notice gets lost. */
const POLL_MS = 1000;
/** Maximum builds of a tenant that wait or run. The component of each waiting build takes memory of Redis. */
export const MAX_TENANT_BUILDS = 256;
/** Bounds the removal of a request from Redis, which must not delay the answer much while Redis is away. */
const CLEAN_UP_MS = 500;
/** Length of BullMQ's stream of events, which has no reader here. */
const BULL_EVENTS = 100;
/** The largest priority that BullMQ accepts. */
const MAX_PRIORITY = 2 ** 21 - 1;

const TAKE_TURN = loadScript(new URL('./builds.lua', import.meta.url), 'take-turn');

/** Requests builds from a runtime. Tenants take turns (`builds.lua`). */
export class Builds {
  readonly #store: Store;
  readonly #channels: Channels;
  readonly #runtimes: Runtimes;
  readonly #connect: () => Redis;
  /** Opened by the first request, because a runtime makes no requests. */
  #queue: Queue<BuildRequest> | undefined;
  #connection: Redis | undefined;

  /** @param connect opens a connection for the queue alone: BullMQ defines its scripts on it, and ioredis copies them into each pipeline there */
  constructor(store: Store, channels: Channels, runtimes: Runtimes, connect: () => Redis) {
    this.#store = store;
    this.#channels = channels;
    this.#runtimes = runtimes;
    this.#connect = connect;
  }

  /**
   * Asks a runtime to check and build a component. Resolves within the deadline: to `build-timeout` when the build takes longer, to
   * `runtime-unavailable` when no runtime is alive, and to `too-many-requests` while the tenant has {@link MAX_TENANT_BUILDS} others. An abort
   * of `signal` ends the wait with `build-timeout` or `runtime-unavailable`.
   */
  async request(
    build: Omit<BuildRequest, 'id' | 'deadlineAt'>,
    options: { deadlineMs?: number; signal?: AbortSignal } = {},
  ): Promise<BuildReply> {
    const { keys } = this.#store;
    const queue = this.#openQueue();
    const deadlineMs = options.deadlineMs ?? BUILD_DEADLINE_MS;
    const deadlineAt = this.#store.clock() + deadlineMs;
    if (!(await this.#awaitRuntime(Math.min(RUNTIME_GRACE_MS, deadlineMs), options.signal))) return unavailable();
    const request: BuildRequest = { ...build, id: randomUUID(), deadlineAt };
    const wakeup = new Wakeup();
    const wake = () => wakeup.set();
    const stopListening = await this.#channels.listen(keys.buildChannel(request.id), { message: wake, resumed: wake });
    try {
      const args = [request.id, build.tenant, this.#store.clock(), deadlineAt, MAX_TENANT_BUILDS];
      const turn = Number(await this.#store.script(TAKE_TURN, [keys.buildTurns], args));
      if (turn < 0) return tooMany();
      // BullMQ runs the smallest priority first, and jobs without a priority before all others.
      const priority = Math.min(1 + turn, MAX_PRIORITY);
      await this.#store.call(() => queue.add('build', request, { jobId: request.id, priority }));
      while (!options.signal?.aborted) {
        const reply = await this.#store.call((redis) => redis.get(keys.build(request.id)));
        if (reply !== null) return JSON.parse(reply) as BuildReply;
        const leftMs = deadlineAt - this.#store.clock();
        if (leftMs <= 0) break;
        await wakeup.wait(Math.min(leftMs, POLL_MS), options.signal);
      }
      return timedOut(deadlineMs);
    } finally {
      stopListening();
      // BullMQ refuses to remove a build that has begun. The runtime ends such a build at its deadline.
      await this.#store
        .call((redis) => Promise.all([queue.remove(request.id), redis.hdel(keys.buildTurns, request.id)]), CLEAN_UP_MS)
        .catch(() => undefined);
    }
  }

  async close(): Promise<void> {
    await this.#queue?.close();
    this.#connection?.disconnect();
  }

  #openQueue(): Queue<BuildRequest> {
    if (this.#queue) return this.#queue;
    const { keys } = this.#store;
    const connection = this.#connect();
    connection.on('error', () => undefined);
    this.#connection = connection;
    const streams = { events: { maxLen: BULL_EVENTS } };
    this.#queue = new Queue(BUILD_QUEUE, { connection, prefix: keys.bull, streams });
    this.#queue.on('error', () => undefined);
    return this.#queue;
  }

  async #awaitRuntime(withinMs: number, signal?: AbortSignal): Promise<boolean> {
    const giveUpAt = performance.now() + withinMs;
    while ((await this.#runtimes.alive()).length === 0) {
      if (performance.now() > giveUpAt || signal?.aborted) return false;
      await sleep(Math.min(100, withinMs), undefined, { signal }).catch(() => undefined);
    }
    return true;
  }
}

function unavailable(): BuildRefusal {
  return {
    ok: false,
    code: 'runtime-unavailable',
    message: 'No runtime is running to build the component.',
    hint: 'Look at the logs of the runtime, or start one; then deploy again.',
  };
}

function tooMany(): BuildRefusal {
  return {
    ok: false,
    code: 'too-many-requests',
    message: `${MAX_TENANT_BUILDS} builds of the tenant wait or run, which is the limit.`,
    hint: 'Deploy again when some of them have ended.',
  };
}

function timedOut(deadlineMs: number): BuildRefusal {
  return {
    ok: false,
    code: 'build-timeout',
    message: `The component was not built within ${deadlineMs} ms.`,
    hint: 'Make the component smaller, or deploy again when fewer builds are under way.',
  };
}

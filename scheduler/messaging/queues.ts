import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { AttemptName } from '../invocations/types.ts';
import { QuotaExceeded } from '../quotas/exceeded.ts';
import type { Channels } from '../store/channels.ts';
import { StoreError, staleAttempt } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import { REPLY_MS, type Store } from '../store/store.ts';
import { Wakeup } from '../store/wakeup.ts';
import { decodeEnvelope, type Envelope, encodeEnvelope } from './message.ts';

/** `full`: the queue is full; `messages` and `bytes` wait in it. `tenant-full`: all queues of the tenant together are full, with `bytes`. */
export type PushOutcome =
  | { readonly kind: 'ok' }
  | { readonly kind: 'full'; readonly messages: number; readonly bytes: number }
  | { readonly kind: 'tenant-full'; readonly bytes: number };

/** Maximum messages that may wait in one queue. */
export const MAX_QUEUE_MESSAGES = 10_000;
/** Maximum bytes of the messages that may wait in one queue. */
export const MAX_QUEUE_BYTES = 16 * 2 ** 20;
/** Maximum bytes in all queues of a tenant. Each message costs 64 bytes more than its content. Each queue costs 512 bytes, even empty. */
export const MAX_QUEUES_BYTES = 64 * 2 ** 20;
/** A queue expires after a day without use. */
const QUEUE_MS = 24 * 3_600_000;
/** Time for which Redis keeps the reply to a pull, from which the message can be put back. The puller deletes the reply after the delivery. */
const TAKEN_MS = 300_000;
/** A puller without a wake-up checks the queue at this interval, since wake-ups can be lost. */
const IDLE_PULL_MS = 5000;
/** Pause after a call that failed because Redis was away. */
const RETRY_MS = 200;
/** Bytes of the number that precedes each message in Redis. */
const NUMBER_BYTES = 8;

const SCRIPTS = {
  push: loadScript(new URL('./messaging.lua', import.meta.url), 'push'),
  pull: loadScript(new URL('./messaging.lua', import.meta.url), 'pull'),
  putBack: loadScript(new URL('./messaging.lua', import.meta.url), 'put-back'),
};

interface Puller {
  /** The attempt that pulls. */
  readonly by: AttemptName | undefined;
  readonly resolve: (envelope: Envelope | null) => void;
  readonly reject: (error: StoreError) => void;
}

interface TakenMessage {
  /** Names the reply from which the message can be put back. */
  readonly token: string;
  readonly envelope: Envelope;
}

/** Pullers in this process that wait for a message of one queue, in order. */
interface WaitingPullers {
  readonly pullers: Puller[];
  readonly wakeup: Wakeup;
}

/** Queues of messages in Redis. At most one puller gets each message, in order. A message is lost when its puller's process dies before delivery. */
export class MessageQueues {
  readonly #store: Store;
  readonly #channels: Channels;
  readonly #waitersByKey = new Map<string, WaitingPullers>();
  readonly #closing = new AbortController();
  readonly #tenantBytes: number;

  /** @param tenantBytes maximum bytes in all queues of a tenant */
  constructor(store: Store, channels: Channels, tenantBytes = MAX_QUEUES_BYTES) {
    this.#store = store;
    this.#channels = channels;
    this.#tenantBytes = tenantBytes;
  }

  /**
   * Appends a message to a queue.
   * @param by the attempt that pushes
   * @throws QuotaExceeded, and StoreError `stale-attempt` and others
   */
  async push(tenant: string, name: string, envelope: Envelope, by?: AttemptName): Promise<PushOutcome> {
    const { keys } = this.#store;
    const scriptKeys = [...this.#keys(tenant, name, randomUUID()), keys.invocation(by?.id ?? '')];
    const reply = await this.#store.script(SCRIPTS.push, scriptKeys, [
      ...[keys.messageQueueChannel(tenant, name), encodeEnvelope(envelope)],
      ...[MAX_QUEUE_MESSAGES, MAX_QUEUE_BYTES, QUEUE_MS, REPLY_MS, this.#tenantBytes, by?.epoch ?? ''],
      ...[this.#store.clock(), keys.account(tenant)],
    ]);
    // The codes of `push` of messaging.lua.
    const [outcome, first, second, third] = reply as unknown[];
    if (outcome === -3) throw staleAttempt();
    if (outcome === -4) throw QuotaExceeded.ofBytes(first, second, third, this.#store.clock());
    if (outcome === 1) return { kind: 'ok' };
    if (outcome === -2) return { kind: 'tenant-full', bytes: Number(first) };
    return { kind: 'full', messages: Number(first), bytes: Number(second) };
  }

  /**
   * Takes the first message of a queue, or waits for one, even through an outage of Redis. Resolves to null when the signal aborts first, or after
   * `close`. A message that was taken by then goes back to its place in the queue.
   *
   * @param by the attempt that pulls.
   * @throws StoreError `store-unavailable` when Redis is away at the first try, `stale-attempt`.
   */
  async pull(tenant: string, name: string, signal: AbortSignal, by?: AttemptName): Promise<Envelope | null> {
    if (signal.aborted) return null;
    const key = this.#store.keys.messageQueue(tenant, name);
    // Pullers that already wait come first.
    if (!this.#waitersByKey.has(key)) {
      const takenMessage = await this.#take(tenant, name, by);
      if (takenMessage) {
        if (signal.aborted) {
          this.#giveUp(tenant, name, takenMessage.token);
          return null;
        }
        this.#confirmDelivery(takenMessage);
        return takenMessage.envelope;
      }
    }
    return this.#wait(tenant, name, signal, by);
  }

  close(): void {
    this.#closing.abort();
    for (const { wakeup } of this.#waitersByKey.values()) wakeup.set();
  }

  #wait(tenant: string, name: string, signal: AbortSignal, by?: AttemptName): Promise<Envelope | null> {
    if (signal.aborted) return Promise.resolve(null);
    const key = this.#store.keys.messageQueue(tenant, name);
    let waiters = this.#waitersByKey.get(key);
    if (!waiters) {
      waiters = { pullers: [], wakeup: new Wakeup() };
      this.#waitersByKey.set(key, waiters);
      void this.#serve(tenant, name, key, waiters);
    }
    const { pullers, wakeup } = waiters;
    const outcome = Promise.withResolvers<Envelope | null>();
    const puller: Puller = { ...outcome, by };
    const leave = () => {
      const index = pullers.indexOf(puller);
      if (index < 0) return;
      pullers.splice(index, 1);
      outcome.resolve(null);
      wakeup.set();
    };
    pullers.push(puller);
    signal.addEventListener('abort', leave, { once: true });
    return outcome.promise.finally(() => signal.removeEventListener('abort', leave));
  }

  /** Serves the pullers of a queue until none is left. Never rejects. */
  async #serve(tenant: string, name: string, key: string, { pullers, wakeup }: WaitingPullers): Promise<void> {
    const wake = () => wakeup.set();
    let stop: (() => void) | undefined;
    try {
      stop = await this.#channels.listen(this.#store.keys.messageQueueChannel(tenant, name), {
        message: wake,
        resumed: wake,
      });
      for (let firstPuller = pullers[0]; firstPuller && !this.#closing.signal.aborted; firstPuller = pullers[0]) {
        const takenMessage = await this.#takeFor(tenant, name, firstPuller, pullers);
        if (takenMessage === 'over') continue;
        if (!takenMessage) {
          await wakeup.wait(IDLE_PULL_MS, this.#closing.signal);
        } else if (pullers[0] === firstPuller) {
          pullers.shift();
          this.#confirmDelivery(takenMessage);
          firstPuller.resolve(takenMessage.envelope);
        } else {
          // The puller was aborted meanwhile.
          this.#giveUp(tenant, name, takenMessage.token);
        }
      }
      for (const { resolve } of pullers.splice(0)) resolve(null);
    } catch (error) {
      for (const { reject } of pullers.splice(0)) reject(StoreError.from(error));
    } finally {
      stop?.();
      this.#waitersByKey.delete(key);
    }
  }

  /**
   * Takes a message for a puller, even through an outage of Redis. Returns null when there is no message, and `over` when the puller was rejected
   * because its attempt has ended.
   */
  async #takeFor(
    tenant: string,
    name: string,
    puller: Puller,
    pullers: Puller[],
  ): Promise<TakenMessage | null | 'over'> {
    while (!this.#closing.signal.aborted) {
      try {
        return await this.#take(tenant, name, puller.by);
      } catch (error) {
        if (error instanceof StoreError && error.code === 'stale-attempt') {
          const index = pullers.indexOf(puller);
          if (index >= 0) pullers.splice(index, 1);
          puller.reject(error);
          return 'over';
        }
        // A connection that this process closed does not reconnect.
        const isClosed = this.#store.redis.status === 'end';
        if (isClosed || StoreError.from(error).code !== 'store-unavailable') throw error;
        await sleep(RETRY_MS);
      }
    }
    return null;
  }

  async #take(tenant: string, name: string, by: AttemptName | undefined): Promise<TakenMessage | null> {
    const token = randomUUID();
    const scriptKeys = [...this.#keys(tenant, name, token), this.#store.keys.invocation(by?.id ?? '')];
    try {
      const args = [QUEUE_MS, TAKEN_MS, by?.epoch ?? '', this.#store.keys.account(tenant)];
      const [replyCode, message] = await this.#store.scriptBuffers(SCRIPTS.pull, scriptKeys, args);
      if (replyCode === -1) throw staleAttempt();
      if (replyCode !== 1 || !Buffer.isBuffer(message)) return null;
      return { token, envelope: decodeEnvelope(message.subarray(NUMBER_BYTES)) };
    } catch (error) {
      // The script may have taken a message, or may still do so.
      if (StoreError.from(error).code !== 'stale-attempt') this.#giveUp(tenant, name, token);
      throw error;
    }
  }

  /** The keys with which the keys of every script begin. */
  #keys(tenant: string, name: string, token: string): string[] {
    const { keys } = this.#store;
    return [
      ...[keys.messageQueue(tenant, name), keys.messageQueueState(tenant, name), keys.reply(token)],
      ...[keys.messageQueuesUsage(tenant), keys.messageQueuesExpiries(tenant)],
    ];
  }

  /** Deletes the reply with a delivered message, so that the message cannot be put back. */
  #confirmDelivery({ token }: TakenMessage): void {
    // When this fails, the reply expires by itself.
    this.#store.call((redis) => redis.unlink(this.#store.keys.reply(token))).catch(() => undefined);
  }

  /** Puts back the message that a pull may have taken; retries until Redis has dropped the reply to the pull. */
  #giveUp(tenant: string, name: string, token: string): void {
    const { keys } = this.#store;
    const replyEndsAt = performance.now() + TAKEN_MS;
    const putBack = async (): Promise<void> => {
      while (this.#store.redis.status !== 'end' && performance.now() < replyEndsAt) {
        try {
          await this.#store.script(SCRIPTS.putBack, this.#keys(tenant, name, token), [
            keys.messageQueueChannel(tenant, name),
            QUEUE_MS,
            TAKEN_MS,
            keys.account(tenant),
          ]);
          return;
        } catch {
          await sleep(RETRY_MS, undefined, { ref: false });
        }
      }
    };
    void putBack();
  }
}

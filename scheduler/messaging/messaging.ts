import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { AttemptName } from '../invocations/types.ts';
import { Shares } from '../policies/shares.ts';
import { QuotaExceeded } from '../quotas/exceeded.ts';
import { type Channels, Wakeup } from '../store/channels.ts';
import { StoreError, staleAttempt } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import { REPLY_MS, type Store } from '../store/store.ts';

/** Messages between the inferlets of a tenant: broadcasts to all present subscribers, and queues whose messages each go to one puller. */
export class Messaging {
  readonly broadcasts: Broadcasts;
  readonly queues: MessageQueues;

  constructor(store: Store, channels: Channels) {
    this.broadcasts = new Broadcasts(store, channels);
    this.queues = new MessageQueues(store, channels);
  }

  /** Ends every wait and every subscription of this process. */
  close(): void {
    this.broadcasts.close();
    this.queues.close();
  }
}

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

/**
 * Queues of messages in Redis. At most one puller gets each message, in order. A message whose puller left, or whose reply was lost, returns to its place;
 * it is lost when its puller's process dies before delivery.
 */
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

/** A message between inferlets. */
export type Message = { readonly text: string } | { readonly bytes: Uint8Array };

/** A message with its sender. */
export interface Envelope {
  /** Id of the invocation that sent the message. */
  readonly sender: string;
  readonly message: Message;
}

/** Maximum bytes of one message. */
export const MAX_MESSAGE_BYTES = 2 ** 20;

const TEXT = 't'.charCodeAt(0);
const END_OF_SENDER = 0;

/** Encodes an envelope as the sender, a zero byte, `t` (text) or `b` (bytes), and the content of the message. */
export function encodeEnvelope({ sender, message }: Envelope): Buffer {
  const kind = 'text' in message ? 't' : 'b';
  return Buffer.concat([
    Buffer.from(`${sender}\0${kind}`),
    'text' in message ? Buffer.from(message.text) : message.bytes,
  ]);
}

/** Decodes the output of `encodeEnvelope`; the bytes of the message are a copy. */
export function decodeEnvelope(encoded: Buffer): Envelope {
  const end = encoded.indexOf(END_OF_SENDER);
  const kind = encoded[end + 1];
  const content = encoded.subarray(end + 2);
  return {
    sender: encoded.toString('utf8', 0, end),
    message: kind === TEXT ? { text: content.toString('utf8') } : { bytes: new Uint8Array(content) },
  };
}

const BROADCAST = loadScript(new URL('./messaging.lua', import.meta.url), 'broadcast');
/** Time after its last change at which a topic's registration expires; longer than an invocation may run (one hour). */
const TOPIC_MS = 2 * 3_600_000;
/** Bytes that may wait in all subscriptions of this process together; `Subscription` bounds each of them. */
const MAX_ALL_WAITING_BYTES = 256 * 2 ** 20;
/** The byte after each head field of a broadcast's payload: generation, zero byte, id of the topic, zero byte, envelope. */
const SEPARATOR = 0;

/** State of one subscription of a topic. */
interface Member {
  /** The topic's generation when the member subscribed. */
  readonly generation: number;
  /** True once the member is registered: from then on it misses no broadcast while the connection holds. */
  isReady: boolean;
  /** True when the connection was lost after `ready`. */
  hasMissed: boolean;
}

/** The subscriptions of this process to one topic. */
interface Topic {
  readonly tenant: string;
  readonly name: string;
  readonly subscriptions: Map<Subscription, Member>;
  /** Number of the last subscription. A broadcast carries the generation that was registered when it counted the subscriptions. */
  generation: number;
  /** True when Redis may hold an outdated number of subscriptions. */
  isStale: boolean;
  /** The running repair of the registration. */
  repair: Promise<void> | null;
}

/**
 * Sends messages to all present subscribers of a topic. Each process registers its number of subscriptions per topic and listens to its own
 * channel. A broadcast therefore counts inferlets, although they share a connection, and never counts the inferlets of a dead process.
 */
export class Broadcasts {
  readonly #store: Store;
  readonly #channels: Channels;
  /** The channel of this process. */
  readonly #channel: string;
  readonly #room = new Shares(MAX_ALL_WAITING_BYTES);
  readonly #topics = new Map<string, Topic>();
  #listening: Promise<() => void> | null = null;
  #isClosed = false;

  constructor(store: Store, channels: Channels) {
    this.#store = store;
    this.#channels = channels;
    this.#channel = store.keys.broadcastChannel(randomUUID());
  }

  /**
   * Sends to all subscriptions of a topic. Returns the number of these subscriptions over all processes.
   *
   * @param by the attempt that sends.
   * @throws StoreError `stale-attempt`, and others.
   */
  async broadcast(tenant: string, topic: string, envelope: Envelope, by?: AttemptName): Promise<number> {
    const { keys } = this.#store;
    const payload = Buffer.concat([Buffer.from(`${idOf(tenant, topic)}\0`), encodeEnvelope(envelope)]);
    const reply = await this.#store.script(
      BROADCAST,
      [keys.topic(tenant, topic), keys.reply(randomUUID()), keys.invocation(by?.id ?? '')],
      [payload, REPLY_MS, by?.epoch ?? ''],
    );
    if (reply === -1) throw staleAttempt();
    return Number(reply);
  }

  /** Subscribes to a topic. From `ready` on, it misses no broadcast without an item `dropped` or `interrupted`. The caller must close it. */
  subscribe(tenant: string, name: string): Subscription {
    const id = idOf(tenant, name);
    const topic = this.#topics.get(id) ?? {
      tenant,
      name,
      subscriptions: new Map(),
      generation: 0,
      isStale: false,
      repair: null,
    };
    this.#topics.set(id, topic);
    const ready = Promise.withResolvers<void>();
    const subscription = new Subscription(ready.promise, (self) => {
      topic.subscriptions.delete(self);
      return this.#leave(id, topic);
    });
    const member = { generation: ++topic.generation, isReady: false, hasMissed: false };
    topic.subscriptions.set(subscription, member);
    this.#join(topic, member).then(ready.resolve, ready.reject);
    // Prevents an unhandled rejection when the caller does not await `ready`.
    ready.promise.catch(() => undefined);
    return subscription;
  }

  close(): void {
    this.#isClosed = true;
    for (const { subscriptions } of [...this.#topics.values()])
      for (const each of [...subscriptions.keys()]) void each.close();
    this.#listening?.then((stop) => stop()).catch(() => undefined);
  }

  async #join(topic: Topic, member: Member): Promise<void> {
    this.#listening ??= this.#channels.listen(this.#channel, {
      message: (payload) => this.#onMessage(payload),
      lost: () => this.#onLost(),
      resumed: () => this.#onResumed(),
    });
    try {
      await this.#listening;
    } catch (error) {
      this.#listening = null;
      throw error;
    }
    const until = performance.now() + this.#store.deadlineMs;
    while (!(await this.#register(topic))) {
      if (this.#isClosed || performance.now() > until) {
        throw new StoreError('store-unavailable', 'The scheduler is not connected to Redis for broadcasts; try again.');
      }
      await sleep(RETRY_MS);
    }
    member.isReady = true;
  }

  /**
   * Stores the present number of subscriptions, never a difference, so that no order of failures leaves a wrong number. Returns true when Redis
   * knows this process as a listener of its channel.
   */
  async #register(topic: Topic): Promise<boolean> {
    const key = this.#store.keys.topic(topic.tenant, topic.name);
    return this.#store.call(async (redis) => {
      const { size } = topic.subscriptions;
      const calls = redis.multi();
      if (size === 0) calls.hdel(key, this.#channel);
      else calls.hset(key, this.#channel, `${size}:${topic.generation}`).pexpire(key, TOPIC_MS);
      const replies = await calls.pubsub('NUMSUB', this.#channel).exec();
      for (const [error] of replies ?? []) if (error) throw error;
      const listeners = replies?.at(-1)?.[1] as [channel: string, count: number] | undefined;
      return Number(listeners?.[1]) > 0;
    });
  }

  /** Registers the topic after a subscription has left. Never rejects. */
  async #leave(id: string, topic: Topic): Promise<void> {
    try {
      await this.#register(topic);
      this.#forget(id, topic);
    } catch {
      await this.#catchUp(id, topic);
    }
  }

  /**
   * Forgets a topic that has no subscriptions. Call it only after Redis has removed the topic's registration; otherwise Redis would count the topic
   * for hours. A topic under repair stays, because its repair could remove the registration of a new topic with the same name.
   */
  #forget(id: string, topic: Topic): void {
    if (topic.repair !== null) return;
    if (topic.subscriptions.size === 0 && this.#topics.get(id) === topic) this.#topics.delete(id);
  }

  /** Repeats the registration until Redis has stored the topic's present state. Never rejects. */
  #catchUp(id: string, topic: Topic): Promise<void> {
    topic.isStale = true;
    topic.repair ??= this.#registerStale(topic).then(() => {
      topic.repair = null;
      this.#forget(id, topic);
    });
    return topic.repair;
  }

  async #registerStale(topic: Topic): Promise<void> {
    while (topic.isStale && !this.#isClosed) {
      topic.isStale = false;
      try {
        await this.#register(topic);
      } catch (error) {
        // Any other error, such as that of a damaged key, would recur. Broadcasts to the topic fail with the same error.
        if (StoreError.from(error).code !== 'store-unavailable') return;
        topic.isStale = true;
        await sleep(RETRY_MS, undefined, { ref: false });
      }
    }
  }

  #onLost(): void {
    for (const { subscriptions } of this.#topics.values())
      for (const member of subscriptions.values()) member.hasMissed = member.isReady;
  }

  /** Redis is connected, perhaps again, and may have lost the registrations. */
  #onResumed(): void {
    for (const [id, topic] of [...this.#topics]) {
      for (const [each, member] of topic.subscriptions) {
        if (member.hasMissed) each.interrupt();
        member.hasMissed = false;
      }
      void this.#catchUp(id, topic);
    }
  }

  #onMessage(payload: Buffer): void {
    const generationEnd = payload.indexOf(SEPARATOR);
    const topicEnd = payload.indexOf(SEPARATOR, generationEnd + 1);
    const topic = this.#topics.get(payload.toString('utf8', generationEnd + 1, topicEnd));
    if (!topic) return;
    const generation = Number(payload.toString('latin1', 0, generationEnd));
    // A copy: the payload is a slice of a larger read buffer, which would stay in memory.
    const envelope = Buffer.from(payload.subarray(topicEnd + 1));
    const message = new WaitingMessage(envelope, topic.tenant, this.#room);
    for (const [subscription, member] of [...topic.subscriptions])
      if (member.generation <= generation) subscription.deliver(message);
  }
}

const idOf = (tenant: string, topic: string): string => `${tenant}/${topic}`;

/**
 * The next item of a subscription. `dropped`: this many messages were dropped here, because the subscription or its tenant's share of the
 * process was full. `interrupted`: Redis was away, and the subscription may have missed broadcasts. `closed`: the subscription was closed.
 */
export type Next =
  | { readonly kind: 'message'; readonly envelope: Envelope }
  | { readonly kind: 'dropped'; readonly messages: number }
  | { readonly kind: 'interrupted' }
  | { readonly kind: 'closed' };

/** Maximum messages that may wait in one subscription. */
export const MAX_WAITING_MESSAGES = 1024;
/** Maximum bytes of the messages that may wait in one subscription. */
export const MAX_WAITING_BYTES = 4 * 2 ** 20;

/** A message that waits in one or more of a tenant's subscriptions. Its bytes count once, until it waits in none. */
export class WaitingMessage {
  /** The encoded envelope; all subscriptions share it, so it must not change. */
  readonly encoded: Buffer;
  readonly #tenant: string;
  readonly #room: Shares;
  #subscriptionCount = 0;

  /** @param room shares of the tenants in the bytes that may wait in all subscriptions of the process */
  constructor(encoded: Buffer, tenant: string, room: Shares) {
    this.encoded = encoded;
    this.#tenant = tenant;
    this.#room = room;
  }

  /** Counts one more subscription in which the message waits. Returns false when there is no room. After true, the caller must call `leave` once. */
  enter(): boolean {
    if (this.#subscriptionCount === 0 && !this.#room.enter(this.#tenant, this.encoded.length)) return false;
    this.#subscriptionCount++;
    return true;
  }

  /** Counts one subscription less. */
  leave(): void {
    if (--this.#subscriptionCount === 0) this.#room.leave(this.#tenant, this.encoded.length);
  }
}

type Entry = WaitingMessage | { dropped: number } | 'interrupted';

/** The waiting messages of one subscription, bounded. A full subscription drops new messages, and counts them in one item. */
export class Subscription {
  /** Resolves once the subscription will receive all later broadcasts. Rejects with a `StoreError`. */
  readonly ready: Promise<void>;
  readonly #onClose: (self: Subscription) => Promise<void>;
  /** Pending calls of `next`, in order. */
  readonly #readers: ((next: Next) => void)[] = [];
  #waiting: Entry[] = [];
  #messageCount = 0;
  #bytes = 0;
  #closing: Promise<void> | null = null;

  /** @param onClose called once; resolves when Redis no longer counts the subscription */
  constructor(ready: Promise<void>, onClose: (self: Subscription) => Promise<void>) {
    this.ready = ready;
    this.#onClose = onClose;
  }

  next(): Promise<Next> {
    if (this.#closing) return Promise.resolve(CLOSED);
    const first = this.#waiting.shift();
    if (first === undefined) return new Promise((resolve) => this.#readers.push(resolve));
    if (first === 'interrupted') return Promise.resolve({ kind: 'interrupted' });
    if (!(first instanceof WaitingMessage)) return Promise.resolve({ kind: 'dropped', messages: first.dropped });
    const { encoded } = first;
    this.#messageCount--;
    this.#bytes -= encoded.length;
    first.leave();
    return Promise.resolve({ kind: 'message', envelope: decodeEnvelope(encoded) });
  }

  /** Adds a message that has arrived. */
  deliver(message: WaitingMessage): void {
    const { encoded } = message;
    const reader = this.#readers.shift();
    if (reader) {
      reader({ kind: 'message', envelope: decodeEnvelope(encoded) });
      return;
    }
    const fits = this.#messageCount < MAX_WAITING_MESSAGES && this.#bytes + encoded.length <= MAX_WAITING_BYTES;
    if (fits && message.enter()) {
      this.#messageCount++;
      this.#bytes += encoded.length;
      this.#waiting.push(message);
      return;
    }
    const last = this.#waiting.at(-1);
    if (typeof last === 'object' && 'dropped' in last) last.dropped++;
    else this.#waiting.push({ dropped: 1 });
  }

  /** Records that messages may have been missed. */
  interrupt(): void {
    const reader = this.#readers.shift();
    if (reader) reader({ kind: 'interrupted' });
    else if (this.#waiting.at(-1) !== 'interrupted') this.#waiting.push('interrupted');
  }

  /** Unsubscribes, and ends every pending `next`. Resolves when Redis no longer counts the subscription; never rejects. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  #close(): Promise<void> {
    for (const entry of this.#waiting.splice(0)) if (entry instanceof WaitingMessage) entry.leave();
    for (const reader of this.#readers.splice(0)) reader(CLOSED);
    return this.#onClose(this);
  }
}

const CLOSED: Next = { kind: 'closed' };

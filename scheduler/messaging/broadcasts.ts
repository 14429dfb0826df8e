import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { AttemptName } from '../invocations/types.ts';
import { Shares } from '../policies/shares.ts';
import type { Channels } from '../store/channels.ts';
import { StoreError, staleAttempt } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import { REPLY_MS, type Store } from '../store/store.ts';
import { type Envelope, encodeEnvelope } from './message.ts';
import { Subscription, WaitingMessage } from './subscription.ts';

const BROADCAST = loadScript(new URL('./messaging.lua', import.meta.url), 'broadcast');
/** Time after its last change at which a topic's registration expires; longer than an invocation may run (one hour). */
const TOPIC_MS = 2 * 3_600_000;
/** Bytes that may wait in all subscriptions of this process together; `subscription.ts` bounds each of them. */
const MAX_WAITING_BYTES = 256 * 2 ** 20;
/** Pause before a failed registration is repeated. */
const RETRY_MS = 200;
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
  readonly #room = new Shares(MAX_WAITING_BYTES);
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

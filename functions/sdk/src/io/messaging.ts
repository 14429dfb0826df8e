import type { Envelope as WireEnvelope } from 'pie:inferlet/messaging@0.1.0';
import { fromWire, type Message, toWire } from '../bytes.ts';
import { InferletError } from '../errors.ts';
import { attempt, settle, Subscription as WireSubscription, messaging as wire } from '../raw.ts';
import { Inbox, type ReceiveOptions, untilClosed } from './inbox.ts';

/** A message and its sender. */
export interface Envelope {
  /** Invocation id of the sender. */
  readonly sender: string;
  readonly message: Message;
}

/**
 * Sends a message of at most 1 MiB to all inferlets of the tenant that subscribe to `topic` now. The platform keeps no messages for later
 * subscribers. All messaging calls need the grant `messaging`.
 * @returns the number of subscriptions that got the message
 */
export const broadcast = (topic: string, message: Message): Promise<number> =>
  settle(wire.broadcast(topic, toWire(message)));

/**
 * Subscribes to the messages broadcast to a topic from now on, in order. Throws `limit-exceeded` beyond 64 subscriptions of one inferlet.
 *
 * @example
 * using news = await subscribe('news');
 * for await (const { sender, message } of news) await send(`${sender}: ${message}`);
 */
export async function subscribe(topic: string): Promise<Subscription> {
  const subscription = attempt(() => new WireSubscription(topic));
  try {
    await settle(subscription.ready());
  } catch (error) {
    subscription.drop();
    throw error;
  }
  return new Subscription(subscription);
}

/** A subscription; end it with `using` or {@link unsubscribe}. It stays open when a loop over it ends: later messages wait. */
export class Subscription implements AsyncIterable<Envelope>, Disposable {
  readonly #wire: WireSubscription;
  readonly #inbox = new Inbox(async () => envelope(await settle(this.#wire.next())));
  #hasEnded = false;

  /** @internal Constructed by {@link subscribe}. */
  constructor(wire: WireSubscription) {
    this.#wire = wire;
  }

  /**
   * The next message. Throws `limit-exceeded`, once, when messages were dropped because 1,024 of them, or 4 MiB, waited to be read; throws
   * `closed` after {@link unsubscribe}. If `signal` ends the wait, the next caller gets the message.
   */
  async next(options?: ReceiveOptions): Promise<Envelope> {
    if (this.#hasEnded) throw new InferletError('closed', ENDED);
    return this.#inbox.next(options);
  }

  /** Messages until {@link unsubscribe}. */
  [Symbol.asyncIterator](): AsyncGenerator<Envelope, void, void> {
    return untilClosed(() => this.next());
  }

  /** Ends the subscription. Pending waits throw `closed`. */
  unsubscribe(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#wire.unsubscribe();
  }

  [Symbol.dispose](): void {
    this.unsubscribe();
    this.#wire.drop();
  }
}

const ENDED =
  'This subscription has ended. Await the code that reads it (`return await …`) before the scope of `using` ends.';

/** Appends a message to a message queue, from which one inferlet pulls it. Throws `limit-exceeded` when the queue is full. */
export const push = (queue: string, message: Message): Promise<void> => settle(wire.push(queue, toWire(message)));

const queues = new Map<string, Inbox<Envelope>>();

/**
 * Takes the first message of a message queue; waits while the queue is empty. A `signal` ends the caller's wait but not the pull itself: the next
 * caller in this inferlet gets the message. If no caller waits when the message arrives, the library pushes it back to the end of the queue,
 * with this inferlet as its sender.
 *
 * @example
 * const job = await unless('deadline-exceeded', withTimeout(5000, (signal) => pull('jobs', { signal })));
 */
export async function pull(queue: string, options?: ReceiveOptions): Promise<Envelope> {
  const inbox = queues.get(queue) ?? openInbox(queue);
  try {
    return await inbox.next(options);
  } finally {
    if (inbox.idle) queues.delete(queue);
  }
}

function openInbox(queue: string): Inbox<Envelope> {
  const inbox = new Inbox(
    async () => envelope(await settle(wire.pull(queue))),
    ({ message }) => push(queue, message),
  );
  queues.set(queue, inbox);
  return inbox;
}

const envelope = ({ sender, message }: WireEnvelope): Envelope => ({ sender, message: fromWire(message) });

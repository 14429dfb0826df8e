import type { Envelope as WireEnvelope } from 'pie:inferlet/messaging@0.1.0';
import { fromWire, type Message, toWire } from './bytes.ts';
import { InferletError } from './errors.ts';
import { Inbox, type ReceiveOptions } from './inbox.ts';
import { attempt, settle, Subscription as WireSubscription, messaging as wire } from './raw.ts';

/** A message and who sent it. */
export interface Envelope {
  /** Invocation id of the sender. */
  readonly sender: string;
  readonly message: Message;
}

/**
 * Sends to all inferlets of the tenant that subscribe to `topic` now; nobody keeps it for those who come later. Answers how many
 * subscriptions it was handed to. Like all of these calls it needs the grant `messaging`, and takes at most 1 MiB.
 */
export const broadcast = (topic: string, message: Message): Promise<number> =>
  settle(wire.broadcast(topic, toWire(message)));

/**
 * What is broadcast to a topic from now on, in order. Throws `limit-exceeded` past 64 subscriptions of one inferlet.
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

/** A subscription; leave it with `using` or {@link unsubscribe}. Leaving a loop over it keeps it: what comes meanwhile waits. */
export class Subscription implements AsyncIterable<Envelope>, Disposable {
  readonly #wire: WireSubscription;
  readonly #inbox = new Inbox(async () => envelope(await settle(this.#wire.next())));
  #left = false;

  /** @internal Made by {@link subscribe}. */
  constructor(wire: WireSubscription) {
    this.#wire = wire;
  }

  /**
   * The next message. Throws `limit-exceeded`, once, when messages were dropped because 1,024 of them, or 4 MiB, waited to be read;
   * `closed` after {@link unsubscribe}. With a `signal` whose wait ends, the message is the next caller's.
   */
  async next(options?: ReceiveOptions): Promise<Envelope> {
    if (this.#left) throw new InferletError('closed', ENDED);
    return this.#inbox.next(options);
  }

  /** Messages until {@link unsubscribe}. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Envelope, void, void> {
    for (;;) {
      let next: Envelope;
      try {
        next = await this.next();
      } catch (error) {
        if (error instanceof InferletError && error.code === 'closed') return;
        throw error;
      }
      yield next;
    }
  }

  /** Ends it; whoever waits for a message is told `closed`. */
  unsubscribe(): void {
    if (this.#left) return;
    this.#left = true;
    this.#wire.unsubscribe();
  }

  [Symbol.dispose](): void {
    this.unsubscribe();
    this.#wire.drop();
  }
}

const ENDED = 'This subscription has ended. Await what listens (`return await …`) before the scope of `using` ends.';

/** Puts a message at the end of a line, where it waits to be pulled by one inferlet. Throws `limit-exceeded` when the line is full. */
export const push = (line: string, message: Message): Promise<void> => settle(wire.push(line, toWire(message)));

const lines = new Map<string, Inbox<Envelope>>();

/**
 * Takes the first message of a line; waits for one when there is none. A wait that a `signal` ends is not called off: what it would have taken is
 * the next caller's in this inferlet, or is pushed back, to the end of the line and with this inferlet as its sender, when it comes and nobody
 * here waits for it.
 *
 * @example
 * const job = await unless('deadline-exceeded', withTimeout(5000, (signal) => pull('jobs', { signal })));
 */
export async function pull(line: string, options?: ReceiveOptions): Promise<Envelope> {
  const inbox = lines.get(line) ?? lineOf(line);
  try {
    return await inbox.next(options);
  } finally {
    if (inbox.idle) lines.delete(line);
  }
}

function lineOf(line: string): Inbox<Envelope> {
  const inbox = new Inbox(
    async () => envelope(await settle(wire.pull(line))),
    ({ message }) => push(line, message),
  );
  lines.set(line, inbox);
  return inbox;
}

const envelope = ({ sender, message }: WireEnvelope): Envelope => ({ sender, message: fromWire(message) });

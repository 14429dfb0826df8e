import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import {
  MAX_MESSAGE_BYTES,
  MAX_QUEUES_BYTES,
  type Next,
  type Message as Sent,
  type Envelope as SentEnvelope,
  type Subscription,
} from '#scheduler/messaging/messaging.ts';
import type { Envelope, Message } from '#wit/generated/host.ts';
import { type Droppable, DroppableWait, SourceReader, UnreadResult } from '../session/holdings.ts';
import type { Inferlet } from '../session/inferlet.ts';
import { messageBytes } from '../session/session-state.ts';
import { ask, askStore, attemptOf } from './ask.ts';

const NAME = /^[A-Za-z0-9._/-]{1,128}$/;

/** The host's side of a `subscription` resource. */
class InferletSubscription implements Droppable {
  readonly #inferlet: Inferlet;
  readonly #subscription: Outcome<Subscription>;
  readonly #messages: SourceReader<Envelope>;
  #dropped = false;

  constructor(inferlet: Inferlet, topic: string) {
    this.#inferlet = inferlet;
    const { services, description, subscriptions, outgoing, stopped } = inferlet;
    const refused = checkCall(inferlet, topic) ?? stopped ?? outgoing.refusal(0) ?? subscriptions.take(this);
    const subscribed: Outcome<Subscription> = refused
      ? err(refused)
      : ok(services.messaging.broadcasts.subscribe(description.tenant, topic));
    if (subscribed.tag === 'ok') this.#countCall(subscribed.val.ready);
    this.#subscription = subscribed;
    const nextEnvelope = async () => (subscribed.tag === 'ok' ? outcomeOf(await subscribed.val.next()) : subscribed);
    this.#messages = new SourceReader(inferlet, nextEnvelope, envelopeBytes);
  }

  ready(): Promise<Outcome<undefined>> {
    const subscription = this.#subscription;
    if (subscription.tag === 'err') return Promise.resolve(subscription);
    return ask(this.#inferlet, () => subscription.val.ready.then(() => ok(undefined)));
  }

  next(): Promise<Outcome<Envelope>> {
    return this.#messages.next();
  }

  drop(): void {
    if (this.#dropped) return;
    this.#dropped = true;
    this.#inferlet.subscriptions.give(this);
    this.#messages.close();
    if (this.#subscription.tag === 'ok') this.#countCall(this.#subscription.val.close());
  }

  /** Counts subscribing and unsubscribing as calls, so that an inferlet cannot flood the store with them. */
  #countCall(call: Promise<void>): void {
    const { outgoing } = this.#inferlet;
    const end = () => outgoing.end(0);
    outgoing.begin(0);
    call.then(end, end);
  }
}

/** Implements `wit/messaging.wit`. */
export const messaging = {
  broadcast: (inferlet: Inferlet, topic: string, message: Message): Promise<Outcome<number>> => {
    const refused = checkCall(inferlet, topic) ?? checkMessage(message);
    if (refused) return Promise.resolve(err(refused));
    const { description, services } = inferlet;
    const envelope = sentBy(inferlet, message);
    const broadcast = async () =>
      ok(await services.messaging.broadcasts.broadcast(description.tenant, topic, envelope, attemptOf(inferlet)));
    return askStore(inferlet, broadcast, messageBytes(message));
  },

  '[constructor]subscription': (inferlet: Inferlet, topic: string): InferletSubscription =>
    new InferletSubscription(inferlet, topic),
  '[method]subscription.ready': (_inferlet: Inferlet, self: InferletSubscription): Promise<Outcome<undefined>> =>
    self.ready(),
  '[method]subscription.next': (_inferlet: Inferlet, self: InferletSubscription): Promise<Outcome<Envelope>> =>
    self.next(),
  '[method]subscription.unsubscribe': (_inferlet: Inferlet, self: InferletSubscription): void => self.drop(),
  '[resource-drop]subscription': (_inferlet: Inferlet, self: InferletSubscription): void => self.drop(),

  push: (inferlet: Inferlet, name: string, message: Message): Promise<Outcome<undefined>> => {
    const refused = checkCall(inferlet, name) ?? checkMessage(message);
    if (refused) return Promise.resolve(err(refused));
    const { description, services } = inferlet;
    const envelope = sentBy(inferlet, message);
    const push = async (): Promise<Outcome<undefined>> => {
      const outcome = await services.messaging.queues.push(description.tenant, name, envelope, attemptOf(inferlet));
      if (outcome.kind === 'ok') return ok(undefined);
      if (outcome.kind === 'tenant-full') {
        const full = `all queues of this tenant together take ${outcome.bytes} of ${MAX_QUEUES_BYTES} bytes; push again when some messages were pulled`;
        return err(handlerError('limit-exceeded', full));
      }
      const text = `${outcome.messages} messages of ${outcome.bytes} bytes wait in the queue ${name}; push again when some were pulled`;
      return err(handlerError('limit-exceeded', text));
    };
    return askStore(inferlet, push, messageBytes(message));
  },

  pull: (inferlet: Inferlet, name: string): Promise<Outcome<Envelope>> => {
    const { description, services, stopped, outgoing, unread, pulls } = inferlet;
    const wait = new DroppableWait();
    const refused =
      checkCall(inferlet, name) ?? stopped ?? outgoing.refusal(0) ?? unread.refusal(1) ?? pulls.take(wait);
    if (refused) return Promise.resolve(err(refused));
    const unreadResult = new UnreadResult(unread, () => wait.drop());
    const pull = async (): Promise<Outcome<Envelope>> => {
      try {
        const pulled = await services.messaging.queues.pull(description.tenant, name, wait.signal, attemptOf(inferlet));
        if (!pulled) return err(inferlet.stopped ?? CLOSING);
        const envelope = toWit(pulled);
        unreadResult.take(envelopeBytes(envelope));
        return ok(envelope);
      } finally {
        pulls.give(wait);
      }
    };
    return unreadResult.of(ask(inferlet, pull));
  },
};

/** A message with its sender; the bytes of `message` may be a view of the guest's memory. */
function sentBy({ description }: Inferlet, { tag, val }: Message): SentEnvelope {
  const message: Sent = tag === 'text' ? { text: val } : { bytes: val.slice() };
  return { sender: description.id, message };
}

const envelopeBytes = ({ message }: Envelope): number => messageBytes(message);

function outcomeOf(next: Next): Outcome<Envelope> {
  switch (next.kind) {
    case 'message':
      return ok(toWit(next.envelope));
    case 'dropped': {
      const text = `${next.messages} messages were dropped here, since too many waited to be read; call next more often`;
      return err(handlerError('limit-exceeded', text));
    }
    case 'interrupted': {
      const text = `the platform's store was away: messages may have been missed here; the subscription goes on`;
      return err(handlerError('unavailable', text));
    }
    case 'closed':
      return err(handlerError('closed', 'the subscription has ended'));
  }
}

function toWit({ sender, message }: SentEnvelope): Envelope {
  const content: Message =
    'text' in message ? { tag: 'text', val: message.text } : { tag: 'bytes', val: message.bytes };
  return { sender, message: content };
}

function checkCall({ description }: Inferlet, name: string): HandlerError | null {
  if (!description.grants.messaging) {
    return handlerError(
      'unsupported',
      'the function was not granted messaging (manifest: "grants": {"messaging": true})',
    );
  }
  if (NAME.test(name)) return null;
  const text = 'a topic or queue has a name of 1 to 128 letters, digits, ".", "_", "-" and "/"';
  return handlerError('invalid-argument', text);
}

function checkMessage(message: Message): HandlerError | null {
  const bytes = messageBytes(message);
  if (bytes <= MAX_MESSAGE_BYTES) return null;
  return handlerError(
    'limit-exceeded',
    `the message has ${bytes} bytes; ${MAX_MESSAGE_BYTES} is the limit, send it in parts`,
  );
}

const CLOSING = handlerError('unavailable', 'the runtime is going down');

import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import {
  MAX_MESSAGE_BYTES,
  type Message as Sent,
  type Envelope as SentEnvelope,
} from '#scheduler/messaging/message.ts';
import type { Next, Subscription } from '#scheduler/messaging/subscription.ts';
import type { Envelope, Message } from '#wit/generated/host.ts';
import { ask } from './ask.ts';
import type { Droppable } from './holdings.ts';
import type { Inferlet } from './inferlet.ts';

const NAME = /^[A-Za-z0-9._/-]{1,128}$/;

/** The host's side of a `subscription` resource. */
class InferletSubscription implements Droppable {
  readonly #inferlet: Inferlet;
  readonly #subscription: Outcome<Subscription>;

  constructor(inferlet: Inferlet, topic: string) {
    this.#inferlet = inferlet;
    const refused = checkCall(inferlet, topic) ?? inferlet.stopped ?? inferlet.subscriptions.take(this);
    const { services, description } = inferlet;
    this.#subscription = refused
      ? err(refused)
      : ok(services.messaging.broadcasts.subscribe(description.tenant, topic));
  }

  ready(): Promise<Outcome<undefined>> {
    return this.#ask((subscription) => subscription.ready.then(() => ok(undefined)));
  }

  next(): Promise<Outcome<Envelope>> {
    return this.#ask((subscription) => subscription.next().then(outcomeOf));
  }

  drop(): void {
    this.#inferlet.subscriptions.give(this);
    if (this.#subscription.tag === 'ok') this.#subscription.val.close();
  }

  #ask<T>(call: (subscription: Subscription) => Promise<Outcome<T>>): Promise<Outcome<T>> {
    const subscription = this.#subscription;
    if (subscription.tag === 'err') return Promise.resolve(subscription);
    return ask(this.#inferlet, () => call(subscription.val));
  }
}

/** `wit/messaging.wit`. */
export const messaging = {
  broadcast: (inferlet: Inferlet, topic: string, message: Message): Promise<Outcome<number>> => {
    const refused = checkCall(inferlet, topic) ?? checkMessage(message);
    if (refused) return Promise.resolve(err(refused));
    const { tenant, broadcasts, envelope } = sending(inferlet, message);
    return ask(inferlet, async () => ok(await broadcasts.broadcast(tenant, topic, envelope)));
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
    const { tenant, lines, envelope } = sending(inferlet, message);
    return ask(inferlet, async () => {
      const outcome = await lines.push(tenant, name, envelope);
      if (outcome.kind === 'ok') return ok(undefined);
      const text = `${outcome.messages} messages of ${outcome.bytes} bytes wait in the line ${name}; push again when some were pulled`;
      return err(handlerError('limit-exceeded', text));
    });
  },

  pull: (inferlet: Inferlet, name: string): Promise<Outcome<Envelope>> => {
    const refused = checkCall(inferlet, name);
    if (refused) return Promise.resolve(err(refused));
    const { description, services, stopping } = inferlet;
    return ask(inferlet, async () => {
      const envelope = await services.messaging.lines.pull(description.tenant, name, stopping);
      return envelope ? ok(toWit(envelope)) : err(inferlet.stopped ?? CLOSING);
    });
  },
};

/** A message with its sender; the bytes of `message` may be a view of the guest's memory. */
function sending({ description, services }: Inferlet, { tag, val }: Message) {
  const message: Sent = tag === 'text' ? { text: val } : { bytes: val.slice() };
  const { broadcasts, lines } = services.messaging;
  return { broadcasts, lines, tenant: description.tenant, envelope: { sender: description.id, message } };
}

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
  const text = 'a topic or line has a name of 1 to 128 letters, digits, ".", "_", "-" and "/"';
  return handlerError('invalid-argument', text);
}

function checkMessage({ tag, val }: Message): HandlerError | null {
  const bytes = tag === 'text' ? Buffer.byteLength(val) : val.length;
  if (bytes <= MAX_MESSAGE_BYTES) return null;
  return handlerError(
    'limit-exceeded',
    `the message has ${bytes} bytes; ${MAX_MESSAGE_BYTES} is the limit, send it in parts`,
  );
}

const CLOSING = handlerError('unavailable', 'the runtime is going down');

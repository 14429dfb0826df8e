import { fromWire, type Message, toBytes, toWire } from '../bytes.ts';
import { InferletError } from '../errors.ts';
import { toJson } from '../json.ts';
import { attempt, session as host, settle } from '../raw.ts';
import { Inbox, type ReceiveOptions, untilClosed } from './inbox.ts';

const DONE = Promise.resolve();
/** Resolves when the messages that wait for buffer space are sent; undefined while no message waits. */
let backlog: Promise<void> | undefined;
let sendError: InferletError | undefined;

/**
 * Sends one message to the client that invoked this function. The message leaves at once. Awaiting matters only to an inferlet that sends
 * faster than the platform writes: it then waits once 1 MiB is buffered. Messages keep their order, awaited or not.
 * Throws `limit-exceeded` for a message of more than 1 MiB. That message is not sent; later messages are.
 */
export function send(message: Message): Promise<void> {
  if (sendError) return Promise.reject(sendError);
  if (backlog && fits(message)) return enqueue(message);
  try {
    hand(message);
    return DONE;
  } catch (thrown) {
    const error = InferletError.from(thrown);
    return error.code === 'limit-exceeded' && fits(message) ? enqueue(message) : Promise.reject(error);
  }
}

/** Sends a value as JSON text. Throws `invalid-argument` for a value that JSON cannot represent, such as `undefined`. */
export const sendJson = async (value: unknown): Promise<void> => send(toJson(value));

/** Completes when the platform has received all messages so far. The platform writes them before the invocation ends. */
export async function handedOver(): Promise<void> {
  while (backlog) await backlog;
  if (sendError) throw sendError;
}

/** Completes when all messages sent so far are in the invocation's event log, where a later failure cannot lose them. */
export async function flush(): Promise<void> {
  await handedOver();
  await settle(host.flush());
}

const inbox = /* @__PURE__ */ new Inbox(async (signal) => fromWire(await settle(host.receive(), signal)));

/**
 * The next message of the client, in order. Throws `closed` once the client can send no more messages. If `signal` ends the wait, the next
 * caller gets the message.
 *
 * @example
 * const answer = await withTimeout(60_000, (signal) => receive({ signal }));
 */
export const receive = (options?: ReceiveOptions): Promise<Message> => inbox.next(options);

/**
 * The conversation with the client.
 *
 * @example
 * for await (const message of session) await session.send(`You said ${message}`);
 */
export const session = {
  send,
  sendJson,
  flush,
  receive,
  /** The client's messages, until the client can send no more. */
  [Symbol.asyncIterator](): AsyncGenerator<Message, void, void> {
    return untilClosed(() => receive());
  },
} as const;

const hand = (message: Message): void => attempt(() => host.send(toWire(message)));

function enqueue(message: Message): Promise<void> {
  const before = backlog ?? DONE;
  const sent = before.then(async () => {
    for (;;) {
      await settle(host.flush());
      try {
        hand(message);
        return;
      } catch (thrown) {
        const error = InferletError.from(thrown);
        if (error.code !== 'limit-exceeded') throw error;
      }
    }
  });
  const settled = sent.then(
    () => undefined,
    (thrown) => {
      sendError ??= InferletError.from(thrown);
    },
  );
  backlog = settled;
  void settled.then(() => {
    if (backlog === settled) backlog = undefined;
  });
  return sent;
}

/** The platform's bound on one message. */
const MAX_MESSAGE_BYTES = 1024 * 1024;

/** False for a message that the platform always refuses, because of its size. A UTF-16 unit takes at most three bytes of UTF-8. */
const fits = (message: Message): boolean =>
  message.length <= MAX_MESSAGE_BYTES / 3 || toBytes(message).length <= MAX_MESSAGE_BYTES;

import { InferletError } from './errors.ts';
import { Inbox, type ReceiveOptions } from './inbox.ts';
import { toJson } from './json.ts';
import { attempt, session as host, settle } from './raw.ts';

const DONE = Promise.resolve();
/** Messages that wait for room, in order; undefined while there is room. */
let backlog: Promise<void> | undefined;
let lost: InferletError | undefined;

/**
 * Sends one message to the client that invoked this function. It is on its way at once; awaiting matters only to an inferlet that sends
 * faster than the platform writes (1 MiB ahead), which then waits for room. Messages keep their order, awaited or not.
 */
export function send(message: string | Uint8Array): Promise<void> {
  if (lost) return Promise.reject(lost);
  if (backlog) return enqueue(message);
  try {
    hand(message);
    return DONE;
  } catch (thrown) {
    const error = InferletError.from(thrown);
    return error.code === 'limit-exceeded' ? enqueue(message) : Promise.reject(error);
  }
}

/** Sends a value as JSON text. Throws `invalid-argument` for one that JSON has not, such as `undefined`. */
export const sendJson = async (value: unknown): Promise<void> => send(toJson(value));

/** Completes when the platform has all messages so far. The platform writes them before the invocation ends. */
export async function handedOver(): Promise<void> {
  while (backlog) await backlog;
  if (lost) throw lost;
}

/** Completes when everything sent so far is in the invocation's event log: what happens next cannot lose it. */
export async function flush(): Promise<void> {
  await handedOver();
  await settle(host.flush());
}

const inbox = /* @__PURE__ */ new Inbox(async () => (await settle(host.receive())).val);

/**
 * The next message of the client, in order. Throws `closed` once the client can send no more. With a `signal` whose wait ends, the message is the
 * next caller's.
 *
 * @example
 * const answer = await withTimeout(60_000, (signal) => receive({ signal }));
 */
export const receive = (options?: ReceiveOptions): Promise<string | Uint8Array> => inbox.next(options);

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
  /** The client's messages until it can send no more. */
  async *[Symbol.asyncIterator](): AsyncGenerator<string | Uint8Array, void, void> {
    for (;;) {
      let message: string | Uint8Array;
      try {
        message = await receive();
      } catch (error) {
        if (error instanceof InferletError && error.code === 'closed') return;
        throw error;
      }
      yield message;
    }
  },
} as const;

function hand(message: string | Uint8Array): void {
  attempt(() =>
    host.send(typeof message === 'string' ? { tag: 'text', val: message } : { tag: 'bytes', val: message }),
  );
}

function enqueue(message: string | Uint8Array): Promise<void> {
  const before = backlog ?? DONE;
  const mine = before.then(async () => {
    for (;;) {
      await settle(host.flush());
      try {
        hand(message);
        return;
      } catch (thrown) {
        const error = InferletError.from(thrown);
        // A message larger than the bound itself never fits.
        if (error.code !== 'limit-exceeded' || size(message) > MAX_MESSAGE_BYTES) throw error;
      }
    }
  });
  const settled = mine.then(
    () => undefined,
    (thrown) => {
      lost ??= InferletError.from(thrown);
    },
  );
  backlog = settled;
  void settled.then(() => {
    if (backlog === settled) backlog = undefined;
  });
  return mine;
}

/** The platform's bound on one message. */
const MAX_MESSAGE_BYTES = 1024 * 1024;
const size = (message: string | Uint8Array): number => message.length;

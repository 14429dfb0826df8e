import type { FileInfo as WireFileInfo } from 'pie:inferlet/file-exchange@0.1.0';
import { fromWire, type Message, toBytes, toJson, toText, toWire } from '../bytes.ts';
import { InferletError } from '../errors.ts';
import { attempt, fileExchange, session as host, person, settle } from '../raw.ts';
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

/** A question to a person. */
export interface PersonQuestion {
  /** Text for the person; 1 to 4,096 characters. */
  readonly text: string;
  /** JSON Schema of the answer; any text by default. */
  readonly schema?: object;
  /** Time for which the invocation waits for an answer: 1 second to 30 days; a day by default. */
  readonly timeoutMs?: number;
  /** A JSON value that the handler gets back when it runs again, of at most 262,144 characters; null by default. */
  readonly state?: unknown;
}

/** The output of a handler that has asked a person. The platform drops this output. */
export interface Waiting {
  readonly waiting: true;
}

/** The handler gets this when it runs again after a question: the state that came with the question, and the answer. */
export interface Resumption<State = unknown, Answer = unknown> {
  readonly state: State;
  /** `expired`: the time has passed without an answer. The value of an answer fits the question's schema. */
  readonly answer: { readonly status: 'answered'; readonly value: Answer } | { readonly status: 'expired' };
}

const DAY_MS = 86_400_000;

/**
 * Asks a person. The handler must return the result of this call: this run of the handler (an attempt) then ends, and
 * the invocation waits without an instance or memory, even across restarts of the platform. After the answer, or after
 * `timeoutMs`, the handler runs again from the beginning with the same input, and {@link resumed} has the state and the
 * answer. Throws `invalid-argument` for a question past its bounds and for a second question in the same attempt, and
 * `unsupported` in a child, which is an invocation that another inferlet launched.
 *
 * @example
 * export const run = defineInferlet(async ({ topic }: { topic: string }) => {
 *   const asked = resumed<{ draft: string }, boolean>();
 *   if (asked === null) {
 *     const draft = await write(topic);
 *     return askPerson({ text: `Publish?\n\n${draft}`, schema: { type: 'boolean' }, state: { draft } });
 *   }
 *   return { draft: asked.state.draft, published: asked.answer.status === 'answered' && asked.answer.value };
 * });
 */
export function askPerson({
  text,
  schema = { type: 'string' },
  timeoutMs = DAY_MS,
  state = null,
}: PersonQuestion): Waiting {
  // The contract has a u32. The platform refuses a time past its bounds.
  const timeoutSeconds = Math.min(2 ** 32 - 1, Math.max(0, Math.ceil(timeoutMs / 1000)));
  attempt(() => person.ask({ text, schema: toJson(schema), timeoutSeconds, state: toJson(state) }));
  return { waiting: true };
}

/** The state and the answer of the last question to a person; null in an invocation that has not asked one. */
export function resumed<State = unknown, Answer = unknown>(): Resumption<State, Answer> | null {
  const resumption = person.resumed();
  if (resumption === null || resumption === undefined) return null;
  const { answer } = resumption;
  return {
    state: JSON.parse(resumption.state),
    answer: answer.tag === 'answered' ? { status: 'answered', value: JSON.parse(answer.val) } : { status: 'expired' },
  };
}

/** A file of this invocation: its name, media type and size in bytes. */
export type ExchangedFile = WireFileInfo;

/** A file with its content. */
export interface ReceivedFile {
  readonly name: string;
  readonly mediaType: string;
  readonly content: Uint8Array;
  /** The content as UTF-8. */
  readonly text: string;
}

/**
 * Makes a file available to the client of this invocation, and notifies the client by a message. Limits: 16 MiB per file; 64 MiB and 256
 * files per invocation; names of 1 to 128 letters, digits, `.`, `_`, `-`. A file of the same name is replaced.
 * @param options.mediaType `text/plain` for text and `application/octet-stream` for bytes by default
 */
export function sendFile(name: string, content: Message, options: { readonly mediaType?: string } = {}): Promise<void> {
  const plain = typeof content === 'string' ? 'text/plain; charset=utf-8' : 'application/octet-stream';
  return settle(fileExchange.sendFile(name, options.mediaType ?? plain, toBytes(content)));
}

/** Waits for a file from the client or from this inferlet itself. Throws `closed` when the client has closed the session. */
export async function receiveFile(name: string): Promise<ReceivedFile> {
  const { mediaType, content } = await settle(fileExchange.receiveFile(name));
  return {
    name,
    mediaType,
    content,
    get text() {
      return toText(content);
    },
  };
}

/** The files available now, by name. */
export const listFiles = (): Promise<ExchangedFile[]> => settle(fileExchange.listFiles());

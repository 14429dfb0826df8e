import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { Message } from '#wit/generated/host.ts';
import { type Redact, redactNothing } from './environment/redact.ts';

/** Takes an inferlet's events: the outbox of its invocation. */
export interface EventSink {
  /** Bytes that are not yet in the event log. */
  readonly pendingBytes: number;
  add(event: 'message' | 'log', data: string): void;
  /**
   * Resolves with true when all events added so far are in the log, with false when they cannot get there.
   *
   * @param atOnce false to let the outbox choose when to write; true by default
   */
  flushed(atOnce?: boolean): Promise<boolean>;
}

/** Source of the client's messages. At its first `receive`, a session calls `attach`, which begins the delivery and returns a function to end it. */
export interface MessageSource {
  /** The source awaits `message`, counts the message as handled, and sends the next one. It calls `closed` when no message follows. */
  attach(handler: { message(message: Message): Promise<void>; closed(): void }): () => void;
}

/** Maximum bytes that may wait to be written to the event log. */
export const MAX_PENDING_BYTES = 1 << 20;
/** Maximum bytes of one message: the log does not split messages. */
export const MAX_MESSAGE_BYTES = 1 << 20;
/** Maximum characters of a log line. */
export const MAX_LOG_CHARACTERS = 16_384;

/** The conversation of one inferlet with its client. */
export class Session {
  readonly #sink: EventSink;
  readonly #source: MessageSource;
  readonly #redact: Redact;
  readonly #receivers: ((outcome: Outcome<Message>) => void)[] = [];
  /** The next message, for which no `receive` waits yet. */
  #offered: Message | null = null;
  /** Resolves the source's `message` call: the inferlet has read the latest message. Null when no message is unread. */
  #confirmRead: (() => void) | null = null;
  #detach: (() => void) | null = null;
  #closed: HandlerError | null = null;
  #droppedLogs = 0;
  #messages = 0;
  #firstMessageAt = 0;

  constructor(sink: EventSink, source: MessageSource, redact: Redact = redactNothing) {
    this.#sink = sink;
    this.#source = source;
    this.#redact = redact;
  }

  /** Time at which the first message was sent, milliseconds of `performance.now`; 0 for never. */
  get firstMessageAt(): number {
    return this.#firstMessageAt;
  }

  /** Number of messages sent, with those that announce files. */
  get messages(): number {
    return this.#messages;
  }

  send(message: Message): Outcome<undefined> {
    const bytes = message.tag === 'text' ? Buffer.byteLength(message.val) : message.val.length;
    if (bytes > MAX_MESSAGE_BYTES) {
      return err(tooLong(bytes));
    }
    if (this.#sink.pendingBytes + bytes > MAX_PENDING_BYTES) return err(tooMany(this.#sink.pendingBytes));
    const data =
      message.tag === 'text' ? { text: message.val } : { base64: Buffer.from(message.val).toString('base64') };
    this.#addMessage(data);
    return SENT;
  }

  /** Tells the client that a file is ready for it. */
  tellFile(file: { readonly name: string; readonly mediaType: string; readonly bytes: number }): void {
    this.#addMessage({ file });
  }

  /** @param atOnce see `EventSink.flushed` */
  async flush(atOnce = true): Promise<Outcome<undefined>> {
    if (await this.#sink.flushed(atOnce)) return ok(undefined);
    return err(handlerError('closed', 'the invocation has ended; nothing more is written'));
  }

  /** Logs a line. Lines without room are dropped and counted; a later line, when there is room, reports the count. */
  log(level: string, message: string): void {
    if (this.#sink.pendingBytes > MAX_PENDING_BYTES) {
      this.#droppedLogs++;
      return;
    }
    if (this.#droppedLogs > 0) {
      const notice = droppedLines(this.#droppedLogs);
      this.#droppedLogs = 0;
      this.#sink.add('log', JSON.stringify({ level: 'warn', message: notice }));
    }
    const isCut = message.length > MAX_LOG_CHARACTERS;
    const text = this.#redact(isCut ? message.slice(0, MAX_LOG_CHARACTERS) : message, isCut);
    this.#sink.add('log', JSON.stringify({ level, message: isCut ? `${text}… (cut)` : text }));
  }

  /** Returns the next message. The source sends it once the inferlet has read the earlier message. */
  receive(): Promise<Outcome<Message>> {
    const offered = this.#offered;
    if (offered) {
      this.#offered = null;
      return Promise.resolve(ok(offered));
    }
    if (this.#closed) return Promise.resolve(err(this.#closed));
    this.#detach ??= this.#source.attach({
      message: (message) => this.#arrived(message),
      closed: () => this.#close(handlerError('closed', 'the client can send no more messages')),
    });
    return new Promise((resolve) => this.#receivers.push(resolve));
  }

  /** Call when the inferlet has read the message of the last `receive`. Until then, the source keeps the message for another attempt. */
  read(): void {
    const confirmRead = this.#confirmRead;
    this.#confirmRead = null;
    confirmRead?.();
  }

  /** Ends the session on the inferlet's side; pending `receive` calls get the reason. */
  stop(reason: HandlerError): void {
    this.#detach?.();
    this.#detach = null;
    this.#offered = null;
    // Ends the source's wait for `message`. After `detach`, the source does not count that message as handled.
    this.read();
    this.#close(reason);
  }

  #addMessage(data: object): void {
    this.#sink.add('message', JSON.stringify(data));
    if (this.#messages++ === 0) this.#firstMessageAt = performance.now();
  }

  #arrived(message: Message): Promise<void> {
    if (this.#closed) return Promise.resolve();
    // The source sends no next message before this promise resolves, so messages queue in the store and not here.
    return new Promise((resolve) => {
      this.#confirmRead = resolve;
      const receiver = this.#receivers.shift();
      if (receiver) receiver(ok(message));
      else this.#offered = message;
    });
  }

  #close(reason: HandlerError): void {
    this.#closed ??= reason;
    for (const receiver of this.#receivers.splice(0)) receiver(err(this.#closed));
  }
}

const SENT: Outcome<undefined> = ok(undefined);

/** The error for a message that exceeds `MAX_MESSAGE_BYTES`. */
export const tooLong = (bytes: number): HandlerError =>
  handlerError('limit-exceeded', `the message has ${bytes} bytes; ${MAX_MESSAGE_BYTES} is the limit, send it in parts`);

/** The error for a message that finds no room among the bytes that wait. */
export const tooMany = (pendingBytes: number): HandlerError =>
  handlerError('limit-exceeded', `${pendingBytes} bytes wait to be written; await flush and send again`);

export const droppedLines = (count: number): string =>
  `${count} log lines were dropped: too many were waiting to be written`;

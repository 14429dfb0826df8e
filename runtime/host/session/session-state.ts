import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { Span, SpanReport } from '#scheduler/invocations/types.ts';
import type { Message } from '#wit/generated/host.ts';
import { type Redact, redactNothing } from './redact.ts';

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
  readonly #placed: (text: string) => string;
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

  /** @param placed replaces places of a script in a log line, such as those of a stack, by places in the author's files */
  constructor(
    sink: EventSink,
    source: MessageSource,
    redact: Redact = redactNothing,
    placed: (text: string) => string = (text) => text,
  ) {
    this.#sink = sink;
    this.#source = source;
    this.#redact = redact;
    this.#placed = placed;
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
    const text = this.#redact(this.#placed(isCut ? message.slice(0, MAX_LOG_CHARACTERS) : message), isCut);
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

const MAX_SPANS = 64;
const MAX_NAME_CHARACTERS = 80;
const MAX_KIND_CHARACTERS = 32;

/** The spans that an inferlet has recorded. Keeps a bounded number, failed ones first, then the longest: the page of the invocation draws each. */
export class Spans {
  readonly #now: () => number;
  readonly #startedAt: number;
  readonly #keptSpans: Span[] = [];
  #otherCount = 0;

  /** @param now the clock of the inferlet's `runtime.now` */
  constructor(now: () => number = Date.now) {
    this.#now = now;
    this.#startedAt = now();
  }

  /** Records a span. Its times are values of the inferlet's `runtime.now`; they are clamped to the time from the start until now. */
  add(name: string, kind: string, began: number, ended: number, failed: boolean): void {
    const sinceMs = Math.max(0, this.#now() - this.#startedAt);
    const clamp = (at: number, fromMs: number) => Math.min(sinceMs, Math.max(fromMs, at - this.#startedAt));
    const fromMs = clamp(began, 0);
    const toMs = clamp(ended, fromMs);
    const span: Span = { name: cutText(name), kind: cutText(kind), fromMs, toMs, ...(failed && { failed }) };
    if (this.#keptSpans.length < MAX_SPANS) {
      this.#keptSpans.push(span);
      return;
    }
    this.#otherCount++;
    let leastIndex = 0;
    for (let i = 1; i < MAX_SPANS; i++)
      if (worth(this.#keptSpans[i]) < worth(this.#keptSpans[leastIndex])) leastIndex = i;
    if (worth(span) > worth(this.#keptSpans[leastIndex])) this.#keptSpans[leastIndex] = span;
  }

  /** @param redact removes secrets from names and kinds */
  report(redact: Redact = redactNothing): SpanReport {
    const shortText = (text: string, characters: number) => {
      const isCut = text.length > characters;
      return shortened(redact(isCut ? text.slice(0, characters) : text, isCut), isCut, characters);
    };
    const spans = this.#keptSpans
      .toSorted((a, b) => a.fromMs - b.fromMs || b.toMs - a.toMs)
      .map((span) => ({
        ...span,
        name: shortText(span.name, MAX_NAME_CHARACTERS),
        kind: shortText(span.kind, MAX_KIND_CHARACTERS),
      }));
    return { ...(spans.length > 0 && { spans }), ...(this.#otherCount > 0 && { moreSpans: this.#otherCount }) };
  }
}

/** The arguments of `record-span`, with texts cut to the length that a report can need. */
export const cutSpan = (args: readonly unknown[]): readonly unknown[] =>
  args.map((value) => (typeof value === 'string' ? cutText(value) : value));

/** Order in which spans are kept: a failed span is worth more than any other, then a longer span is worth more. */
const worth = (span: Span | undefined): number =>
  span ? span.toMs - span.fromMs + (span.failed ? Number.MAX_SAFE_INTEGER : 0) : 0;

/** Cuts a text to one character more than is shown, so that `report` notices the cut. The copy keeps the whole text out of memory. */
const cutText = (text: string): string =>
  text.length > MAX_NAME_CHARACTERS ? Buffer.from(text.slice(0, MAX_NAME_CHARACTERS + 1)).toString() : text;

/** Makes an untrusted text safe for one line: replaces control characters and marks that change the direction of the text after them. */
function shortened(text: string, isCut: boolean, characters: number): string {
  const clean = text.replace(/\p{Cc}|\p{Bidi_Control}|[\u2028\u2029]/gu, '\ufffd');
  if (!isCut && clean.length <= characters) return clean;
  return `${clean.slice(0, characters - 1).replace(/[\ud800-\udbff]$/, '')}…`;
}

/** Bytes of a message's content. */
export const messageBytes = ({ tag, val }: Message): number => (tag === 'text' ? Buffer.byteLength(val) : val.length);

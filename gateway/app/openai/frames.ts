import type { Feed, OpenFeed } from '#scheduler/invocations/feed.ts';
import type { InvocationEvent } from '../control.ts';
import { isErrorCode } from '../errors/codes.ts';
import { failureHint, GatewayError, retryAfterHeaders } from '../errors/gateway-error.ts';
import { dataLines } from '../http/event-stream.ts';
import { resultIn } from '../http/json.ts';
import { droppedInMessage } from './dropped-constraints.ts';
import { refusalIn } from './errors.ts';

/** Stream format of a route. */
export interface StreamStyle {
  /**
   * `data`: frames have data alone. `named`: each frame's `event` repeats the `type` of the data, as in /v1/messages. `numbered`: as `named`, and the
   * data has a `sequence_number`, as in /v1/responses.
   */
  readonly events: 'data' | 'named' | 'numbered';
  /** True when a successful stream ends with `data: [DONE]`. */
  readonly done: boolean;
  /** Makes the last frame of a stream that failed. */
  readonly errorFrame: (error: GatewayError, requestId: string) => string;
}

interface OpenAiFrame {
  readonly text: string;
  readonly last: boolean;
}

/** Turns an invocation's messages into frames, and marks the last one. `take` returns the frames before a failure, and then throws the failure. */
export class OpenAiFrames implements Feed<OpenAiFrame> {
  /** Resolves when `take` has a frame; rejects when the feed fails before the first frame. */
  readonly begun: Promise<void>;
  /** Headers that the function's first message asks for. */
  #headers: Readonly<Record<string, string>> = {};
  /** True once the answer's headers are sent. */
  #areHeadersSent = false;
  readonly #feed: Feed<InvocationEvent>;
  readonly #style: StreamStyle;
  #settle: { readonly resolve: () => void; readonly reject: (error: unknown) => void } | null = null;
  #frames: OpenAiFrame[] = [];
  /** Number of messages that became frames. */
  #messageCount = 0;
  /** Number of these messages before the last question to a person. They stay valid when a new attempt begins. */
  #keptCount = 0;
  /** True once a `start` event came. A message or result before it shows that the log lacks its first events: they expired, or the log was full. */
  #hasStarted = false;
  #failure: { readonly error: unknown } | null = null;
  #onReady: (() => void) | undefined;

  constructor(open: OpenFeed<InvocationEvent>, style: StreamStyle) {
    this.#style = style;
    this.begun = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    // The caller may stop waiting before the first frame.
    this.begun.catch(() => undefined);
    this.#feed = open(() => this.#onArrival());
    this.#fill();
  }

  /** Opens the feed for the stream that takes the frames. */
  readonly open: OpenFeed<OpenAiFrame> = (ready) => {
    this.#onReady = ready;
    return this;
  };

  /** The headers that the function has asked for so far. Those that it asks for later become comments of the stream, which clients pass over. */
  takeHeaders(): Readonly<Record<string, string>> {
    this.#areHeadersSent = true;
    return this.#headers;
  }

  take(): OpenAiFrame[] | null {
    if (this.#frames.length === 0) this.#fill();
    const frames = this.#frames;
    this.#frames = [];
    if (frames.length === 0 && this.#failure) throw this.#failure.error;
    return frames;
  }

  close(): void {
    this.#feed.close();
  }

  #onArrival(): void {
    if (this.#settle) this.#fill();
    this.#onReady?.();
  }

  /** Turns waiting events into frames, until there is a frame or no event waits. */
  #fill(): void {
    try {
      while (this.#frames.length === 0 && !this.#failure) {
        const events = this.#feed.take();
        if (events === null) throw new GatewayError('internal', 'The stream ended before its outcome.');
        if (events.length === 0) return;
        for (const event of events) this.#add(event);
      }
    } catch (error) {
      this.#failure = { error };
    }
    if (this.#failure && this.#frames.length === 0) this.#settle?.reject(this.#failure.error);
    else this.#settle?.resolve();
    this.#settle = null;
  }

  #add({ event, data }: InvocationEvent): void {
    if (event === 'message') {
      const { text } = JSON.parse(data) as { text?: string };
      if (text === undefined) return;
      if (!this.#hasStarted) throw expired();
      const headers = droppedInMessage(text);
      if (headers !== null) {
        if (this.#areHeadersSent) this.#frames.push({ text: commentOf(headers), last: false });
        else this.#headers = headers;
        return;
      }
      this.#frames.push({ text: this.#frameOf(text), last: false });
      this.#messageCount++;
    } else if (event === 'question') {
      this.#keptCount = this.#messageCount;
    } else if (
      (event === 'gap' && this.#messageCount > 0) ||
      (event === 'start' && this.#messageCount > this.#keptCount)
    ) {
      // A new attempt sends its messages again, and a gap makes some invalid. OpenAI's clients cannot take text back.
      throw new GatewayError('runtime-lost', 'A part of the answer was lost. Discard the text that was streamed.');
    } else if (event === 'start') {
      this.#hasStarted = true;
    } else if (event === 'result') {
      const refusal = refusalIn(resultIn(data).output);
      if (refusal !== null) throw refusal;
      if (!this.#hasStarted) throw expired();
      this.#frames.push({ text: this.#style.done ? 'data: [DONE]\n\n' : '', last: true });
    } else if (event === 'error') {
      const { code, message, cause, retryAfterMs } = JSON.parse(data);
      const knownCode = isErrorCode(code) ? code : 'internal';
      throw new GatewayError(knownCode, String(message), {
        hint: failureHint(knownCode, cause),
        headers: retryAfterHeaders(retryAfterMs),
      });
    }
  }

  /** A message is JSON. On routes with named events it begins with its `type`. */
  #frameOf(json: string): string {
    const { events } = this.#style;
    const [head, type] = (events === 'data' ? null : TYPE_MEMBER.exec(json)) ?? [];
    if (head === undefined) return `${dataLines(json)}\n\n`;
    if (events === 'named') return `event: ${type}\n${dataLines(json)}\n\n`;
    const remainingJson = json.slice(head.length);
    // A tenant's own function may number its events itself.
    const number = remainingJson.startsWith(NUMBER_MEMBER) ? '' : `${NUMBER_MEMBER}${this.#messageCount}`;
    return `event: ${type}\n${dataLines(`${head}${number}${remainingJson}`)}\n\n`;
  }
}

/** A frame that no client takes for a part of the answer: lines that begin with a colon. */
const commentOf = (headers: Readonly<Record<string, string>>): string =>
  `${Object.entries(headers)
    .map(([name, value]) => `: ${name}: ${value}\n`)
    .join('')}\n`;

const expired = () =>
  new GatewayError('unknown-invocation', 'The events of this answer are no longer kept.', {
    hint: 'Send the request with another `Idempotency-Key` for a new answer.',
  });

const TYPE_MEMBER = /^\{"type":"([\w.]+)"/;
const NUMBER_MEMBER = ',"sequence_number":';

import type { TokenStream } from '#gpu-host/models/tokenizer.ts';
import { err, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { Frame, PipeRequest } from '#wit/generated/host.ts';
import { StopScanner } from '../../functions/sdk/src/stop.ts';
import { attempt, noTokenizer, notGranted } from './detokenize.ts';
import type { DeviceQueue } from './queue.ts';

/** Maximum tokens of `before`. Only those of an incomplete character matter, and no character takes so many. */
const MAX_BEFORE = 64;
const MAX_STOPS = 64;
const MAX_STOP_BYTES = 1024;
const MAX_FRAME_BYTES = 8192;

/** Turns a run's tokens into the messages of its text as they come, up to a stop string, without waking the guest. */
export class TextPipe {
  /** Tokens so far, up to the one that completed a stop string. */
  readonly tokens: number[] = [];
  /** Text sent so far; the caller appends the text that it sends. */
  sent = '';
  /** The stop string that was found. */
  stop: string | undefined;
  readonly #stream: TokenStream;
  readonly #scanner: StopScanner;
  readonly #frame: Frame | undefined;

  private constructor(stream: TokenStream, scanner: StopScanner, frame: Frame | undefined) {
    this.#stream = stream;
    this.#scanner = scanner;
    this.#frame = frame;
  }

  static open({ name, model }: DeviceQueue, { before, held, stops, frame }: PipeRequest): Outcome<TextPipe> {
    if (!model) return notGranted(name);
    if (!model.tokenizer) return noTokenizer(name);
    const bytes = stops.reduce((sum, stop) => sum + Buffer.byteLength(stop), 0);
    if (stops.length > MAX_STOPS || bytes > MAX_STOP_BYTES || Buffer.byteLength(held) > MAX_STOP_BYTES) {
      return err(
        handlerError('limit-exceeded', `at most ${MAX_STOPS} stop strings of ${MAX_STOP_BYTES} bytes together`),
      );
    }
    if (frame && bytesOf(frame) > MAX_FRAME_BYTES) {
      return err(
        handlerError('limit-exceeded', `the frame has ${bytesOf(frame)} bytes; ${MAX_FRAME_BYTES} is the limit`),
      );
    }
    if (before.length > MAX_BEFORE) {
      return err(handlerError('limit-exceeded', `${before.length} tokens before the run; ${MAX_BEFORE} is the limit`));
    }
    const stream = model.tokenizer.stream();
    return attempt(() => {
      stream.push(before);
      return ok(new TextPipe(stream, new StopScanner(stops, held), frame));
    });
  }

  /** The messages for the next piece of text. The opening of the frame comes before the first piece. */
  messages(text: string): readonly string[] {
    if (!this.#frame) return [text];
    const { opening, before, after } = this.#frame;
    const message = `${before}${JSON.stringify(text)}${after}`;
    return opening === '' || this.sent !== '' ? [message] : [opening, message];
  }

  /** The end of the text, not sent because it may be the beginning of a stop string. */
  get held(): string {
    return this.#scanner.held;
  }

  /**
   * Takes tokens, up to the one that completes a stop string. With `hasStopToken`, the last token is a stop token and adds no text. Returns the
   * added text, or an error for a token that the tokenizer does not know: a model may have more tokens than its tokenizer.
   */
  push(tokens: Uint32Array, hasStopToken: boolean): Outcome<string> {
    return attempt(() => ok(this.#push(tokens, hasStopToken)));
  }

  #push(tokens: Uint32Array, hasStopToken: boolean): string {
    let addedText = '';
    for (const [index, token] of tokens.entries()) {
      this.tokens.push(token);
      if (hasStopToken && index === tokens.length - 1) break;
      const scanned = this.#scanner.push(this.#stream.push([token]));
      addedText += scanned.text;
      this.stop = scanned.stop;
      if (this.stop !== undefined) break;
    }
    return addedText;
  }
}

const bytesOf = ({ opening, before, after }: Frame): number =>
  Buffer.byteLength(opening) + Buffer.byteLength(before) + Buffer.byteLength(after);

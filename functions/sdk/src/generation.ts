import type { PipeRequest } from 'pie:inferlet/fused@0.1.0';
import { abortable, abortError } from './abort.ts';
import { type Decoder, decoderFor } from './decoders.ts';
import { InferletError } from './errors.ts';
import type {
  FinishReason,
  GenerateOptions,
  GenerationResult,
  MessageFrame,
  Piece,
  PipeOptions,
} from './generation-options.ts';
import { specialTokens } from './models.ts';
import { attempt, Detokenizer, runtime } from './raw.ts';
import { greedy } from './samplers.ts';
import type { Sequence } from './sequence.ts';
import { beginText } from './sequence-checks.ts';
import { handedOver, send } from './session.ts';
import { speculativeDecoder } from './speculation.ts';
import { StopScanner } from './stop.ts';

/** What a context knows of what is under way on it alone: a generation, or another context that is appended. */
export interface Claim {
  /** @internal The context is gone. */
  abandon(): void;
}

/** Prompt tokens shown to the detokenizer first, so that the text goes on from them (spaces, halves of characters). */
const PRIMING_TOKENS = 8;
/** The platform pipes a text with at most so many tokens before it and so many stop strings, of 1,024 bytes together: three a character. */
const MAX_BEFORE = 64;
const MAX_STOPS = 64;
const MAX_STOP_CHARACTERS = 1024 / 3;
/** So with a frame, of 8,192 bytes. */
const MAX_FRAME_CHARACTERS = 8192 / 3;

/**
 * A text as it is generated: iterate it for pieces of text, {@link pieces} for pieces with their tokens, or {@link collect} it whole.
 * It begins when it is first asked for, and it can be gone through once. Leaving a loop early ends it, and the context then holds
 * what was handed over.
 */
export class Generation<T = string> implements AsyncIterable<string> {
  /**
   * Token ids handed over so far: what the context holds behind the prompt when this has ended. Without a final stop token, and without those
   * that begin within a stop string; a token that begins before it is whole.
   */
  readonly tokens: number[] = [];
  /** Natural logarithm of the probability of each token so far, where they were asked for. */
  readonly logProbabilities: number[] = [];
  /** Text handed over so far. */
  text = '';
  /** Tokens that the context held before. */
  promptTokens = 0;
  /** Set when the generation has ended. */
  finishReason: FinishReason | undefined;
  /** The stop string or the token that ended it, if one did. */
  stoppedBy: string | number | undefined;

  readonly #sequence: Sequence;
  readonly #options: GenerateOptions<T>;
  readonly #claim: (generation: Claim | undefined) => void;
  #decoder: Decoder | undefined;
  #detokenizer: Detokenizer | undefined;
  #scanner = new StopScanner([]);
  #stopTokens: ReadonlySet<number> = new Set();
  #stops: readonly string[] = [];
  #piping = false;
  /** Length of the text of the last piece that the platform has sent. */
  #piped = 0;
  /** The piece that the device still handed over after this was stopped. */
  #last: Piece = { text: '', tokens: [] };
  /** How piped pieces are written. Its opening is empty once something was sent. */
  #frame: Required<MessageFrame> | undefined;
  #begun = false;
  #ended = false;
  #abandoned: InferletError | undefined;
  #waiting: Promise<readonly number[]> | undefined;
  #finishing: Promise<void> | undefined;
  #forwardCalls = 0;
  #left = 0;
  #full = false;
  /** Tokens of which it is not known yet whether they are handed over, and how much text came before each. */
  #undecided: Undecided[] = [];
  /** Length of the text of all decoded tokens. */
  #decoded = 0;
  /** Tokens that the sequence was given. */
  #accepted = 0;

  /** @internal Made by `Context.generate`. `claim` tells the context which generation is under way. */
  constructor(sequence: Sequence, options: GenerateOptions<T>, claim: (generation: Claim | undefined) => void) {
    const { maxTokens, decode, constraint, window, speculator } = options;
    if (speculator && (constraint || window || decode !== undefined)) {
      throw new InferletError(
        'invalid-argument',
        'A speculator has a way of decoding of its own: it goes with no constraint, window or `decode`.',
      );
    }
    if ((constraint || window) && decode !== undefined && decode !== 'step') {
      throw new InferletError(
        'invalid-argument',
        `With a constraint or a window tokens come one by one, not by "${decode}".`,
      );
    }
    if (options.logProbabilities && (constraint || speculator)) {
      throw new InferletError('unsupported', 'Log-probabilities are not told with a constraint or a speculator.');
    }
    if (window?.endless && maxTokens === undefined) {
      throw new InferletError('invalid-argument', 'A text that never leaves its window has no end: say maxTokens.');
    }
    if (maxTokens !== undefined && !(Number.isInteger(maxTokens) && maxTokens >= 0)) {
      throw new InferletError('invalid-argument', `maxTokens must be a whole number, 0 or more, not ${maxTokens}.`);
    }
    this.#sequence = sequence;
    this.#options = options;
    this.#claim = claim;
  }

  /** Passes of the model through the device so far: one a token, fewer with a speculator. */
  get forwardCalls(): number {
    return this.#begun && !this.#ended ? this.#sequence.forwardCalls - this.#forwardCalls : this.#forwardCalls;
  }

  /** Pieces of text, none empty. */
  async *[Symbol.asyncIterator](): AsyncGenerator<string, void, void> {
    for await (const piece of this.pieces()) if (piece.text !== '') yield piece.text;
  }

  /** Pieces of text with the tokens that came with them. */
  async *pieces(): AsyncGenerator<Piece, void, void> {
    if (this.#begun) {
      throw new InferletError('invalid-argument', 'A generation can be gone through once; call generate() again.');
    }
    if (this.#ended) return;
    this.#claim(this);
    this.#begun = true;
    this.#forwardCalls = this.#sequence.forwardCalls;
    const { signal, until } = this.#options;
    const abort = () => this.#end();
    let failed = true;
    try {
      if (signal?.aborted) throw abortError(signal);
      signal?.addEventListener('abort', abort);
      this.#begin();
      while (this.finishReason === undefined) {
        const piece = await this.#next();
        if (piece.text === '' && piece.tokens.length === 0) continue;
        if (until?.(piece, this)) this.finishReason ??= 'until';
        failed = false;
        yield piece;
        failed = true;
        if (signal?.aborted && this.#ended) throw abortError(signal);
      }
      failed = false;
    } finally {
      signal?.removeEventListener('abort', abort);
      await this.#over(failed);
    }
  }

  /**
   * Sends the text to the client as it is generated, to the end, and hands out the whole. It is what a loop with `send` does, and where the
   * device decodes ahead by itself the platform does it without waking the inferlet: {@link text} and {@link tokens} grow once for a
   * hundred tokens or so then.
   *
   * @param options.frame how each piece is written, where clients expect more than the text.
   * @example
   * return await ctx.generate({ maxTokens: 100, stop: '\n\n' }).pipe();
   * @example
   * await ctx.generate().pipe({ frame: { before: '{"delta":', after: '}' } });
   */
  async pipe({ frame }: PipeOptions = {}): Promise<GenerationResult> {
    this.#frame = frame && {
      opening: frame.opening?.toWellFormed() ?? '',
      before: frame.before.toWellFormed(),
      after: frame.after.toWellFormed(),
    };
    // `until` looks at each piece, and a signal ends this between two: then the inferlet sends.
    this.#piping = !this.#options.until && !this.#options.signal;
    // Messages that still wait in this inferlet go before the text that the platform sends.
    await handedOver();
    for await (const { text } of this.pieces()) {
      const rest = text.slice(this.#piped);
      if (rest !== '') await this.#send(rest);
      if (text !== '' && this.#frame) this.#frame = { ...this.#frame, opening: '' };
    }
    return this.collect();
  }

  async #send(piece: string): Promise<void> {
    if (!this.#frame) return send(piece);
    const { opening, before, after } = this.#frame;
    if (opening !== '' && this.#piped === 0) await send(opening);
    await send(`${before}${JSON.stringify(piece)}${after}`);
  }

  /** Generates to the end, unless that was reached already, and hands out the whole. */
  async collect(): Promise<GenerationResult> {
    if (!this.#ended) {
      const pieces = this.pieces();
      while (!(await pieces.next()).done);
    }
    const { text, tokens, promptTokens, finishReason = 'stopped' } = this;
    const told = this.#options.logProbabilities ? { logProbabilities: this.logProbabilities } : {};
    return { text, tokens, promptTokens, finishReason, ...told };
  }

  /**
   * The value that the whole text stands for: of a constraint, what its `parse` makes of it (JSON, or what a `typed` schema says); else the
   * text. Throws `limit-exceeded` when the text ended before it was whole.
   *
   * @example
   * const { name, age } = await ctx.generate({ constraint: typed(person), maxTokens: 200 }).value();
   */
  async value(): Promise<T> {
    const { text, finishReason } = await this.collect();
    const { constraint, maxTokens } = this.#options;
    // Without a constraint, `Context.generate` answers a Generation<string>.
    if (!constraint) return text as T;
    try {
      return constraint.parse(text);
    } catch (error) {
      if (finishReason === 'constraint' || finishReason === 'stop-token') throw error;
      const most = finishReason === 'max-tokens' ? ` of ${maxTokens}` : '';
      throw new InferletError(
        'limit-exceeded',
        `The text ended (${finishReason}${most}) before it was whole: "${text}".`,
      );
    }
  }

  /** Ends the generation, also one that has not begun; the context keeps what was handed over. */
  stop(): void {
    if (!this.#begun) this.promptTokens = this.#sequence.length;
    this.#end();
  }

  /** @internal The context is gone: whoever waits for this generation is told so. */
  abandon(): void {
    if (!this.#ended) {
      this.#abandoned = new InferletError(
        'closed',
        'The context was released while it was generating. Await the generation (`return await …`) before the scope of `using` ends.',
      );
    }
    this.#end();
  }

  /** Ends it and waits until what was not handed over is taken back. What goes wrong there matters only where nothing has `failed` before. */
  async #over(failed: boolean): Promise<void> {
    try {
      this.#end();
      await this.#finishing;
    } catch (error) {
      if (!failed) throw error;
    }
  }

  #end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.finishReason ??= 'stopped';
    if (!this.#begun) return;
    this.#forwardCalls = this.#sequence.forwardCalls - this.#forwardCalls;
    const decoder = this.#decoder;
    const gone = this.#abandoned !== undefined;
    const finish = () => {
      this.#decoder = undefined;
      this.#detokenizer?.drop();
      this.#detokenizer = undefined;
      try {
        if (!gone) this.#sequence.drop(this.#accepted - this.tokens.length);
        decoder?.stop(!gone);
      } finally {
        this.#claim(undefined);
      }
    };
    if (gone || !decoder?.late || !this.#waiting) {
      finish();
      return;
    }
    decoder.halt?.();
    // The client has this text already: the generation and its context keep it.
    const last = (decoded: readonly number[]) => {
      if (decoder.piped) this.#last = this.#piece(decoded, decoder);
    };
    this.#finishing = this.#waiting.then(last).then(finish, finish);
  }

  #begin(): void {
    const { model, tokens } = this.#sequence;
    const { sampler = greedy(), stop = [], stopTokens = [], ignoreEos = false, maxTokens } = this.#options;
    const { constraint, window, speculator, until, logProbabilities = false } = this.#options;
    // A device that is ahead hands several tokens over at once.
    const { decode = (window || until) && (logProbabilities ? 'calls' : 'step') } = this.#options;
    const { bos, eos } = specialTokens(model.name);
    beginText(this.#sequence);
    // Texts of some models end with the token that begins the next one.
    const own = ignoreEos ? [] : bos === null ? eos : [...eos, bos];
    this.#stopTokens = new Set([...own, ...stopTokens]);
    // The platform takes whole characters only.
    this.#stops = (typeof stop === 'string' ? [stop] : stop).map((text) => text.toWellFormed());
    this.#scanner = new StopScanner(this.#stops);
    this.promptTokens = this.#sequence.length;
    const room = window?.endless ? Number.POSITIVE_INFINITY : model.contextLength - this.promptTokens;
    this.#full = maxTokens === undefined || room < maxTokens;
    this.#left = this.#full ? room : (maxTokens ?? 0);
    this.#detokenizer = new Detokenizer(model.name);
    const primer = this.#detokenizer;
    attempt(() => primer.push(tokens.slice(-PRIMING_TOKENS)));
    const seed = runtime.random();
    const asked = sampler.kind === 'guest' ? (sampler.begin?.(model) ?? sampler) : sampler;
    if (asked.kind === 'guest' && asked.also?.length && (constraint || speculator)) {
      throw new InferletError('unsupported', NO_MORE_CANDIDATES);
    }
    const stops = [...this.#stopTokens];
    if (constraint) this.#decoder = constraint.decoder(this.#sequence, asked, seed);
    else if (speculator) this.#decoder = speculativeDecoder(this.#sequence, asked, speculator, seed, stops);
    else this.#decoder = decoderFor(this.#sequence, asked, decode, seed, stops, logProbabilities);
    if (this.#left <= 0) this.finishReason = this.#full ? 'context-length' : 'max-tokens';
  }

  async #next(): Promise<Piece> {
    this.#options.window?.slide(this.#sequence);
    const { signal } = this.#options;
    if (signal?.aborted) throw abortError(signal);
    this.#waiting = this.#decoder?.next(this.#left, this.#pipeRequest());
    const decoded = this.#waiting ? await abortable(this.#waiting, this.#decoder?.late ? undefined : signal) : [];
    this.#waiting = undefined;
    await this.#finishing;
    if (this.#abandoned) throw this.#abandoned;
    if (signal?.aborted) throw abortError(signal);
    // It was stopped meanwhile.
    if (this.#ended) return this.#last;
    return this.#piece(decoded, this.#decoder);
  }

  /** Makes a piece of what was decoded. */
  #piece(decoded: readonly number[], decoder: Decoder | undefined): Piece {
    const told = decoder?.logProbabilities ?? [];
    this.#piped = decoder?.piped?.length ?? 0;
    const plain = this.#scanner.idle && !decoded.some((token) => this.#stopTokens.has(token));
    const text = plain ? this.#take(decoded, told) : this.#search(decoded, told);
    const rest = this.finishReason === undefined && decoder?.over ? this.#finish('constraint') : '';
    this.text += text + rest;
    return { text: text + rest, tokens: this.#handOver() };
  }

  /** Asks the platform to send the text of the next run; undefined when the inferlet sends it. */
  #pipeRequest(): PipeRequest | undefined {
    const characters = this.#stops.reduce((sum, stop) => sum + stop.length, 0);
    const { opening = '', before = '', after = '' } = this.#frame ?? {};
    if (opening.length + before.length + after.length > MAX_FRAME_CHARACTERS) return undefined;
    if (!this.#piping || this.#stops.length > MAX_STOPS || characters > MAX_STOP_CHARACTERS) return undefined;
    const { tokens, base } = this.#sequence;
    const from = Math.max(this.promptTokens - base - PRIMING_TOKENS, tokens.length - MAX_BEFORE, 0);
    return { before: tokens.slice(from), held: this.#scanner.held, stops: this.#stops, frame: this.#frame ?? null };
  }

  /** Takes tokens that end nothing but the count. */
  #take(decoded: readonly number[], told: readonly number[]): string {
    this.#accept(decoded);
    this.#left -= decoded.length;
    for (const [i, token] of decoded.entries()) {
      this.#undecided.push({ token, after: this.#decoded, logProbability: told[i] });
    }
    const text = this.#push(decoded);
    return this.#left > 0 ? text : text + this.#finish(this.#full ? 'context-length' : 'max-tokens');
  }

  /** Takes tokens one by one up to a stop. */
  #search(decoded: readonly number[], told: readonly number[]): string {
    let taken = 0;
    let text = '';
    for (const token of decoded) {
      const logProbability = told[taken++];
      this.#left--;
      if (this.#stopTokens.has(token)) {
        this.stoppedBy = token;
        text += this.#finish('stop-token');
        break;
      }
      this.#undecided.push({ token, after: this.#decoded, logProbability });
      const scanned = this.#scanner.push(this.#push([token]));
      text += scanned.text;
      if (scanned.stop !== undefined) {
        this.finishReason = 'stop-string';
        this.stoppedBy = scanned.stop;
        break;
      }
      if (this.#left <= 0) {
        text += this.#finish(this.#full ? 'context-length' : 'max-tokens');
        break;
      }
    }
    this.#accept(decoded.slice(0, taken));
    return text;
  }

  #accept(tokens: readonly number[]): void {
    this.#sequence.accept(tokens);
    this.#accepted += tokens.length;
  }

  /** The tokens of which it is known now that they are no part of a stop string. */
  #handOver(): number[] {
    const waits = this.#scanner.held !== '' || this.finishReason === 'stop-string';
    const end = waits ? this.#undecided.findIndex(({ after }) => after >= this.text.length) : -1;
    const decided = this.#undecided.splice(0, end < 0 ? this.#undecided.length : end);
    for (const { token, logProbability } of decided) {
      this.tokens.push(token);
      if (logProbability !== undefined) this.logProbabilities.push(logProbability);
    }
    return decided.map(({ token }) => token);
  }

  #push(tokens: readonly number[]): string {
    const detokenizer = this.#detokenizer;
    const text = detokenizer ? attempt(() => detokenizer.push(tokens)) : '';
    this.#decoded += text.length;
    return text;
  }

  /** Ends with `reason`; the text that was held back comes out, cut at a stop string that its very end completes. */
  #finish(reason: FinishReason): string {
    this.finishReason = reason;
    const { text, stop } = this.#scanner.push(this.#detokenizer?.finish() ?? '');
    if (stop !== undefined) {
      this.finishReason = 'stop-string';
      this.stoppedBy = stop;
      return text;
    }
    return text + this.#scanner.finish();
  }
}

/** A decoded token, the length of the text before it, and how probable it was, where that is told. */
interface Undecided {
  readonly token: number;
  readonly after: number;
  readonly logProbability: number | undefined;
}

const NO_MORE_CANDIDATES =
  'With a constraint or a speculator a sampler sees the most probable tokens only: a bias above 0, and whatever else asks for certain tokens, goes with neither.';

import type { Frame, PipeRequest } from 'pie:inferlet/fused@0.1.0';
import { type AbortSignalLike, abortable, abortError } from '../abort.ts';
import { detokenize, specialTokens, tokenizeContinuation } from '../context/models.ts';
import { beginText, type Sequence, withIds } from '../context/sequence.ts';
import { checkCount, InferletError } from '../errors.ts';
import { handedOver, send } from '../io/session.ts';
import { attempt, Detokenizer, runtime } from '../raw.ts';
import { StopScanner } from '../stop.ts';
import { type Constraint, type DecodeMode, type Decoder, decoderFor, type Jump } from './decoders.ts';
import { type Healing, HealingDecoder, heal } from './healing.ts';
import { greedy, type Sampler } from './samplers.ts';
import { type Proposal, type Speculator, speculativeDecoder } from './speculation.ts';

/** The operation that occupies a context: a generation, or the append of another context. */
export interface Claim {
  /** @internal Called when the context is released. */
  abandon(): void;
}

/** Prompt tokens given to the detokenizer first, so that generated text continues them correctly (spaces, incomplete characters). */
const PRIMING_TOKENS = 8;
/** Maximum number of earlier tokens that the platform takes with a piped text. */
const MAX_BEFORE = 64;

/**
 * A text being generated. Iterate it for pieces of text, use {@link pieces} for pieces with their tokens, or {@link collect} for the whole
 * text. The generation starts at the first request and can be consumed once. Leaving a loop early ends the generation; the context then
 * holds the tokens handed over so far.
 */
export class Generation<T = string> implements AsyncIterable<string> {
  /**
   * Token ids handed over so far. The context holds them after the prompt when the generation has ended. A final stop token and tokens that
   * begin inside a stop string are left out; a token that begins before the stop string is kept whole.
   */
  readonly tokens: number[] = [];
  /** Natural logarithm of each token's probability, if the options asked for `logProbabilities`. */
  readonly logProbabilities: number[] = [];
  /** Text handed over so far. */
  text = '';
  /** Number of tokens before the generated ones. An added begin-of-text token counts; a token that healing took back does not. */
  promptTokens = 0;
  /** Set when the generation has ended. */
  finishReason: FinishReason | undefined;
  /** The stop string or token that ended the generation, if one did. */
  stoppedBy: string | number | undefined;

  readonly #sequence: Sequence;
  readonly #options: GenerateOptions<T>;
  readonly #claim: (generation: Claim | undefined) => void;
  #decoder: Decoder | undefined;
  #detokenizer: Detokenizer | undefined;
  #scanner = new StopScanner([]);
  #stopTokens: ReadonlySet<number> = new Set();
  #stopStrings: readonly string[] = [];
  #piping = false;
  /** Number of characters of the last piece that the platform itself has sent to the client. */
  #pipedLength = 0;
  /** The piece that the device handed over after the generation was stopped. */
  #lastPiece: Piece = { text: '', tokens: [] };
  #frame: Pick<MessageFrame, 'before' | 'after'> | undefined;
  /** Messages to send before the next piece. */
  #opening: readonly string[] = [];
  #begun = false;
  #ended = false;
  #abandoned: InferletError | undefined;
  #healing: Healing | undefined;
  /** Characters of the prompt that the generated tokens have not repeated yet. */
  #unhealed = 0;
  #waiting: Promise<readonly number[]> | undefined;
  #finishing: Promise<void> | undefined;
  /** During the generation, the sequence's count at its start; afterwards, the generation's own count. */
  #forwardCalls = 0;
  #tokensLeft = 0;
  #isContextLimited = false;
  /** Tokens held back because they may belong to a stop string. */
  #undecided: Undecided[] = [];
  /** Length of the text of all decoded tokens. */
  #decodedLength = 0;
  /** Number of tokens given to the sequence. */
  #accepted = 0;

  /** @internal Constructed by `Context.generate`. `claim` tells the context which generation is under way. */
  constructor(sequence: Sequence, options: GenerateOptions<T>, claim: (generation: Claim | undefined) => void) {
    checkOptions(options);
    this.#sequence = sequence;
    this.#options = options;
    this.#claim = claim;
  }

  /** Forward passes of the model so far: one per token, fewer with a speculator. */
  get forwardCalls(): number {
    return this.#begun && !this.#ended ? this.#sequence.forwardCalls - this.#forwardCalls : this.#forwardCalls;
  }

  /** Pieces of text, none empty. */
  async *[Symbol.asyncIterator](): AsyncGenerator<string, void, void> {
    for await (const piece of this.pieces()) if (piece.text !== '') yield piece.text;
  }

  /** Pieces of text with their tokens. */
  async *pieces(): AsyncGenerator<Piece, void, void> {
    if (this.#begun) {
      throw new InferletError('invalid-argument', 'A generation can be iterated only once: call generate() again.');
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
        // A caller that leaves the loop ends this function at `yield`, which is no failure.
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
   * Sends the text to the client while it is generated, and returns the whole text at the end, like a loop with `send`. When the device
   * decodes ahead, the platform sends the text without waking the inferlet; {@link text} and {@link tokens} then grow about once every
   * hundred tokens.
   *
   * @param options.frame the message around each piece, for clients that expect more than the text.
   * @example
   * return await ctx.generate({ maxTokens: 100, stop: '\n\n' }).pipe();
   * @example
   * await ctx.generate().pipe({ frame: { before: '{"delta":', after: '}' } });
   */
  async pipe({ frame }: PipeOptions = {}): Promise<GenerationResult> {
    this.#frame = frame && { before: frame.before.toWellFormed(), after: frame.after.toWellFormed() };
    this.#opening = [frame?.opening ?? []].flat().map((message) => message.toWellFormed());
    // `until` inspects each piece, and a signal can end the generation between two pieces. The inferlet then sends the text itself.
    this.#piping = !this.#options.until && !this.#options.signal;
    // Messages still waiting in this inferlet must precede the text that the platform sends.
    await handedOver();
    for await (const { text } of this.pieces()) {
      const rest = text.slice(this.#pipedLength);
      if (rest !== '') await this.#send(rest);
      if (text !== '') this.#opening = [];
    }
    return this.collect();
  }

  async #send(piece: string): Promise<void> {
    if (!this.#frame) return send(piece);
    const { before, after } = this.#frame;
    for (const message of this.#pipedLength === 0 ? this.#opening : []) await send(message);
    await send(`${before}${JSON.stringify(piece)}${after}`);
  }

  /** Generates to the end and returns the whole text. A finished generation returns its text again. */
  async collect(): Promise<GenerationResult> {
    if (!this.#ended) {
      const pieces = this.pieces();
      while (!(await pieces.next()).done);
    }
    const { text, tokens, promptTokens, finishReason = 'stopped' } = this;
    const reported = this.#options.logProbabilities ? { logProbabilities: this.logProbabilities } : {};
    return { text, tokens, promptTokens, finishReason, ...reported };
  }

  /**
   * The value of the whole text. With a constraint, its `parse` makes the value (JSON, or the type of a `typed` schema); without one, the
   * value is the text itself. Throws `limit-exceeded` when the text ended before it was complete.
   *
   * @example
   * const { name, age } = await ctx.generate({ constraint: typed(person), maxTokens: 200 }).value();
   */
  async value(): Promise<T> {
    const { text, finishReason } = await this.collect();
    const { constraint, maxTokens } = this.#options;
    // Without a constraint, `Context.generate` returns a Generation<string>.
    if (!constraint) return text as T;
    try {
      return constraint.parse(text);
    } catch (error) {
      if (finishReason === 'constraint' || finishReason === 'stop-token') throw error;
      const limit = finishReason === 'max-tokens' ? ` of ${maxTokens}` : '';
      throw new InferletError(
        'limit-exceeded',
        `The text ended (${finishReason}${limit}) before it was complete: "${text}".`,
      );
    }
  }

  /** Ends the generation, even one that has not begun. The context keeps the tokens handed over so far. */
  stop(): void {
    if (!this.#begun) this.promptTokens = this.#sequence.length;
    this.#end();
  }

  /** @internal Called when the context is released: pending reads of this generation throw `closed`. */
  abandon(): void {
    if (!this.#ended) {
      this.#abandoned = new InferletError(
        'closed',
        'The context was released while it was generating. Await the generation (`return await …`) before the scope of `using` ends.',
      );
    }
    this.#end();
  }

  /** Ends the generation and waits until the tokens not handed over are taken back. After a failure (`failed`), ignores errors of these steps. */
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
    const isReleased = this.#abandoned !== undefined;
    const finish = () => {
      this.#decoder = undefined;
      this.#detokenizer?.drop();
      this.#detokenizer = undefined;
      try {
        try {
          if (!isReleased) this.#sequence.drop(this.#accepted - this.tokens.length);
        } finally {
          decoder?.stop(!isReleased);
        }
        // No token has replaced the one that healing removed, so the prompt gets that token back.
        if (!isReleased && this.#healing && this.tokens.length === 0) this.#sequence.append([this.#healing.removed]);
      } finally {
        this.#claim(undefined);
      }
    };
    if (isReleased || !decoder?.late || !this.#waiting) {
      finish();
      return;
    }
    decoder.halt?.();
    // The platform has already sent this text to the client, so the generation and its context keep it.
    const keepPipedText = (decoded: readonly number[]) => {
      if (decoder.piped) this.#lastPiece = this.#piece(decoded, decoder);
    };
    this.#finishing = this.#waiting.then(keepPipedText).then(finish, finish);
  }

  #begin(): void {
    const { model, tokens } = this.#sequence;
    const { sampler: original = greedy(), stop = [], stopTokens = [], ignoreEos = false, maxTokens } = this.#options;
    const { constraint, window, speculator, until, logProbabilities = false } = this.#options;
    // In `ahead` mode the device hands over several tokens at once, which is too coarse for a window or `until`.
    const { decode = (window || until) && (logProbabilities ? 'calls' : 'step') } = this.#options;
    const { bos, eos } = specialTokens(model.name);
    beginText(this.#sequence);
    if (this.#options.healing) this.#healing = heal(this.#sequence);
    this.#unhealed = this.#healing?.text.length ?? 0;
    // Some models end a text with the begin-of-text token of the next one.
    const modelStops = bos === null ? eos : [...eos, bos];
    this.#stopTokens = new Set([...(ignoreEos ? [] : modelStops), ...stopTokens]);
    // The platform accepts well-formed strings only.
    this.#stopStrings = (typeof stop === 'string' ? [stop] : stop).map((text) => text.toWellFormed());
    this.#scanner = new StopScanner(this.#stopStrings);
    this.promptTokens = this.#sequence.length;
    const room = window?.endless ? Number.POSITIVE_INFINITY : model.contextLength - this.promptTokens;
    this.#isContextLimited = maxTokens === undefined || room < maxTokens;
    this.#tokensLeft = this.#isContextLimited ? room : (maxTokens ?? 0);
    this.#detokenizer = new Detokenizer(model.name);
    const primer = this.#detokenizer;
    attempt(() => primer.push(withIds(tokens.slice(-PRIMING_TOKENS))));
    const seed = runtime.random();
    const sampler = original.kind === 'guest' ? (original.begin?.(model) ?? original) : original;
    if (sampler.kind === 'guest' && sampler.also?.length && speculator) {
      throw new InferletError('unsupported', NO_MORE_CANDIDATES);
    }
    const stops = [...this.#stopTokens];
    const [jump, ahead] = [jumpOf(this.#options), isConstrainedAhead(this.#options)];
    const constraintOptions = { jump, ahead, speculator, stopTokens: stops, logProbabilities };
    if (constraint) this.#decoder = constraint.decoder(this.#sequence, sampler, seed, constraintOptions);
    else if (speculator) this.#decoder = speculativeDecoder(this.#sequence, sampler, speculator, seed, stops);
    else {
      const ends = () => withStopStrings(stops, this.#stopStrings, model.name);
      this.#decoder = decoderFor(this.#sequence, sampler, decode, seed, ends, logProbabilities);
    }
    if (this.#healing && this.#decoder) {
      this.#decoder = new HealingDecoder(this.#sequence, sampler, seed, this.#healing, this.#decoder, logProbabilities);
    }
    if (this.#tokensLeft <= 0) this.finishReason = this.#isContextLimited ? 'context-length' : 'max-tokens';
  }

  async #next(): Promise<Piece> {
    this.#options.window?.slide(this.#sequence);
    const { signal } = this.#options;
    if (signal?.aborted) throw abortError(signal);
    this.#waiting = this.#decoder?.next(this.#tokensLeft, this.#pipeRequest());
    const decoded = this.#waiting ? await abortable(this.#waiting, this.#decoder?.late ? undefined : signal) : [];
    this.#waiting = undefined;
    await this.#finishing;
    if (this.#abandoned) throw this.#abandoned;
    if (signal?.aborted) throw abortError(signal);
    // The generation was stopped during the wait.
    if (this.#ended) return this.#lastPiece;
    return this.#piece(decoded, this.#decoder);
  }

  #piece(decoded: readonly number[], decoder: Decoder | undefined): Piece {
    const logProbabilities = decoder?.logProbabilities ?? [];
    this.#pipedLength = decoder?.piped?.length ?? 0;
    const cannotStop = this.#scanner.idle && !decoded.some((token) => this.#stopTokens.has(token));
    const text = cannotStop ? this.#take(decoded, logProbabilities) : this.#search(decoded, logProbabilities);
    const rest = this.finishReason === undefined && decoder?.over ? this.#finish('constraint') : '';
    this.text += text + rest;
    return { text: text + rest, tokens: this.#handOver() };
  }

  /** The request that makes the platform send the next run's text; undefined when the inferlet must send the text. */
  #pipeRequest(): PipeRequest | undefined {
    const [opening = '', ...more] = this.#opening;
    const frame: Frame | null = this.#frame ? { opening, ...this.#frame } : null;
    // The platform sends one opening message at most, in a frame of limited size. This inferlet sends a longer opening with the first piece.
    if (!this.#piping || more.length > 0 || !isPipeable(this.#stopStrings, frame)) return undefined;
    const { tokens, base } = this.#sequence;
    const from = Math.max(this.promptTokens - base - PRIMING_TOKENS, tokens.length - MAX_BEFORE, 0);
    return { before: withIds(tokens.slice(from)), held: this.#scanner.held, stops: this.#stopStrings, frame };
  }

  /** Takes tokens that cannot end the generation except by reaching the token limit. */
  #take(decoded: readonly number[], logProbabilities: readonly number[]): string {
    this.#accept(decoded, decoded.length);
    this.#tokensLeft -= decoded.length;
    for (const [i, token] of decoded.entries()) {
      this.#undecided.push({ token, after: this.#decodedLength, logProbability: logProbabilities[i] });
    }
    const text = this.#push(decoded);
    return this.#tokensLeft > 0 ? text : text + this.#finish(this.#isContextLimited ? 'context-length' : 'max-tokens');
  }

  /** Takes tokens one by one up to a stop. */
  #search(decoded: readonly number[], logProbabilities: readonly number[]): string {
    let taken = 0;
    let text = '';
    for (const token of decoded) {
      const logProbability = logProbabilities[taken++];
      this.#tokensLeft--;
      if (this.#stopTokens.has(token)) {
        this.stoppedBy = token;
        text += this.#finish('stop-token');
        break;
      }
      this.#undecided.push({ token, after: this.#decodedLength, logProbability });
      const scanned = this.#scanner.push(this.#push([token]));
      text += scanned.text;
      if (scanned.stop !== undefined) {
        this.finishReason = 'stop-string';
        this.stoppedBy = scanned.stop;
        break;
      }
      if (this.#tokensLeft <= 0) {
        text += this.#finish(this.#isContextLimited ? 'context-length' : 'max-tokens');
        break;
      }
    }
    this.#accept(decoded, taken);
    return text;
  }

  /** Gives the first `taken` decoded tokens to the sequence. */
  #accept(decoded: readonly number[], taken: number): void {
    const tokens = taken < decoded.length ? decoded.slice(0, taken) : decoded;
    const uncomputed = this.#decoder?.uncomputed ?? 1;
    this.#sequence.accept(tokens, Math.max(1, uncomputed - (decoded.length - taken)));
    this.#accepted += tokens.length;
  }

  /** Hands over the tokens that can no longer be part of a stop string. */
  #handOver(): number[] {
    // The last tokens may be an incomplete character, which may begin a stop string, too.
    const goesOn = this.finishReason === undefined && !this.#scanner.idle;
    const waits = goesOn || this.#scanner.held !== '' || this.finishReason === 'stop-string';
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
    const whole = detokenizer ? attempt(() => detokenizer.push(tokens)) : '';
    // The first token repeats text of the prompt.
    const text = whole.slice(this.#unhealed);
    this.#unhealed -= whole.length - text.length;
    this.#decodedLength += text.length;
    return text;
  }

  /** Ends with `reason`, or with `constraint` for a complete text. Returns the text that was held back, without a stop string that it completes. */
  #finish(reason: FinishReason): string {
    this.finishReason = this.#decoder?.over && reason !== 'stop-token' ? 'constraint' : reason;
    const { text, stop } = this.#scanner.push(this.#detokenizer?.finish() ?? '');
    if (stop === undefined) return text + this.#scanner.finish();
    this.finishReason = 'stop-string';
    this.stoppedBy = stop;
    return text;
  }
}

/** A decoded token, the length of the text before it, and its log-probability if the options asked for it. */
interface Undecided {
  readonly token: number;
  readonly after: number;
  readonly logProbability: number | undefined;
}

/** Options of a generation. `T` is the type that {@link Generation.value} returns. */
export interface GenerateOptions<T = unknown> {
  /** Largest number of tokens to generate; by default as many as the model's context has room for. */
  readonly maxTokens?: number;
  /** The sampler that picks tokens; greedy by default. */
  readonly sampler?: Sampler;
  /** Strings that end the generation. The generated text excludes them. */
  readonly stop?: string | readonly string[];
  /** Token ids that end the generation, in addition to the model's end-of-text tokens. */
  readonly stopTokens?: readonly number[];
  /**
   * A function that is called after each piece, with the piece and with the text and tokens generated so far. The generation ends when the function
   * returns true. With `until`, tokens are decoded one by one unless `decode` is set.
   */
  readonly until?: (piece: Piece, generation: { readonly text: string; readonly tokens: readonly number[] }) => boolean;
  /** True to continue after the model's end-of-text tokens. */
  readonly ignoreEos?: boolean;
  /**
   * Decoding mode. In mode `ahead` the device decodes several tokens on its own. In mode `step` each token takes one fused call. In mode `calls` the
   * inferlet makes separate calls for each token and samples the token. The default for built-in samplers, and for a chain of `processors` that the
   * host can apply, is `ahead`. With a custom sampler, an adapter, a constraint, a window or `until`, the default is `step`. With
   * `logProbabilities`, or on a model without `fused`, the default is `calls`.
   */
  readonly decode?: DecodeMode;
  /** A rule that the text must fit: `jsonSchema`, `typed`, `regex`, `ebnf` or `json`. The generation ends when the rule allows no further token. */
  readonly constraint?: Constraint<T>;
  /**
   * True to append forced text, about which the constraint leaves no choice, without sampling. The model's tokenizer splits this text into tokens,
   * and the next pass computes all of them at once. The default is true, but false with a custom sampler, a window or `logProbabilities`. An explicit
   * `true` throws with a window or `logProbabilities`.
   */
  readonly jumpForward?: boolean;
  /** True to record each token's log-probability in the model's distribution, before the sampler changes it. Cannot be combined with a speculator. */
  readonly logProbabilities?: boolean;
  /**
   * True to remove the prompt's last token, and to generate in its place a token whose text begins with the removed text. This helps when the prompt
   * ends with a space or in the middle of a word: there the model expects a longer token. The `text` of the generation holds only the text after the
   * prompt; the `tokens` of the generation begin with the replacement. Cannot be combined with a constraint or a window.
   */
  readonly healing?: boolean;
  /** Limits the part of the text that the model can attend to: `slidingWindow` or `attentionSink`. */
  readonly window?: Window;
  /**
   * Guesses the next tokens: `ngram`, `draft`, `jacobi` or a function. The model verifies several guesses in one pass. Guesses do not change the
   * generated text.
   */
  readonly speculator?: Speculator | Proposal;
  /**
   * An aborted signal ends the generation with an error: the signal's reason if that is an InferletError, else `cancelled`. The context keeps the
   * tokens that were already handed over.
   */
  readonly signal?: AbortSignalLike;
}

/** Limits the part of a growing text that the model can attend to. */
export interface Window {
  /** True when a text of any length fits the model's context through this window. */
  readonly endless: boolean;
  /** @internal Called before each token; drops the tokens that have left the window. */
  slide(sequence: Sequence): void;
}

/**
 * The reason why a generation ended.
 *
 * - `stop-token`: an end-of-text token of the model, or a token of `stopTokens`.
 * - `stop-string`: a string of `stop`.
 * - `until`: the function `until` returned true.
 * - `constraint`: the constraint allows no further token.
 * - `max-tokens`: `maxTokens` were generated.
 * - `context-length`: the model's context is full.
 * - `stopped`: the reader stopped, by `break` or {@link Generation.stop}.
 */
export type FinishReason =
  | 'stop-token'
  | 'stop-string'
  | 'until'
  | 'constraint'
  | 'max-tokens'
  | 'context-length'
  | 'stopped';

/**
 * New tokens and the text that they complete. The generation holds back an incomplete character until the character is complete. Text that may
 * belong to a stop string is also held back, together with its tokens.
 */
export interface Piece {
  readonly text: string;
  readonly tokens: readonly number[];
}

/** A finished generation. */
export interface GenerationResult {
  readonly text: string;
  readonly tokens: readonly number[];
  readonly finishReason: FinishReason;
  readonly promptTokens: number;
  /** Natural logarithm of each token's probability, if the options asked for `logProbabilities`. */
  readonly logProbabilities?: readonly number[];
}

/** The form of the messages that send a generated text to the client, one message for each piece. */
export interface MessageFrame {
  /** Messages of their own that precede the first piece; none by default. */
  readonly opening?: string | readonly string[];
  /** Text of each message before its piece. The piece is written as a JSON string. */
  readonly before: string;
  /** Text of each message after its piece. */
  readonly after: string;
}

/** Options of {@link Generation.pipe}. */
export interface PipeOptions {
  /** The form of the messages. By default, a message consists of the piece alone. */
  readonly frame?: MessageFrame | undefined;
}

const NO_MORE_CANDIDATES =
  'With a speculator, a sampler sees only the most probable tokens. It cannot be combined with a bias above 0 or another rule that asks for certain tokens.';

/** Maximum number of stop strings of a piped text. */
const MAX_STOPS = 64;
/** The stop strings of a piped text may have 1,024 bytes in all. A UTF-16 unit takes at most three. */
const MAX_STOP_CHARACTERS = 1024 / 3;
/** A frame may have 8,192 bytes. */
const MAX_FRAME_CHARACTERS = 8192 / 3;

/** Throws when options of a generation exclude each other or have no meaning. */
function checkOptions(options: GenerateOptions): void {
  const { maxTokens, decode, constraint, window, speculator, logProbabilities, jumpForward, healing } = options;
  if (speculator && (window || decode !== undefined)) {
    throw new InferletError(
      'invalid-argument',
      '`speculator` cannot be combined with `window` or `decode`: a speculator decodes in its own way.',
    );
  }
  if (window && decode !== undefined && decode !== 'step') {
    throw new InferletError(
      'invalid-argument',
      `With a window, tokens are decoded one by one: remove decode "${decode}".`,
    );
  }
  if (constraint && (decode === 'calls' || (decode === 'ahead' && !isConstrainedAhead(options)))) {
    const text =
      'With a constraint `decode` is "step", or "ahead" with a built-in sampler, jumps, and neither `until` nor log-probabilities.';
    throw new InferletError('invalid-argument', text);
  }
  if (healing && (constraint || window)) {
    throw new InferletError('invalid-argument', '`healing` cannot be combined with `constraint` or `window`.');
  }
  if (logProbabilities && speculator) {
    throw new InferletError('unsupported', '`logProbabilities` cannot be combined with `speculator`.');
  }
  if (jumpForward && (window || logProbabilities)) {
    const text =
      '`jumpForward` cannot be combined with `window`, which moves token by token, or with `logProbabilities`, which need sampled tokens.';
    throw new InferletError('invalid-argument', text);
  }
  if (window?.endless && maxTokens === undefined) {
    throw new InferletError('invalid-argument', 'With an endless window the text may never end: set maxTokens.');
  }
  if (maxTokens !== undefined) checkCount('maxTokens', maxTokens, 0);
}

/** True if a constraint's decoder decodes in runs. A run hands over several tokens at once and takes forced tokens without sampling. */
function isConstrainedAhead(options: GenerateOptions): boolean {
  const { decode, sampler, speculator } = options;
  return decode === 'ahead' && sampler?.kind !== 'guest' && !speculator && jumpOf(options) === 'at-once';
}

/** The way in which a constraint's decoder takes forced tokens. A custom sampler, a window and log-probabilities need sampled tokens. */
function jumpOf({ jumpForward, sampler, window, until, logProbabilities }: GenerateOptions): Jump {
  const jumps = jumpForward ?? (sampler?.kind !== 'guest' && !window && !logProbabilities);
  if (!jumps) return 'none';
  return until ? 'one-by-one' : 'at-once';
}

/** True if the platform takes a piped text with these stop strings, in messages of this frame. */
function isPipeable(stopStrings: readonly string[], frame: Frame | null): boolean {
  if (frame && lengthOf(frame) > MAX_FRAME_CHARACTERS) return false;
  const characters = stopStrings.reduce((sum, stop) => sum + stop.length, 0);
  return stopStrings.length <= MAX_STOPS && characters <= MAX_STOP_CHARACTERS;
}

const lengthOf = ({ opening, before, after }: Frame): number => opening.length + before.length + after.length;

/** Maximum stop tokens of a run. */
const MAX_STOP_TOKENS = 256;
/** Maximum number of stop strings that are looked up. */
const MAX_LOOKED_UP = 64;
/** Maximum length of a stop string that is looked up: hardly any token is longer. */
const MAX_CHARACTERS = 64;

/**
 * Adds to `stopTokens` each stop string that is exactly one token. The device ends a run at a stop token. At a stop string of several tokens, it
 * decodes on until the inferlet or the platform has read the text. Other tokens may contain a stop string, so the caller still searches the text.
 */
function withStopStrings(stopTokens: readonly number[], stops: readonly string[], model: string): number[] {
  const all = new Set(stopTokens);
  for (const stop of stops.slice(0, MAX_LOOKED_UP)) {
    if (all.size >= MAX_STOP_TOKENS) break;
    if (stop.length > MAX_CHARACTERS) continue;
    const [token, ...more] = tokenizeContinuation(stop, { model });
    if (token !== undefined && more.length === 0 && detokenize([token], { model }) === stop) all.add(token);
  }
  return [...all];
}

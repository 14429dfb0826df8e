import { type AbortSignalLike, abortable, abortError } from './abort.ts';
import { type Constraint, type DecodeMode, type Decoder, decoderFor } from './decoders.ts';
import { InferletError } from './errors.ts';
import { specialTokens } from './models.ts';
import { attempt, Detokenizer, runtime } from './raw.ts';
import { greedy, type Sampler } from './samplers.ts';
import type { Sequence } from './sequence.ts';
import { type Proposal, type Speculator, speculativeDecoder } from './speculation.ts';
import { StopScanner } from './stop.ts';

/** How to continue a text, and when to end. `T` is what {@link Generation.value} answers. */
export interface GenerateOptions<T = unknown> {
  /** Most tokens to generate; without it, as many as the model's context has room for. */
  readonly maxTokens?: number;
  /** How tokens are picked; greedy by default. */
  readonly sampler?: Sampler;
  /** Text that ends the generation and is left out of it. */
  readonly stop?: string | readonly string[];
  /** Token ids that end the generation besides the model's own. */
  readonly stopTokens?: readonly number[];
  /** Ends the generation after the piece for which it answers true. */
  readonly until?: (piece: Piece, generation: { readonly text: string; readonly tokens: readonly number[] }) => boolean;
  /** Go on past the model's own end-of-text tokens. */
  readonly ignoreEos?: boolean;
  /** How tokens are decoded: `ahead` for built-in samplers, `step` for custom ones and with a constraint or a window. */
  readonly decode?: DecodeMode;
  /** What the text must fit: `jsonSchema`, `typed`, `regex`, `ebnf` or `json`. It ends when nothing may follow. */
  readonly constraint?: Constraint<T>;
  /** Tell how probable each token was over the model's own distribution, whatever the sampler made of it. Not with a constraint or a speculator. */
  readonly logProbabilities?: boolean;
  /** What of the text stays in sight: `slidingWindow` or `attentionSink`. */
  readonly window?: Window;
  /** What is likely to follow, to be verified several tokens at a time: `ngram`, `draft`, `jacobi` or a function. The text stays the same. */
  readonly speculator?: Speculator | Proposal;
  /** Ends the generation with an error, `cancelled` unless the reason says otherwise; the context then holds what was handed over. */
  readonly signal?: AbortSignalLike;
}

/** What of a text stays in sight while it grows. */
export interface Window {
  /** Whether it keeps the text within the model's context for ever. */
  readonly endless: boolean;
  /** @internal Lets go of what is out of sight; called before each token. */
  slide(sequence: Sequence): void;
}

/**
 * Why a generation ended: an end-of-text or stop token; a stop string; `until` said so; a constraint after which nothing may follow;
 * `maxTokens`; no room left in the model's context; or the consumer left, by `break` or {@link Generation.stop}.
 */
export type FinishReason =
  | 'stop-token'
  | 'stop-string'
  | 'until'
  | 'constraint'
  | 'max-tokens'
  | 'context-length'
  | 'stopped';

/** Newly decoded tokens and the text that they complete (which may lag behind them, inside a character or a possible stop string). */
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
  /** Natural logarithm of the probability of each token, where they were asked for. */
  readonly logProbabilities?: readonly number[];
}

/** What a context knows of the generation that is under way on it. */
export interface Claim {
  /** @internal The context is gone. */
  abandon(): void;
}

/** Prompt tokens shown to the detokenizer first, so that the text goes on from them (spaces, halves of characters). */
const PRIMING_TOKENS = 8;

/**
 * A text as it is generated: iterate it for pieces of text, {@link pieces} for pieces with their tokens, or {@link collect} it whole.
 * It begins when it is first asked for, and it can be gone through once. Leaving a loop early ends it, and the context then holds
 * what was handed over.
 */
export class Generation<T = string> implements AsyncIterable<string> {
  /** Generated token ids so far, without a final stop token. */
  readonly tokens: number[] = [];
  /** Natural logarithm of the probability of each token so far, where they were asked for. */
  readonly logProbabilities: number[] = [];
  /** Text handed over so far. */
  text = '';
  /** Tokens that the context held before. */
  promptTokens = 0;
  /** Set when the generation has ended. */
  finishReason: FinishReason | undefined;

  readonly #sequence: Sequence;
  readonly #options: GenerateOptions<T>;
  readonly #claim: (generation: Claim | undefined) => void;
  #decoder: Decoder | undefined;
  #detokenizer: Detokenizer | undefined;
  #scanner = new StopScanner([]);
  #stopTokens: ReadonlySet<number> = new Set();
  #begun = false;
  #ended = false;
  #abandoned: InferletError | undefined;
  #waiting: Promise<readonly number[]> | undefined;
  #finishing: Promise<void> | undefined;
  #forwardCalls = 0;
  #left = 0;
  #full = false;

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
    this.#claim(this);
    this.#begun = true;
    this.#forwardCalls = this.#sequence.forwardCalls;
    const { signal, until } = this.#options;
    const abort = () => this.#end(true);
    let failed = true;
    try {
      if (signal?.aborted) throw abortError(signal);
      signal?.addEventListener('abort', abort);
      this.#begin();
      while (this.finishReason === undefined) {
        const piece = await this.#next();
        failed = false;
        if (until?.(piece, this)) this.finishReason ??= 'until';
        if (piece.text !== '' || piece.tokens.length > 0) yield piece;
        failed = true;
        if (signal?.aborted && this.#ended) throw abortError(signal);
      }
      failed = false;
    } finally {
      signal?.removeEventListener('abort', abort);
      this.#end(!failed);
    }
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

  /** Ends the generation; the context keeps what was handed over. */
  stop(): void {
    this.#end(true);
  }

  /** @internal The context is gone: whoever waits for this generation is told so. */
  abandon(): void {
    if (!this.#ended) {
      this.#abandoned = new InferletError(
        'closed',
        'The context was released while it was generating. Await the generation (`return await …`) before the scope of `using` ends.',
      );
    }
    this.#end(false);
  }

  #end(rollBack: boolean): void {
    if (!this.#begun || this.#ended) return;
    this.#ended = true;
    this.finishReason ??= 'stopped';
    this.#forwardCalls = this.#sequence.forwardCalls - this.#forwardCalls;
    const decoder = this.#decoder;
    this.#decoder = undefined;
    this.#detokenizer?.drop();
    this.#detokenizer = undefined;
    const finish = () => {
      try {
        decoder?.stop(rollBack);
        // A call that nobody waits for any more has computed the last token.
        const { tokens, pending } = this.#sequence;
        if (rollBack && decoder && pending === 0) this.#sequence.cut(tokens.length - 1);
      } finally {
        this.#claim(undefined);
      }
    };
    if (rollBack && decoder?.late && this.#waiting) this.#finishing = this.#waiting.then(finish, finish);
    else finish();
  }

  #begin(): void {
    const { model, tokens } = this.#sequence;
    const { sampler = greedy(), stop = [], stopTokens = [], ignoreEos = false, maxTokens } = this.#options;
    const { constraint, window, speculator, logProbabilities = false } = this.#options;
    const { decode = window && (logProbabilities ? 'calls' : 'step') } = this.#options;
    const { bos, eos } = specialTokens(model.name);
    if (this.#sequence.length === 0) {
      if (bos === null) {
        throw new InferletError(
          'invalid-argument',
          `The context is empty and ${model.name} has no token to begin with: fill it first.`,
        );
      }
      this.#sequence.append([bos]);
    }
    // Texts of some models end with the token that begins the next one.
    const own = ignoreEos ? [] : bos === null ? eos : [...eos, bos];
    this.#stopTokens = new Set([...own, ...stopTokens]);
    this.#scanner = new StopScanner(typeof stop === 'string' ? [stop] : stop);
    this.promptTokens = this.#sequence.length;
    const room = window?.endless ? Number.POSITIVE_INFINITY : model.contextLength - this.promptTokens;
    this.#full = maxTokens === undefined || room < maxTokens;
    this.#left = this.#full ? room : (maxTokens ?? 0);
    this.#detokenizer = new Detokenizer(model.name);
    const primer = this.#detokenizer;
    attempt(() => primer.push(tokens.slice(-PRIMING_TOKENS)));
    const seed = runtime.random();
    const asked = sampler.kind === 'guest' ? (sampler.begin?.(model) ?? sampler) : sampler;
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
    this.#waiting = this.#decoder?.next(this.#left);
    const decoded = this.#waiting ? await abortable(this.#waiting, this.#decoder?.late ? undefined : signal) : [];
    this.#waiting = undefined;
    await this.#finishing;
    if (this.#abandoned) throw this.#abandoned;
    if (signal?.aborted) throw abortError(signal);
    // It was stopped meanwhile.
    if (this.#ended) return { text: '', tokens: [] };
    const told = this.#decoder?.logProbabilities;
    const before = this.tokens.length;
    const plain = this.#scanner.idle && !decoded.some((token) => this.#stopTokens.has(token));
    const piece = plain ? this.#take(decoded) : this.#search(decoded);
    if (told) this.logProbabilities.push(...told.slice(0, this.tokens.length - before));
    if (this.finishReason !== undefined || !this.#decoder?.over) return piece;
    const rest = this.#finish('constraint');
    this.text += rest;
    return { text: piece.text + rest, tokens: piece.tokens };
  }

  /** Takes tokens that end nothing but the count. */
  #take(decoded: readonly number[]): Piece {
    this.#sequence.accept(decoded);
    for (const token of decoded) this.tokens.push(token);
    this.#left -= decoded.length;
    let text = this.#push(decoded);
    if (this.#left <= 0) text += this.#finish(this.#full ? 'context-length' : 'max-tokens');
    this.text += text;
    return { text, tokens: decoded };
  }

  /** Takes tokens one by one up to a stop. */
  #search(decoded: readonly number[]): Piece {
    const taken: number[] = [];
    const accepted: number[] = [];
    let text = '';
    for (const token of decoded) {
      accepted.push(token);
      this.#left--;
      if (this.#stopTokens.has(token)) {
        text += this.#finish('stop-token');
        break;
      }
      taken.push(token);
      const scanned = this.#scanner.push(this.#push([token]));
      text += scanned.text;
      if (scanned.stop !== undefined) {
        this.finishReason = 'stop-string';
        break;
      }
      if (this.#left <= 0) {
        text += this.#finish(this.#full ? 'context-length' : 'max-tokens');
        break;
      }
    }
    this.#sequence.accept(accepted);
    for (const token of taken) this.tokens.push(token);
    this.text += text;
    return { text, tokens: taken };
  }

  #push(tokens: readonly number[]): string {
    const detokenizer = this.#detokenizer;
    return detokenizer ? attempt(() => detokenizer.push(tokens)) : '';
  }

  /** Ends with `reason`; the text that was held back comes out, cut at a stop string that its very end completes. */
  #finish(reason: FinishReason): string {
    this.finishReason = reason;
    const { text, stop } = this.#scanner.push(this.#detokenizer?.finish() ?? '');
    if (stop !== undefined) {
      this.finishReason = 'stop-string';
      return text;
    }
    return text + this.#scanner.finish();
  }
}

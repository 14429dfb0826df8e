import { type Constraint, type DecodeMode, type Decoder, decoderFor } from './decoders.ts';
import { InferletError } from './errors.ts';
import { specialTokens } from './models.ts';
import { attempt, Detokenizer, runtime } from './raw.ts';
import { greedy, type Sampler } from './samplers.ts';
import type { Sequence } from './sequence.ts';
import { StopScanner } from './stop.ts';

/** How to continue a text, and when to end. */
export interface GenerateOptions {
  /** Most tokens to generate; without it, as many as the model's context has room for. */
  readonly maxTokens?: number;
  /** How tokens are picked; greedy by default. */
  readonly sampler?: Sampler;
  /** Text that ends the generation and is left out of it. */
  readonly stop?: string | readonly string[];
  /** Token ids that end the generation besides the model's own. */
  readonly stopTokens?: readonly number[];
  /** Go on past the model's own end-of-text tokens. */
  readonly ignoreEos?: boolean;
  /** How tokens are decoded: `ahead` for built-in samplers, `step` for custom ones and with a constraint or a window. */
  readonly decode?: DecodeMode;
  /** What the text must fit: `jsonSchema`, `regex`, `ebnf` or `json`. It ends when nothing may follow. */
  readonly constraint?: Constraint;
  /** What of the text stays in sight: `slidingWindow` or `attentionSink`. */
  readonly window?: Window;
}

/** What of a text stays in sight while it grows. */
export interface Window {
  /** Whether it keeps the text within the model's context for ever. */
  readonly endless: boolean;
  /** @internal Lets go of what is out of sight; called before each token. */
  slide(sequence: Sequence): void;
}

/**
 * Why a generation ended: an end-of-text or stop token; a stop string; a constraint after which nothing may follow; `maxTokens`; no room left
 * in the model's context; or the consumer left, by `break` or {@link Generation.stop}.
 */
export type FinishReason = 'stop-token' | 'stop-string' | 'constraint' | 'max-tokens' | 'context-length' | 'stopped';

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
}

/** Prompt tokens shown to the detokenizer first, so that the text goes on from them (spaces, halves of characters). */
const PRIMING_TOKENS = 8;

/**
 * A text as it is generated: iterate it for pieces of text, {@link pieces} for pieces with their tokens, or {@link collect} it whole.
 * It begins when it is first asked for, and it can be gone through once. Leaving a loop early ends it, and the context then holds
 * what was handed over.
 */
export class Generation implements AsyncIterable<string> {
  /** Generated token ids so far, without a final stop token. */
  readonly tokens: number[] = [];
  /** Text handed over so far. */
  text = '';
  /** Tokens that the context held before. */
  promptTokens = 0;
  /** Set when the generation has ended. */
  finishReason: FinishReason | undefined;

  readonly #sequence: Sequence;
  readonly #options: GenerateOptions;
  readonly #claim: (generation: Generation | undefined) => void;
  #decoder: Decoder | undefined;
  #detokenizer: Detokenizer | undefined;
  #scanner = new StopScanner([]);
  #stopTokens: ReadonlySet<number> = new Set();
  #begun = false;
  #ended = false;
  #abandoned: InferletError | undefined;
  #left = 0;
  #full = false;

  /** @internal Made by `Context.generate`. `claim` tells the context which generation is under way. */
  constructor(sequence: Sequence, options: GenerateOptions, claim: (generation: Generation | undefined) => void) {
    const { maxTokens, decode, constraint, window } = options;
    if ((constraint || window) && decode !== undefined && decode !== 'step') {
      throw new InferletError(
        'invalid-argument',
        `With a constraint or a window tokens come one by one, not by "${decode}".`,
      );
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
    let failed = true;
    try {
      this.#begin();
      while (this.finishReason === undefined) {
        const piece = await this.#next();
        failed = false;
        if (piece.text !== '' || piece.tokens.length > 0) yield piece;
        failed = true;
      }
      failed = false;
    } finally {
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
    return { text, tokens, promptTokens, finishReason };
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
    try {
      this.#decoder?.stop(rollBack);
    } finally {
      this.#decoder = undefined;
      this.#detokenizer?.drop();
      this.#detokenizer = undefined;
      this.#claim(undefined);
    }
  }

  #begin(): void {
    const { model, tokens } = this.#sequence;
    const { sampler = greedy(), stop = [], stopTokens = [], ignoreEos = false, maxTokens } = this.#options;
    const { constraint, window, decode = window && 'step' } = this.#options;
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
    this.#decoder = constraint
      ? constraint.decoder(this.#sequence, sampler, seed)
      : decoderFor(this.#sequence, sampler, decode, seed, [...this.#stopTokens]);
    if (this.#left <= 0) this.finishReason = this.#full ? 'context-length' : 'max-tokens';
  }

  async #next(): Promise<Piece> {
    this.#options.window?.slide(this.#sequence);
    const decoded = (await this.#decoder?.next(this.#left)) ?? [];
    if (this.#abandoned) throw this.#abandoned;
    // It was stopped meanwhile.
    if (this.#ended) return { text: '', tokens: [] };
    const plain = this.#scanner.idle && !decoded.some((token) => this.#stopTokens.has(token));
    const piece = plain ? this.#take(decoded) : this.#search(decoded);
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

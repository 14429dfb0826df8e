import type { AbortSignalLike } from '../abort.ts';
import type { Sequence } from '../context/sequence.ts';
import type { Constraint, DecodeMode } from './decoders.ts';
import type { Sampler } from './samplers.ts';
import type { Proposal, Speculator } from './speculation.ts';

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

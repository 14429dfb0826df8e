import type { AbortSignalLike } from './abort.ts';
import type { Constraint, DecodeMode } from './decoders.ts';
import type { Sampler } from './samplers.ts';
import type { Sequence } from './sequence.ts';
import type { Proposal, Speculator } from './speculation.ts';

/** Options of a generation. `T` is the type that {@link Generation.value} returns. */
export interface GenerateOptions<T = unknown> {
  /** Largest number of tokens to generate; by default as many as the model's context has room for. */
  readonly maxTokens?: number;
  /** The sampler that picks tokens; greedy by default. */
  readonly sampler?: Sampler;
  /** Strings that end the generation. The generated text excludes them. */
  readonly stop?: string | readonly string[];
  /** Token ids that end the generation, in addition to the model's own. */
  readonly stopTokens?: readonly number[];
  /** Ends the generation after the piece for which it returns true. Decoding is then token by token, unless `decode` is set. */
  readonly until?: (piece: Piece, generation: { readonly text: string; readonly tokens: readonly number[] }) => boolean;
  /** Continue past the model's own end-of-text tokens. */
  readonly ignoreEos?: boolean;
  /**
   * Decoding mode. Defaults: `ahead` for built-in samplers, and for chains of `processors` that the host can apply;
   * `step` for custom samplers and with a constraint, a window or `until`.
   */
  readonly decode?: DecodeMode;
  /** A rule that the text must fit: `jsonSchema`, `typed`, `regex`, `ebnf` or `json`. The generation ends when no token may follow. */
  readonly constraint?: Constraint<T>;
  /**
   * Append forced tokens, about which the constraint leaves no choice, without sampling them; the next pass computes all of them at once.
   * They are the tokens that the model's tokenizer makes of the forced text. True by default; false by default with a custom sampler. With a
   * window or `logProbabilities` it is always false: `true` throws.
   */
  readonly jumpForward?: boolean;
  /** Record each token's log-probability in the model's own distribution, before the sampler. Not with a speculator. */
  readonly logProbabilities?: boolean;
  /**
   * Take back the prompt's last token, and generate in its place a token whose text begins with the text taken back. This helps when the prompt
   * ends in the middle of a word, or with a space, where the model expects a longer token. The generation's `text` holds only the text after the
   * prompt; its `tokens` begin with the replacement. Not with a constraint or a window.
   */
  readonly healing?: boolean;
  /** Limits the part of the text that stays in sight: `slidingWindow` or `attentionSink`. */
  readonly window?: Window;
  /** Guesses tokens that the model verifies several at a time: `ngram`, `draft`, `jacobi` or a function. Does not change the text. */
  readonly speculator?: Speculator | Proposal;
  /** Ends the generation with the signal's reason if that is an InferletError, else with `cancelled`. The context keeps the tokens handed over. */
  readonly signal?: AbortSignalLike;
}

/** Limits the part of a growing text that stays in sight. */
export interface Window {
  /** True when the window keeps a text of any length within the model's context. */
  readonly endless: boolean;
  /** @internal Drops tokens that are out of sight; called before each token. */
  slide(sequence: Sequence): void;
}

/**
 * The reason why a generation ended: an end-of-text or stop token; a stop string; `until`; a constraint after which no token may follow;
 * `maxTokens`; no room left in the model's context; or the consumer stopped, by `break` or {@link Generation.stop}.
 */
export type FinishReason =
  | 'stop-token'
  | 'stop-string'
  | 'until'
  | 'constraint'
  | 'max-tokens'
  | 'context-length'
  | 'stopped';

/** New tokens and the text that they complete. Incomplete characters are held back, and all text and tokens that may belong to a stop string. */
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

/** The form of messages that carry pieces of a text. */
export interface MessageFrame {
  /** Separate messages before the first piece; none by default. */
  readonly opening?: string | readonly string[];
  /** Text before each piece. The piece itself is written as a JSON string. */
  readonly before: string;
  /** Text after each piece. */
  readonly after: string;
}

/** Options of {@link Generation.pipe}. */
export interface PipeOptions {
  /** The form of the messages. By default each piece is a message by itself. */
  readonly frame?: MessageFrame | undefined;
}

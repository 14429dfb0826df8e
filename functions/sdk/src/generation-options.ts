import type { AbortSignalLike } from './abort.ts';
import type { Constraint, DecodeMode } from './decoders.ts';
import type { Sampler } from './samplers.ts';
import type { Sequence } from './sequence.ts';
import type { Proposal, Speculator } from './speculation.ts';

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
  /** Ends the generation after the piece for which it answers true; pieces then come token by token, unless `decode` says otherwise. */
  readonly until?: (piece: Piece, generation: { readonly text: string; readonly tokens: readonly number[] }) => boolean;
  /** Go on past the model's own end-of-text tokens. */
  readonly ignoreEos?: boolean;
  /** How tokens are decoded: `ahead` for built-in samplers, `step` for custom ones and with a constraint, a window or `until`. */
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

/** New tokens and the text that they complete. Text lags behind them inside a character; inside what may become a stop string both wait. */
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

/** How messages with pieces of a text are written. */
export interface MessageFrame {
  /** A message of its own before the first piece; none by default. */
  readonly opening?: string;
  /** What stands in front of a piece, which is written as a JSON string. */
  readonly before: string;
  /** What stands behind it. */
  readonly after: string;
}

export interface PipeOptions {
  /** Each piece is a message as it is by default. */
  readonly frame?: MessageFrame | undefined;
}

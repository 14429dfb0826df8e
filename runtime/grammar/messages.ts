import type { Outcome } from '#gpu-host/protocol/errors.ts';
import type { MatchStatus } from '#wit/generated/host.ts';
import type { GrammarSource } from './translate/source.ts';
import type { Vocabulary } from './vocabulary.ts';

/** A request to a worker. The worker answers each request with a `Reply`, in order. */
export type Request =
  /** Sends a model's vocabulary. */
  | { readonly kind: 'vocabulary'; readonly vocabulary: Vocabulary }
  | { readonly kind: 'compile'; readonly grammar: number; readonly vocabulary: number; readonly source: GrammarSource }
  /** Opens a matcher at the place after `tokens`, which were accepted before. */
  | { readonly kind: 'open'; readonly matcher: number; readonly grammar: number; readonly tokens: Uint32Array }
  | { readonly kind: 'accept'; readonly matcher: number; readonly tokens: Uint32Array }
  | { readonly kind: 'mask'; readonly matcher: number }
  /** Asks for the mask and the masks after each of `guesses`, concatenated. Masks after a guess that does not fit allow every token. */
  | { readonly kind: 'masks'; readonly matcher: number; readonly guesses: Uint32Array }
  | { readonly kind: 'status'; readonly matcher: number }
  | { readonly kind: 'forced'; readonly matcher: number }
  | { readonly kind: 'rollback'; readonly matcher: number; readonly tokens: number }
  /** Forgets a grammar. */
  | { readonly kind: 'forget'; readonly grammar: number }
  /** Forgets a matcher. */
  | { readonly kind: 'close'; readonly matcher: number };

/** The forced text: the text that must come next. */
export interface Forced {
  /** UTF-8 of whole characters; empty where several texts may come next. */
  readonly bytes: Uint8Array;
  /** Offsets in `bytes`, ascending. A token that begins at such an offset may reach past the last byte. */
  readonly reaching: readonly number[];
}

export type Answer = boolean | Uint32Array<ArrayBuffer> | MatchStatus | Forced | undefined;

export type Reply = Outcome<Answer>;

/** A reply as sent by a worker. */
export interface SentReply {
  readonly reply: Reply;
  /** CPU time of the request. */
  readonly cpuMs: number;
}

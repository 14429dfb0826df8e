import {
  type Context,
  type FinishReason,
  type GenerateOptions,
  InferletError,
  type MessageFrame,
  map,
} from '@pie/inferlet';
import { attempt, runtime } from '@pie/inferlet/raw';
import { type Place, Places } from './logprobs.ts';
import { tokensLeft } from './request.ts';
import { type SamplingInput, samplerOf, type TokenLog } from './sampling.ts';

/** Options of one choice. */
export interface ChoiceOptions {
  readonly sampling: SamplingInput;
  /** Index among the request's choices. */
  readonly choice: number;
  /** Forces the generated text. */
  readonly reply?: string | undefined;
  /** True to parse special tokens in `reply`. */
  readonly special?: boolean | undefined;
  readonly stop: readonly string[];
  /** Number of alternatives per token whose log-probabilities are recorded; undefined records no log-probabilities at all. */
  readonly topLogprobs: number | undefined;
  /** Lets the platform send the text in this frame, so that `generate` emits none. Only without log-probabilities. */
  readonly frame?: MessageFrame | undefined;
}

/** A token's log entry and its place in the generated text. */
export type PlacedLog = TokenLog & Place;

/** A piece of text. `logs` has, if requested, the entries of the tokens that begin in the piece, and of tokens without text that follow it. */
export interface Piece {
  readonly text: string;
  readonly logs: readonly PlacedLog[];
}

/** A generation that has ended. */
export interface Generated {
  readonly text: string;
  readonly reason: FinishReason;
  /** Log entries of the generated tokens, without those of a final stop string and without a final stop token. */
  readonly logs: readonly PlacedLog[];
  /** The log entry of a final stop token, behind the text. */
  readonly ending: readonly PlacedLog[];
  /** Number of generated tokens, without those of a final stop string and without a final stop token. */
  readonly tokens: number;
  /** The ids of the tokens that `tokens` counts, then the id of a final stop token. */
  readonly ids: readonly number[];
  /** The stop string or token that ended the generation, if one did. */
  readonly stoppedBy: string | number | undefined;
}

/** Generates on a context and emits pieces. A generation cut off by the platform's limits ends as if the context were full. */
export async function generate(
  ctx: Context,
  { sampling, choice, reply, special, stop, topLogprobs, frame }: ChoiceOptions,
  options: Pick<GenerateOptions, 'constraint' | 'ignoreEos' | 'maxTokens' | 'stopTokens' | 'until'> & {
    readonly marker?: string;
  },
  emit: (piece: Piece) => Promise<void>,
): Promise<Generated> {
  const logs: TokenLog[] | undefined = topLogprobs === undefined ? undefined : [];
  const { marker, ...rest } = options;
  const maxTokens = Math.min(options.maxTokens ?? Number.POSITIVE_INFINITY, tokensLeft(ctx));
  const generation = ctx.generate({
    ...rest,
    maxTokens: Number.isFinite(maxTokens) ? maxTokens : undefined,
    stop: marker === undefined ? stop : [...stop, marker],
    sampler: samplerOf(sampling, { choice, reply, special }, logs, topLogprobs ?? 0),
  });
  using places = new Places(ctx.model.name, ctx.tokens);
  const placed: PlacedLog[] = [];
  let reported = 0;
  let shownLength = 0;
  let reason: FinishReason = 'stopped';
  try {
    if (frame) await generation.pipe({ frame });
    for await (const { text, tokens } of frame ? [] : generation.pieces()) {
      for (const [i, log] of logs?.splice(0, tokens.length).entries() ?? []) {
        placed.push({ ...log, ...places.next(tokens[i] ?? log.token) });
      }
      if (text === '') continue;
      shownLength += text.length;
      const from = reported;
      // Report the tokens of held-back text (a possible stop string) only when the text is released.
      while ((placed[reported]?.at ?? shownLength) < shownLength) reported++;
      await emit({ text, logs: placed.slice(from, reported) });
    }
    reason = generation.finishReason ?? reason;
  } catch (error) {
    if (!isLimit(error) || generation.tokens.length === 0) throw error;
    reason = 'context-length';
  }
  // The last tokens may have no text, such as special tokens.
  if (reported < placed.length) await emit({ text: '', logs: placed.slice(reported) });
  const { text, tokens, stoppedBy } = generation;
  const stopTokens = typeof stoppedBy === 'number' ? [stoppedBy] : [];
  const ending = logs?.slice(0, stopTokens.length).map((log) => ({ ...log, at: text.length, adds: '' })) ?? [];
  const ids = [...tokens, ...stopTokens];
  return { text, reason, logs: placed, ending, tokens: tokens.length, ids, stoppedBy };
}

/** True for an error that says that a generation has reached a limit of the platform. */
export const isLimit = (error: unknown): boolean => error instanceof InferletError && error.code === 'limit-exceeded';

/** A frame for messages with one piece of text each. `message` makes the message for a given text; the messages `opening` precede the first one. */
export function frameAround(message: (text: string) => object, opening: readonly object[] = []): MessageFrame {
  // Make a message with a placeholder for the text, and split it there.
  const placeholder = '\u0000';
  const [before = '', after = ''] = JSON.stringify(message(placeholder)).split(JSON.stringify(placeholder));
  return { before, after, opening: opening.map((first) => JSON.stringify(first)) };
}

/** The API's finish reason of a choice. */
export const finishOf = (reason: FinishReason): 'stop' | 'length' =>
  reason === 'max-tokens' || reason === 'context-length' ? 'length' : 'stop';

/** `stop` as a list. */
export const stopsOf = (stop: string | readonly string[] | undefined): readonly string[] =>
  typeof stop === 'string' ? [stop] : (stop ?? []);

/** Choices of one prompt that are generated at the same time. Together they take pages of memory, of which an invocation may hold a limited number. */
const CONCURRENT_CHOICES = 16;

/** Makes `n` choices for the prompt of a context, each on a fork that `choose` releases. The common prefix is computed once. */
export function choicesOf<T>(
  ctx: Context,
  n: number,
  choose: (fork: Context, index: number) => Promise<T>,
): Promise<T[]> {
  const indices = Array.from({ length: n }, (_, i) => i);
  return map(indices, async (i) => choose(n === 1 ? ctx : await ctx.fork(), i), { concurrency: CONCURRENT_CHOICES });
}

/** Tokens of a request: the tokens of its prompts and the generated tokens, calls and their frames included. */
export interface Usage {
  readonly prompt: number;
  readonly completion: number;
  /** The generated tokens that are thoughts with their marks. */
  readonly reasoning?: number;
}

/** `usage` of the chat and completions APIs. */
export const usageOf = ({ prompt, completion, reasoning }: Usage) => ({
  prompt_tokens: prompt,
  completion_tokens: completion,
  total_tokens: prompt + completion,
  prompt_tokens_details: { cached_tokens: Math.min(prompt, cachedTokens()) },
  ...(reasoning !== undefined && { completion_tokens_details: { reasoning_tokens: reasoning } }),
});

/** Tokens of this invocation that the platform's prefix cache supplied. */
export function cachedTokens(): number {
  const { cachedTokens } = JSON.parse(attempt(() => runtime.debugQuery('usage'))) as { cachedTokens: number };
  return cachedTokens;
}

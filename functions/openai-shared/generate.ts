import { type Context, type FinishReason, type GenerateOptions, InferletError } from '@pie/inferlet';
import { type SamplingInput, samplerOf, type TokenLog } from './sampling.ts';

/** How one choice is generated. */
export interface ChoiceOptions {
  readonly sampling: SamplingInput;
  /** Its index among the request's choices. */
  readonly choice: number;
  /** Forces what is said. */
  readonly reply?: string | undefined;
  readonly stop: readonly string[];
  /** Log-probabilities of so many alternatives to each token; undefined for none at all. */
  readonly topLogprobs: number | undefined;
}

/** Text as it comes, with the log-probabilities of the tokens that came with it (none unless asked for). */
export interface Piece {
  readonly text: string;
  readonly logs: readonly TokenLog[];
}

export type Emit = (piece: Piece) => Promise<void>;

/** A generation that has ended. */
export interface Generated {
  readonly text: string;
  readonly reason: FinishReason;
  readonly logs: readonly TokenLog[];
  readonly tokens: number;
}

/** Generates on a context and hands out pieces. What the platform's limits cut off ends as if the context were full. */
export async function generate(
  ctx: Context,
  { sampling, choice, reply, stop, topLogprobs }: ChoiceOptions,
  options: Pick<GenerateOptions, 'constraint' | 'maxTokens' | 'stopTokens'> & { readonly marker?: string },
  emit: Emit,
): Promise<Generated> {
  const logs: TokenLog[] | undefined = topLogprobs === undefined ? undefined : [];
  const { marker, ...rest } = options;
  const generation = ctx.generate({
    ...rest,
    stop: marker === undefined ? stop : [...stop, marker],
    sampler: samplerOf(sampling, { choice, reply }, logs, topLogprobs ?? 0),
  });
  let logged = 0;
  let reason: FinishReason = 'stopped';
  try {
    for await (const { text, tokens } of generation.pieces()) {
      const piece = { text, logs: logs?.slice(logged, logged + tokens.length) ?? [] };
      logged += tokens.length;
      if (text !== '' || piece.logs.length > 0) await emit(piece);
    }
    reason = generation.finishReason ?? reason;
  } catch (error) {
    const cut = error instanceof InferletError && error.code === 'limit-exceeded' && generation.tokens.length > 0;
    if (!cut) throw error;
    reason = 'context-length';
  }
  const { text, tokens } = generation;
  return { text, reason, logs: logs?.slice(0, tokens.length) ?? [], tokens: tokens.length };
}

/** The API's word for why a choice has ended. */
export const finishOf = (reason: FinishReason): 'stop' | 'length' =>
  reason === 'max-tokens' || reason === 'context-length' ? 'length' : 'stop';

/** `stop` as a list. */
export const stopsOf = (stop: string | readonly string[] | undefined): readonly string[] =>
  typeof stop === 'string' ? [stop] : (stop ?? []);

/** A context and its forks, one for each of `n` choices; what they share is computed once. */
export async function choicesOf(ctx: Context, n: number): Promise<Context[]> {
  return [ctx, ...(await Promise.all(Array.from({ length: n - 1 }, () => ctx.fork())))];
}

import { type ModelInfo, specialTokens, tokenizeContinuation } from '../context/models.ts';
import { InferletError } from '../errors.ts';
import { type GuestSampler, greedy, type Sampler } from './samplers.ts';

/**
 * Forces a generation to produce these tokens, or this text as a continuation, and then the end of the text. The model computes every token
 * as if it had chosen it (teacher forcing), so a program can be tried with a model that would not write the reply. `maxTokens`, stop
 * strings and constraints still apply; the reply must fit the constraint.
 *
 * @example
 * const { text } = await ctx.generate({ sampler: script('Paris.') }).collect();
 */
export const script = (reply: string | readonly number[]): GuestSampler => ({
  kind: 'guest',
  candidates: 1,
  seed: undefined,
  choose: failOutsideGenerate,
  begin(model) {
    const tokens = typeof reply === 'string' ? tokenizeContinuation(reply, { model: model.name }) : reply;
    const end = endOf(model);
    return { ...this, choose: (_, { generated }) => tokens[generated] ?? end };
  },
});

/**
 * Returns a function that gives each generation its sampler: the next scripted reply, or `otherwise` when no reply is left. With it, a
 * client can try out a program by passing replies in an input `script`.
 *
 * @example
 * const next = scripts(input.script, () => temperature(0.8));
 * const { text } = await ctx.generate({ sampler: next() }).collect();
 */
export function scripts(
  replies: readonly (string | readonly number[])[] = [],
  otherwise: () => Sampler = greedy,
): () => Sampler {
  let usedReplies = 0;
  return () => {
    const reply = replies[usedReplies++];
    return reply === undefined ? otherwise() : script(reply);
  };
}

const failOutsideGenerate = (): never => {
  throw new InferletError('invalid-argument', 'A script works only as the sampler of generate().');
};

function endOf({ name }: ModelInfo): number {
  const { eos, bos } = specialTokens(name);
  const end = eos[0] ?? bos;
  if (end !== undefined && end !== null) return end;
  throw new InferletError('unsupported', `${name} has no token that ends a text, so a script could not end.`);
}

import { InferletError } from './errors.ts';
import { type ModelInfo, specialTokens, tokenizeContinuation } from './models.ts';
import { type GuestSampler, greedy, type Sampler } from './samplers.ts';

/**
 * Forces what a generation says: these tokens, or those of this text as it goes on from other text, and then the end of the text. The model
 * computes every one of them as if it had chosen it (teacher forcing), so a program can be tried with a model that would not say it. A
 * `maxTokens`, a stop string or a constraint still holds; under a constraint, the text must fit it.
 *
 * @example
 * const { text } = await ctx.generate({ sampler: script('Paris.') }).collect();
 */
export const script = (reply: string | readonly number[]): GuestSampler => ({
  kind: 'guest',
  candidates: 1,
  seed: undefined,
  choose: unbegun,
  begin(model) {
    const tokens = typeof reply === 'string' ? tokenizeContinuation(reply, { model: model.name }) : reply;
    const end = endOf(model);
    return { ...this, choose: (_, { generated }) => tokens[generated] ?? end };
  },
});

/**
 * The samplers of a program's generations, in the order in which they are asked for: the next of the scripted replies, and `otherwise` when
 * there are none left. One line makes a program that its client can try out with an input `script`.
 *
 * @example
 * const next = scripts(input.script, () => temperature(0.8));
 * const { text } = await ctx.generate({ sampler: next() }).collect();
 */
export function scripts(
  replies: readonly (string | readonly number[])[] = [],
  otherwise: () => Sampler = greedy,
): () => Sampler {
  let given = 0;
  return () => {
    const reply = replies[given++];
    return reply === undefined ? otherwise() : script(reply);
  };
}

const unbegun = (): never => {
  throw new InferletError('invalid-argument', 'A script is for generate(); it cannot be asked on its own.');
};

function endOf({ name }: ModelInfo): number {
  const { eos, bos } = specialTokens(name);
  const end = eos[0] ?? bos;
  if (end !== undefined && end !== null) return end;
  throw new InferletError('unsupported', `${name} has no token that ends a text, so a script could not end.`);
}

import { Context, defineInferlet, SavedContext, unless } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly name: string;
  readonly prefix: string;
  readonly question: string;
  readonly maxTokens?: number;
  readonly keep?: boolean;
  readonly persistent?: boolean;
  readonly pinMs?: number;
  readonly model?: string;
}

/** Continues a prefix that only the first run computes. Later runs open the context that the first run saved. */
export const run = defineInferlet(async (input: Input) => {
  const { name, prefix, question, maxTokens = 64, keep = true, persistent, pinMs, model } = input;
  const saved = await unless('not-found', Context.open(name, { model }));
  if (!saved) {
    using fresh = new Context({ model });
    // `invalid-argument`: another run has saved the name meanwhile.
    await unless('invalid-argument', fresh.fill(prefix).save(name, { persistent }));
  }
  using ctx = saved ?? (await Context.open(name, { model }));
  const generation = ctx.fill(question).generate({ maxTokens });
  await generation.pipe();
  const pinned = pinMs && keep ? await new SavedContext(name, { model }).pin(pinMs) : undefined;
  if (!keep) await Context.remove(name, { model });
  return { ...(await generation.collect()), cached: saved !== undefined, pinned };
});

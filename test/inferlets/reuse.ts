/** Continues a prompt that consists of parts, for `pie bench prefix`. It saves the context after each part that has a name, and reuses it later. */
import { Context, defineInferlet, unless } from '@pie/inferlet';

interface Input {
  readonly model: string;
  readonly maxTokens: number;
  /** Parts of the prompt, in order. */
  readonly parts: readonly { readonly tokens: readonly number[]; readonly name?: string }[];
  /** Saves the prompt with its continuation under this name. */
  readonly keep?: string;
  /** Names to remove. If there are any, the inferlet does nothing else. */
  readonly forget?: readonly string[];
}

export const run = defineInferlet(async ({ model, maxTokens, parts, keep, forget = [] }: Input) => {
  for (const name of forget) await unless('not-found', Context.remove(name, { model }));
  if (forget.length > 0) return { tokens: [] };
  const { context, from } = await openLongest();
  using ctx = context;
  for (const { tokens, name } of parts.slice(from)) {
    ctx.fill(tokens);
    // `invalid-argument`: another inferlet has saved the name meanwhile.
    if (name !== undefined) await unless('invalid-argument', ctx.save(name));
  }
  const { tokens } = await ctx.generate({ maxTokens, ignoreEos: true }).collect();
  if (keep !== undefined) await ctx.save(keep);
  return { tokens };

  /** Opens the context of the longest saved beginning of the prompt. `from` is the number of parts in this context. */
  async function openLongest(): Promise<{ context: Context; from: number }> {
    for (let i = parts.length - 1; i >= 0; i--) {
      const name = parts[i]?.name;
      if (name === undefined) continue;
      const tokens = parts.slice(0, i + 1).flatMap((part) => part.tokens);
      const opened = await unless('not-found', Context.open(name, { model, tokens }));
      if (opened) return { context: opened, from: i + 1 };
    }
    return { context: new Context({ model, bos: false }), from: 0 };
  }
});

/** The agent of `pie bench stacked` as a program, with the optimisations that `on` names. */
import { Context, defineInferlet, fetch, tokenizeContinuation, unless } from '@pie/inferlet';
import {
  ARGUMENT_TOKENS,
  CALLS,
  CLOSE,
  complete,
  OPEN,
  type StackedInput,
  SYSTEM,
  THOUGHT_TOKENS,
  turnOf,
} from '../bench/agents/stacked-task.ts';
import { observed } from '../bench/agents/task.ts';

/** Name of the system prompt's saved context. */
const SAVED = 'stacked-agent/system';

export const run = defineInferlet(async ({ question, turns, model, tool, on }: StackedInput) => {
  const isOn = (step: StackedInput['on'][number]) => on.includes(step);
  const callTool = async (step: number): Promise<string> => {
    using response = await fetch(tool, { json: { step } });
    return await response.text();
  };
  const formatTokens = [OPEN, CLOSE].reduce((sum, text) => sum + tokenizeContinuation(text, { model }).length, 0);
  let ctx = isOn('shared') ? await openSystem(model) : new Context({ model }).fill(SYSTEM);
  ctx.fill(question);
  for (let turn = 0; turn < turns; turn++) {
    const calls: Promise<string>[] = [];
    const begin = (call: number) => calls.push(callTool(turn * CALLS + call));
    if (isOn('forced')) await writeForced(ctx, begin);
    else await writeFreely(ctx, formatTokens, isOn('early') ? begin : undefined);
    for (let call = calls.length; call < CALLS; call++) {
      begin(call);
      if (!isOn('concurrent')) await calls[call];
    }
    for (const answer of await Promise.all(calls)) ctx.fill(observed(answer));
    if (!isOn('keep')) ctx = withoutCache(ctx);
  }
  await ctx.generate({ maxTokens: THOUGHT_TOKENS, ignoreEos: true }).collect();
  return { tokens: ctx.tokens };
});

/** Lets the model write the whole turn. Calls `begin` for each tool call as soon as the text of this call is complete. */
async function writeFreely(ctx: Context, format: number, begin?: (call: number) => void): Promise<void> {
  let writtenTokens = 0;
  let begunCalls = 0;
  for await (const { tokens } of ctx.generate({ maxTokens: turnOf(format).whole, ignoreEos: true }).pieces()) {
    writtenTokens += tokens.length;
    if (!begin) continue;
    while (begunCalls < complete(writtenTokens, format)) {
      begin(begunCalls);
      begunCalls++;
    }
  }
}

/** Lets the model write only the thought and the arguments. The inferlet fills in the format around them, which is computed with the next token. */
async function writeForced(ctx: Context, begin: (call: number) => void): Promise<void> {
  await ctx.generate({ maxTokens: THOUGHT_TOKENS, ignoreEos: true }).collect();
  for (let call = 0; call < CALLS; call++) {
    ctx.fill(OPEN);
    await ctx.generate({ maxTokens: ARGUMENT_TOKENS, ignoreEos: true }).collect();
    ctx.fill(CLOSE);
    begin(call);
  }
}

/** A new context with the same tokens, none of them computed, as for the next request of a client without a cache. */
function withoutCache(ctx: Context): Context {
  const fresh = new Context({ model: ctx.model.name, bos: false }).fill(ctx.tokens);
  ctx.release();
  return fresh;
}

/** Opens the saved context of the system prompt. The first agent computes and saves it for all agents. */
async function openSystem(model: string): Promise<Context> {
  using ctx = new Context({ model }).fill(SYSTEM);
  const open = () => Context.open(SAVED, { model, tokens: ctx.tokens });
  const saved = await unless('not-found', open());
  if (saved) return saved;
  // `invalid-argument`: another agent has saved the name meanwhile.
  await unless('invalid-argument', ctx.save(SAVED));
  return await open();
}

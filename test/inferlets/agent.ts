/**
 * The agents of `pie bench agents` as programs. After each turn of the model but the last, an agent calls a tool, directly or from code.
 * The last turn is the answer.
 */
import { Context, defineInferlet, fetch, sandbox } from '@pie/inferlet';
import { CODE, observed, TURN_TOKENS } from '../bench/agents/task.ts';

interface Input {
  readonly pattern: 'react' | 'codeact';
  readonly question: string;
  readonly ios: number;
  readonly tool: string;
  readonly model: string;
}

export const run = defineInferlet(async ({ pattern, question, ios, tool, model }: Input) => {
  const callTool = async (step: number): Promise<string> => {
    using response = await fetch(tool, { json: { step } });
    return await response.text();
  };
  const execute = pattern === 'codeact' ? sandbox({ look: callTool }) : undefined;
  using ctx = new Context({ model });
  ctx.fill(question);
  for (let step = 0; step < ios; step++) {
    await ctx.generate({ maxTokens: TURN_TOKENS, ignoreEos: true }).collect();
    ctx.fill(execute ? `\n${await execute(CODE)}` : observed(await callTool(step)));
  }
  await ctx.generate({ maxTokens: TURN_TOKENS, ignoreEos: true }).collect();
  return { tokens: ctx.tokens };
});

import { Context, defineInferlet, fetch, react, script, sendJson, tool } from '@pie/inferlet';

/** Input, as the schema in pie.json defines it. */
interface Input {
  readonly question: string;
  /** Address of the weather service; pie.json must grant its host. */
  readonly service?: string;
  /** Scripted answers of the model, turn by turn, because a small model cannot reason. */
  readonly script?: readonly string[];
}

/** Reasons and acts in turns: the model calls tools over HTTP, reads their results, and goes on until it can answer the question. */
export const run = defineInferlet(async (input: Input) => {
  const { question, service = 'http://127.0.0.1:8080', script: replies } = input;
  const weather = tool({
    name: 'weather',
    description: 'The weather of a city today',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
    call: async ({ city }: { city: string }, { signal }) =>
      (await fetch(`${service}/weather?city=${encodeURIComponent(city)}`, { signal })).json(),
  });
  let turn = 0;
  const sampler = replies && (() => script(replies[turn++] ?? ''));
  using ctx = new Context();
  for await (const step of react(ctx, { question, tools: [weather], sampler, maxSteps: 6, maxTokens: 64 })) {
    const calls = step.calls.map(({ name, content }) => ({ name, content }));
    await sendJson({ thought: step.thought, calls });
    if (step.answer !== undefined) return { answer: step.answer, steps: step.index + 1 };
  }
  return { answer: null };
});

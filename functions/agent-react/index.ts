import {
  Context,
  chatModel,
  defineInferlet,
  fetch,
  type JsonSchema,
  react,
  scripts,
  sendJson,
  tool,
} from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly question: string;
  readonly tools: readonly { name: string; description?: string; parameters?: JsonSchema; url: string }[];
  readonly maxSteps?: number;
  readonly maxTokens?: number;
  readonly model?: string;
  readonly script?: readonly string[];
}

/** Alternates between thoughts and tool calls over HTTP until the model has an answer. Sends each complete step to the client. */
export const run = defineInferlet(async ({ question, tools, model, script, ...limits }: Input) => {
  const callable = tools.map(({ url, ...spec }) =>
    tool({
      ...spec,
      call: async (args, { signal }) => {
        using response = await fetch(url, { json: args, signal });
        if (!response.ok) throw new Error(`the tool answered ${response.status}.`);
        return await response.text();
      },
    }),
  );
  using ctx = new Context({ model: chatModel(model).name });
  const steps = [];
  for await (const step of react(ctx, { question, tools: callable, sampler: scripts(script), ...limits })) {
    await sendJson(step);
    steps.push(step);
  }
  return { answer: steps.at(-1)?.answer, steps: steps.length, tokens: ctx.length };
});

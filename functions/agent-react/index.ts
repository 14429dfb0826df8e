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

/** The function's input, as the schema in pie.json describes it. */
interface Input {
  readonly question: string;
  /** The tools that the model may call, each at its own address. */
  readonly tools: readonly { name: string; description?: string; parameters?: JsonSchema; url: string }[];
  readonly maxSteps?: number;
  readonly maxTokens?: number;
  readonly model?: string;
  /** Replies that the model is forced to write, one for each step; for tests and demonstrations. */
  readonly script?: readonly string[];
}

/**
 * An agent. In each step, the model thinks and may call tools, which the function calls over HTTP. A step without a call is the answer. The function
 * sends each complete step to the client.
 */
export const run = defineInferlet(async ({ question, tools, model, script, ...limits }: Input) => {
  const httpTools = tools.map(({ url, ...declaration }) =>
    tool({
      ...declaration,
      call: async (args, { signal }) => {
        using response = await fetch(url, { json: args, signal });
        if (!response.ok) throw new Error(`the tool answered ${response.status}.`);
        return await response.text();
      },
    }),
  );
  using ctx = new Context({ model: chatModel(model).name });
  const steps = [];
  for await (const step of react(ctx, { question, tools: httpTools, sampler: scripts(script), ...limits })) {
    await sendJson(step);
    steps.push(step);
  }
  return { answer: steps.at(-1)?.answer, steps: steps.length, tokens: ctx.length };
});

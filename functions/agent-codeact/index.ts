import {
  Context,
  chatModel,
  defineInferlet,
  dialectOf,
  fetch,
  react,
  sandbox,
  scripts,
  sendJson,
  tool,
} from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly task: string;
  readonly functions?: readonly { name: string; description?: string; url: string }[];
  readonly maxSteps?: number;
  readonly maxTokens?: number;
  readonly model?: string;
  readonly script?: readonly string[];
}

const RULES = `Solve the task. Act by writing one \`\`\`js block; it runs, and you see what it prints with console.log.
Keep values in \`state\`. Answer without code when you are done.`;

/** The model acts by writing JavaScript, which runs inside this inferlet. The inferlet sends each step to the client when the step is complete. */
export const run = defineInferlet(async ({ task, functions = [], model, script, ...limits }: Input) => {
  const callables = functions.map(({ name, url }) => [name, (...args: unknown[]) => post(url, args)] as const);
  const execute = sandbox(Object.fromEntries(callables));
  const javascript = tool<{ code: string }>({ name: 'javascript', call: ({ code }) => execute(code) });
  const list = functions.map(({ name, description = '' }) => `- await ${name}(…) ${description}`);
  const system = [RULES, 'Functions:', ...list].join('\n');
  using ctx = new Context({ model: chatModel(model).name });
  const dialect = { ...dialectOf(ctx.model.name), format: 'code' } as const;
  const options = { question: task, system, tools: [javascript], dialect, sampler: scripts(script), ...limits };
  const answers = [];
  for await (const { thought, calls, answer } of react(ctx, options)) {
    await sendJson({ thought, output: calls.map(({ content }) => content), answer });
    answers.push(answer);
  }
  return { answer: answers.at(-1), steps: answers.length, tokens: ctx.length };
});

async function post(url: string, args: unknown): Promise<unknown> {
  using response = await fetch(url, { json: args });
  if (!response.ok) throw new Error(`the function answered ${response.status}.`);
  return await response.json();
}

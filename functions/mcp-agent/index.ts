import {
  appendOutcomes,
  beginTask,
  Context,
  chatModel,
  defineInferlet,
  dialectOf,
  InferletError,
  jsonSchema,
  scripts,
  sendJson,
} from '@pie/inferlet';
import { McpClient, replySchema } from './mcp.ts';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly url: string;
  readonly task: string;
  readonly minCalls?: number;
  readonly maxSteps?: number;
  readonly maxTokens?: number;
  readonly model?: string;
  readonly script?: readonly string[];
}

/** A reply of the model; the grammar allows no other form. */
type Reply = { readonly tool: string; readonly arguments: unknown } | { readonly answer: string };

/** Calls the tools of an MCP server until the model has an answer. A grammar made of the tools' schemas admits valid calls only. */
export const run = defineInferlet(
  async ({ url, task, model, script, minCalls = 0, maxSteps = 8, maxTokens = 256 }: Input) => {
    await using server = await McpClient.connect(url);
    const tools = await server.tools();
    if (tools.length === 0) throw new InferletError('unsupported', `The MCP server at ${url} offers no tools.`);
    const callOnly = jsonSchema(replySchema(tools, { mayAnswer: false }));
    const callOrAnswer = jsonSchema(replySchema(tools, { mayAnswer: true }));
    const next = scripts(script);
    using ctx = new Context({ model: chatModel(model).name });
    const dialect = dialectOf(ctx.model.name);
    const list = tools.map(
      ({ name, description = '', inputSchema }) =>
        `${name}: ${description} ${JSON.stringify(inputSchema.properties ?? {})}`,
    );
    const system = `Reply with {"tool": …, "arguments": …} or {"answer": …}. Tools:\n${list.join('\n')}`;
    beginTask(ctx, { question: task, system }, [], dialect);
    for (let step = 1; step <= maxSteps; step++) {
      const constraint = step <= minCalls ? callOnly : callOrAnswer;
      const { text, finishReason } = await ctx.generate({ constraint, maxTokens, sampler: next() }).collect();
      if (finishReason !== 'constraint')
        throw new InferletError(
          'limit-exceeded',
          finishReason === 'max-tokens'
            ? 'A reply was cut off: allow more (maxTokens).'
            : `A reply was cut off (${finishReason}).`,
        );
      const reply = JSON.parse(text) as Reply;
      if ('answer' in reply) return { answer: reply.answer, steps: step, tokens: ctx.length };
      const { content, isError } = await server.call(reply.tool, reply.arguments);
      await sendJson({ ...reply, content, isError });
      const outcome = { name: reply.tool, arguments: reply.arguments, source: text, ok: !isError, content };
      appendOutcomes(ctx, [outcome], dialect);
    }
    throw new InferletError('limit-exceeded', `There is no answer after ${maxSteps} steps: allow more (maxSteps).`);
  },
);

import {
  Context,
  chatModel,
  defineInferlet,
  entropy,
  fetch,
  InferletError,
  type JsonSchema,
  mask,
  scripts,
  send,
  ToolRunner,
  tool,
  toolSignature,
  unless,
} from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly task: string;
  readonly apis: readonly {
    name: string;
    description?: string;
    parameters?: JsonSchema;
    url: string;
    once?: boolean;
  }[];
  readonly reuse?: boolean;
  readonly eager?: boolean;
  readonly forget?: boolean;
  readonly discard?: boolean;
  readonly maxRounds?: number;
  readonly maxTokens?: number;
  readonly model?: string;
  readonly script?: readonly string[];
}

/** Function calling with three optimisations, each of which can be switched off: see ../INFERLETS.md. */
export const run = defineInferlet(async ({ task, apis, model, script, ...input }: Input) => {
  const { reuse = true, eager = true, forget = true, maxRounds = 8, maxTokens = 256 } = input;
  const startMs = Date.now();
  const next = scripts(script);
  const tools = apis.map(({ url, once = false, ...spec }) => {
    const called = tool({ ...spec, call: (args) => post(url, args) });
    return { ...called, once, line: `- ${toolSignature(called)}\n` };
  });
  const frequentLines = tools.filter(({ once }) => !once).map(({ line }) => line);
  const head = `Call functions as name(arguments). Functions:\n${frequentLines.join('')}`;
  const name = `function-calling/${hash(head)}`;
  using ctx = await begin(head, name, chatModel(model).name, reuse);
  const specTokens = ctx.length;
  /** The tokens of each specification that is marked `once`, from its first token to the one behind its last. */
  const ranges = new Map<string, readonly [number, number]>();
  for (const { name, once, line } of tools) {
    if (once) ranges.set(name, [ctx.length, ctx.fill(line).length]);
  }
  ctx.fill(`\nTask: ${task}\nCalls:`);
  const calls: { name: string; ok: boolean; content: string; firedAt: number; generated: number }[] = [];
  let hidden = 0;
  for (let round = 0; round < maxRounds; round++) {
    const runner = new ToolRunner(tools);
    const generation = ctx.generate({ maxTokens, sampler: next() });
    const firedAt: number[] = [];
    /** Sends the calls that `text` completes, and notes the number of tokens decoded so far for each. */
    const take = (text: string) => {
      for (const _ of runner.push(text)) firedAt.push(generation.tokens.length);
    };
    for await (const text of generation) {
      if (eager) take(text);
      await send(text);
    }
    if (!eager) take(generation.text);
    const generated = generation.tokens.length;
    const outcomes = await runner.outcomes();
    calls.push(
      ...outcomes.map(({ name, ok, content }, i) => ({ name, ok, content, firedAt: firedAt[i] ?? 0, generated })),
    );
    if (outcomes.length === 0) {
      if (input.discard) await unless('not-found', Context.remove(name, { model: ctx.model.name }));
      const measures = { specTokens, hidden, entropy: await entropy(ctx), wallMs: Date.now() - startMs };
      return { answer: runner.plain, calls, tokens: ctx.length, ...measures };
    }
    ctx.fill(`\n${outcomes.map(({ name, content }) => `${name}: ${content}\n`).join('')}Answer:`);
    for (const { name } of forget ? outcomes : []) {
      const range = ranges.get(name);
      if (!range) continue;
      ranges.delete(name);
      const [from, to] = range;
      await mask(ctx, from, to);
      hidden += to - from;
    }
  }
  throw new InferletError('limit-exceeded', `There is no answer after ${maxRounds} rounds: allow more (maxRounds).`);
});

/** A context that holds `head`: opened from an earlier invocation's export, or computed here and exported for the next invocation. */
async function begin(head: string, name: string, model: string, reuse: boolean): Promise<Context> {
  const opened = reuse ? await unless('not-found', Context.open(name, { model })) : undefined;
  if (opened) return opened;
  const ctx = new Context({ model }).fill(head);
  // `invalid-argument`: another invocation has saved the name meanwhile.
  if (reuse) await unless('invalid-argument', ctx.save(name, { persistent: true }));
  return ctx;
}

async function post(url: string, args: unknown): Promise<string> {
  using response = await fetch(url, { json: args });
  if (!response.ok) throw new Error(`the tool answered ${response.status}.`);
  return await response.text();
}

/** 64 bits of a text: two FNV-1a hashes. */
function hash(text: string): string {
  const fnv = (seed: number) => {
    let bits = seed;
    for (let i = 0; i < text.length; i++) bits = Math.imul(bits ^ text.charCodeAt(i), 0x01000193);
    return (bits >>> 0).toString(16).padStart(8, '0');
  };
  return fnv(0x811c9dc5) + fnv(0x050c5d1f);
}

import { Context, defineInferlet, InferletError, KvFile, tokenizeContinuation, unless } from '@pie/inferlet';

/** Modules, each computed once at its own position after `system`; `use` names the modules that form the prompt. */
export interface Library {
  readonly name: string;
  readonly system: string;
  readonly modules: Readonly<Record<string, string>>;
  readonly use: readonly string[];
  readonly model?: string;
}

/** The input that the schema in pie.json accepts. */
type Input = Library & { readonly question: string; readonly maxTokens?: number; readonly keep?: boolean };

/** Answers a question over modules. Earlier runs may have computed the modules; this run then computes the question only. */
export const run = defineInferlet(async (input: Input) => {
  const { name, question, maxTokens = 64, keep = true, model } = input;
  const { composed, made } = await compose(input);
  using ctx = composed;
  const generation = ctx.fill(question).generate({ maxTokens });
  await generation.pipe();
  const removed = keep ? [] : await KvFile.list(`${name}/`, { model });
  await Promise.all(removed.map((file) => KvFile.remove(file.name, { model })));
  return { ...(await generation.collect()), made };
});

/** Returns a context over the modules of `use`, at their own positions, on shared pages. Computes and saves modules that no earlier run has saved. */
export async function compose({ name, system, modules, use, model }: Library) {
  const unknown = use.find((module) => !Object.hasOwn(modules, module));
  if (unknown !== undefined) throw new InferletError('invalid-argument', `"modules" has no module "${unknown}".`);
  const made: string[] = [];
  async function open(part: string, make: () => Promise<KvFile>): Promise<KvFile> {
    const saved = await unless('not-found', KvFile.open(`${name}/${part}`, { model }));
    if (saved) return saved;
    const file = await make();
    // `invalid-argument`: another run has saved the name meanwhile.
    await unless('invalid-argument', file.save(`${name}/${part}`, { rights: 'readable' }));
    made.push(part);
    return file;
  }

  const first = await open('system', async () => {
    using ctx = new Context({ model });
    const file = await KvFile.create({ model });
    await file.predict(ctx.fill(system).tokens);
    return file;
  });
  const files = [first];
  let end = first.length;
  for (const [module, text] of Object.entries(modules)) {
    const tokens = tokenizeContinuation(text, { model });
    const positions = tokens.map(() => end++);
    if (!use.includes(module)) continue;
    const make = async () => {
      using whole = await first.fork();
      await whole.predict(tokens, { positions });
      return await whole.extract(tokens.map((_, i) => first.length + i));
    };
    files.push(await open(`module/${module}`, make));
  }
  // Leave the files open: the platform frees their pages when the run ends.
  return { composed: await Context.over(files, { model }), made };
}

import { Context, defineInferlet, store, unless } from '@pie/inferlet';
import { emptyTree, evict, insert, nameOf, savedBelow, type TreeNode } from './tree.ts';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly name?: string;
  readonly prompts: readonly string[];
  readonly maxTokens?: number;
  readonly capacity?: number;
  readonly model?: string;
}

/** Completes prompts in parallel. Reuses every prefix that another prompt of this run or an earlier run has computed. */
export const run = defineInferlet(async (input: Input) => {
  const { name = 'default', prompts, maxTokens = 32, capacity = 4096, model } = input;
  using root = new Context({ model });
  const key = `prefix-tree/${root.model.name}/${name}`;
  const tree = (await store.getJson<TreeNode>(key)) ?? emptyTree();
  const clock = tree.used + 1;
  const texts = prompts.map((prompt) => tokensOf(prompt, model));
  const ends = texts.map((tokens) => insert(tree, tokens, clock));
  const usedChildren = ({ children }: TreeNode) => children.filter(({ used }) => used === clock);

  /** Computes a node's edge unless it is saved, completes the prompts that end at the node, then visits its children. */
  async function visit(node: TreeNode, parent: Context, before: readonly number[]): Promise<void> {
    const path = [...before, ...node.edge];
    const opened = await reopen(path, savedBelow(node));
    using ctx = opened ?? (await parent.fork()).fill(node.edge);
    await ctx.flush();
    const isSaved = opened !== undefined && node.saved;
    // `invalid-argument`: another run has saved the name meanwhile.
    if (ends.includes(node) && !isSaved) await unless('invalid-argument', ctx.save(nameOf(name, path)));
    const answers = ends.map((end, i) => end === node && complete(ctx, i));
    await Promise.all([...answers, ...usedChildren(node).map((child) => visit(child, ctx, path))]);
  }

  /** The context of `path`, cut from the saved text `path` + `rest`; undefined when no such text is saved. */
  async function reopen(path: readonly number[], rest: readonly number[] | undefined): Promise<Context | undefined> {
    if (!rest) return undefined;
    const tokens = [...path, ...rest];
    const ctx = await unless('not-found', Context.open(nameOf(name, tokens), { tokens, model }));
    return ctx?.truncate(path.length);
  }

  const completions: { text: string; tokens: readonly number[] }[] = [];
  async function complete(ctx: Context, index: number): Promise<void> {
    using fork = await ctx.fork();
    const { text, tokens } = await fork.generate({ maxTokens }).collect();
    completions[index] = { text, tokens };
  }

  await Promise.all(usedChildren(tree).map((node) => visit(node, root, [])));
  let evicted: number[][] = [];
  await store.update<TreeNode>(key, (current = emptyTree()) => {
    for (const tokens of texts) insert(current, tokens, current.used + 1).saved = true;
    evicted = evict(current, capacity);
    return current;
  });
  for (const tokens of evicted) await unless('not-found', Context.remove(nameOf(name, tokens), { model }));
  return { completions, evicted: evicted.length };
});

function tokensOf(prompt: string, model: string | undefined): readonly number[] {
  using ctx = new Context({ model });
  return ctx.fill(prompt).tokens;
}

import { InferletError } from '../errors.ts';
import { allocate, attempt, inputText, outputText } from '../raw.ts';
import type { Context } from './context.ts';
import { tokenizeContinuation } from './models.ts';
import type { Sequence } from './sequence.ts';
import { childrenOf, type Trie, treeMask, trieOf } from './trie.ts';

/** Options for comparing choices. */
export interface SelectOptions {
  /** Compare the average over a choice's tokens, so that long choices have no disadvantage; false by default. */
  readonly normalize?: boolean;
}

/** The result of a selection. */
export interface Selection {
  /** The most probable choice. */
  readonly choice: string;
  readonly index: number;
  /** Natural logarithm of each choice's probability, in the order of the choices; with `normalize`, the average over the choice's tokens. */
  readonly logProbabilities: readonly number[];
}

/**
 * Selects the most probable of several texts, by the probability of each whole text (teacher forcing). One pass over the tree of their
 * tokens computes all texts, and each common prefix once (as in SpecInfer, Miao et al., 2024). Leaves the context unchanged.
 *
 * @example
 * const { choice } = await select(ctx.fill('The sky is'), [' blue', ' green', ' loud']);
 */
export const select = (context: Context, choices: readonly string[], options: SelectOptions = {}): Promise<Selection> =>
  context.select(choices, options);

/** @internal {@link select} on a sequence. */
export async function selectOn(
  sequence: Sequence,
  choices: readonly string[],
  { normalize = false }: SelectOptions,
): Promise<Selection> {
  const lists = choices.map((choice) => tokenizeContinuation(choice, { model: sequence.model.name }));
  if (lists.length === 0) throw new InferletError('invalid-argument', 'There is nothing to choose from.');
  const empty = lists.findIndex((tokens) => tokens.length === 0);
  if (empty >= 0) throw new InferletError('invalid-argument', `Choice ${empty} is empty.`);
  const trie = trieOf(lists);
  const nodeScores = await tokenScores(sequence, trie);
  const logProbabilities = trie.paths.map((path) => {
    const sum = path.reduce((total, node) => total + (nodeScores[node] as number), 0);
    return normalize ? sum / path.length : sum;
  });
  const index = logProbabilities.indexOf(Math.max(...logProbabilities));
  return { choice: choices[index] as string, index, logProbabilities };
}

/** Log-probability of each node's token after the context and the node's ancestors. Takes one pass, and caches no node. */
async function tokenScores(sequence: Sequence, { tokens, parents, depths }: Trie): Promise<number[]> {
  const { queue, cache } = sequence;
  sequence.checkRoom(depths.reduce((deepest, depth) => Math.max(deepest, depth), 0));
  // The pass computes the nodes with children, because a node's state gives the probabilities of its children. It leaves out the leaves.
  // Node -1, the root, is the first key of `children`; its token is the last token of the context.
  const children = childrenOf(parents);
  const inner = [...children.keys()].slice(1);
  const rows = new Map([...children.keys()].map((node, row) => [node, row]));
  const rowOf = (node: number): number => rows.get(node) as number;
  // The root is row 0 of the pass, and `inner[i]` is row i + 1. `treeMask` takes i for `inner[i]`, and -1 for the root.
  const parentRows = inner.map((node) => rowOf(parents[node] as number) - 1);

  // `prefill` computes all pending tokens but the last. If none is pending, `firstPending(true)` makes the last token pending again.
  // Either way, `start` is the index of the last token, and `last` is its position.
  const prefill = sequence.prefill();
  const start = sequence.firstPending(true);
  const count = inner.length + 1;
  const embeds = attempt(() => allocate.allocateEmbeds(queue, 2 * count));
  const inputs = embeds.slice(0, count);
  const states = embeds.slice(count);
  const last = sequence.base + start;
  inputText.embedText(
    queue,
    [sequence.tokens[start] as number, ...inner.map((node) => tokens[node] as number)],
    [last, ...inner.map((node) => last + (depths[node] as number))],
    inputs,
  );
  sequence.pass(cache.access(0).inPages, inputs, [], states, treeMask(cache.filled, parentRows));
  const scores: number[] = [];
  const requests = [...children].map(async ([parent, nodes]) => {
    const candidates = Uint32Array.from(nodes, (node) => tokens[node] as number);
    const answers = await sequence.settle(
      outputText.logProbabilities(queue, states[rowOf(parent)] as number, candidates),
    );
    for (const [i, node] of nodes.entries()) scores[node] = answers[i] as number;
  });
  // The queue frees the embeds after the calls above have read them, since it keeps their order.
  allocate.freeEmbeds(queue, embeds);
  await Promise.all([prefill, ...requests]);
  return scores;
}

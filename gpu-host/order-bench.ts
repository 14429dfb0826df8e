import { parseArgs } from 'node:util';
import { Random } from '#test/harness/random.ts';
import { must, range, startTestHost } from './testing/host.ts';

/**
 * Shows how the order of prompts affects the hit rate of the prefix cache: `node gpu-host/order-bench.ts`.
 *
 * A tiny model serves a known trace three times:
 *
 * - `first come`: in a random order of arrival;
 * - `sorted within`: in that order, but depth first within each window of as many prompts as wait at once (a scheduler that prefers the longest
 *   shared prefix among the waiting prompts can do no better);
 * - `depth first`: depth first over the whole trace, which is the offline optimum (Zheng et al., SGLang, section 3 and theorem 3.1).
 *
 * A hit rate is the share of looked-up tokens that the cache had. The table has the median of the rounds.
 */

const PAGE_TOKENS = 8;
const DECODED_TOKENS = 4;
const SEED = 7;

/** One prompt. Its index in the trace is its place in the depth-first order. */
interface Prompt {
  readonly tokens: readonly number[];
  /** Index of the prompt that must be answered first. */
  readonly after?: number;
}

const tokensOf = (dice: Random, count: number): number[] => Array.from({ length: count }, () => 3 + dice.below(90));

/** 12 tasks with examples of 64 tokens, 12 questions each. */
function fewShot(dice: Random): Prompt[] {
  return Array.from({ length: 12 }, () => tokensOf(dice, 64)).flatMap((examples) =>
    Array.from({ length: 12 }, () => ({ tokens: [...examples, ...tokensOf(dice, 8)] })),
  );
}

/** Four trees of thoughts, three levels deep. */
function treeSearch(dice: Random): Prompt[] {
  const grow = (text: readonly number[], level: number): Prompt[] => {
    const children = Array.from({ length: level === 2 ? 4 : 3 }, () => [...text, ...tokensOf(dice, 16)]);
    return level === 2 ? children.map((tokens) => ({ tokens })) : children.flatMap((child) => grow(child, level + 1));
  };
  return Array.from({ length: 4 }, () => grow(tokensOf(dice, 24), 0)).flat();
}

/** 24 conversations of six turns; each turn arrives after the answer to the previous one. */
function chats(dice: Random): Prompt[] {
  const prompts: Prompt[] = [];
  for (let chat = 0; chat < 24; chat++) {
    let tokens = tokensOf(dice, 8);
    for (let turn = 0; turn < 6; turn++) {
      tokens = [...tokens, ...tokensOf(dice, 12)];
      prompts.push({ tokens, ...(turn > 0 && { after: prompts.length - 1 }) });
    }
  }
  return prompts;
}

/** Serves the prompts in the order of the indices `order`, `atOnce` at a time. Returns the hit rate of the prefix cache. */
async function serve(
  prompts: readonly Prompt[],
  order: readonly number[],
  atOnce: number,
  pageCount: number,
): Promise<number> {
  const swap = { swapMemoryBytes: 1 << 20, swapDiskBytes: 1 << 24 };
  await using host = await startTestHost({ pageCount, pageSize: PAGE_TOKENS, backend: 'onnx', kv: true, model: swap });
  const connection = await host.connect();
  const answeredPrompts = new Set<number>();
  const waitingIndices = [...order];
  let progress = Promise.withResolvers<void>();
  const run = async (index: number, tokens: readonly number[]): Promise<void> => {
    const inferlet = connection.openInferlet({
      id: `${index}`,
      maxPages: pageCount,
      arrival: order.indexOf(index) + 1,
    });
    const queue = inferlet.createQueue('tiny');
    const pages = must(inferlet.allocatePages(queue, Math.ceil((tokens.length + DECODED_TOKENS) / PAGE_TOKENS)));
    const step = async (inputs: readonly number[], from: number): Promise<void> => {
      const positions = range(from, from + inputs.length);
      const request = { tokens: Uint32Array.from(inputs), positions, inPages: pages, outPages: pages, mask: undefined };
      must(
        await inferlet.ask(queue, {
          op: 'step',
          request: { ...request, rows: 1, output: { tag: 'distributions', val: 1 } },
        }),
      );
    };
    await step(tokens, 0);
    for (let i = 0; i < DECODED_TOKENS; i++) await step([5], tokens.length + i);
    await inferlet.close();
    answeredPrompts.add(index);
    progress.resolve();
    progress = Promise.withResolvers();
  };
  const client = async (): Promise<void> => {
    while (waitingIndices.length > 0) {
      const nextIndex = waitingIndices.findIndex((index) => {
        const after = prompts[index]?.after;
        return after === undefined || answeredPrompts.has(after);
      });
      if (nextIndex < 0) {
        await progress.promise;
        continue;
      }
      const [index = 0] = waitingIndices.splice(nextIndex, 1);
      await run(index, prompts[index]?.tokens ?? []);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, client));
  const { hitTokens = 0, missTokens = 0 } = host.host.stats().models[0]?.prefix ?? {};
  return hitTokens / (hitTokens + missTokens);
}

/** Sorts each window of the order; ascending indices are depth first. */
const sortedWithin = (order: readonly number[], window: number): number[] =>
  order.flatMap((_, i) => (i % window === 0 ? order.slice(i, i + window).sort((a, b) => a - b) : []));

const median = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;

const { values } = parseArgs({ options: { rounds: { type: 'string', default: '3' } } });
const dice = new Random(SEED);
console.log('trace        at once  pages  first come  sorted within  depth first  first/depth  sorted/depth');
for (const [name, prompts] of [
  ['few-shot', fewShot(dice)],
  ['tree search', treeSearch(dice)],
  ['chats', chats(dice)],
] as const) {
  for (const [atOnce, pages] of [
    [16, 160],
    [16, 240],
    [48, 160],
    [48, 320],
    [48, 480],
  ] as const) {
    const rates: [number[], number[], number[]] = [[], [], []];
    for (let round = 0; round < Number(values.rounds); round++) {
      const order = dice.shuffled([...prompts.keys()]);
      rates[0].push(await serve(prompts, order, atOnce, pages));
      rates[1].push(await serve(prompts, sortedWithin(order, atOnce), atOnce, pages));
      rates[2].push(await serve(prompts, [...prompts.keys()], atOnce, pages));
    }
    const [first, sorted, depth] = rates.map(median) as [number, number, number];
    const cells = [
      `${atOnce}`,
      `${pages}`,
      ...[first, sorted, depth, first / depth, sorted / depth].map((n) => n.toFixed(2)),
    ];
    const widths = [7, 5, 10, 13, 11, 11, 12];
    console.log([name.padEnd(11), ...cells.map((cell, i) => cell.padStart(widths[i] ?? 0))].join('  '));
  }
}

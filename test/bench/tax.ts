import { deploy } from '#test/harness/deploy.ts';
import { newHome, Platform } from '#test/harness/platform.ts';
import type { Bench } from './bench.ts';
import { BareBackend, measureOverBare, type OverBare } from './over-bare.ts';
import { randomShape, type Shape } from './shapes.ts';
import { format, formatSpread } from './statistics.ts';

const CONTEXT = 32;
const STEPS = 64;
const QUICK_STEPS = 24;
const SIZES: readonly Shape[] = ['15M', '135M', '360M'];
const QUICK_SIZES: readonly Shape[] = ['135M'];
/** Enough pages for eight contexts beside some cached prefixes. */
const PAGES = 96;

/** Time per output token that the platform adds to the bare loop, by the size of the model. */
export const tax: Bench = {
  name: 'tax',
  summary: 'time per output token over the bare loop for models of 15M, 135M and 360M parameters',
  help: `1 and 8 inferlets decode ${STEPS} tokens on models of 15M, 135M and 360M parameters with random weights (Pie, SOSP '25, Tables 3
and 4), by one step a token and by a run on the device. The baseline is the same backend called back to back in the benchmark's own process, at
the same batch and context. Both run in each round and take turns in going first; an extra first round warms up both.`,
  quick: `${QUICK_SIZES.length} of ${SIZES.length} models, ${QUICK_SIZES.join(' and ')} parameters, and ${QUICK_STEPS} tokens instead of ${STEPS}. \`generate\` has one of 15M.`,
  async run({ repetitions, quick, progress }) {
    const [sizes, steps] = quick ? [QUICK_SIZES, QUICK_STEPS] : [SIZES, STEPS];
    const models: { readonly shape: Shape; readonly rows: readonly OverBare[] }[] = [];
    for (const shape of sizes) {
      const rows = await measure(shape, steps, repetitions, (line) => progress(`${shape}, ${line}`));
      models.push({ shape, rows });
    }
    return {
      title: `Time per output token of the platform over the bare loop, context ${CONTEXT} to ${CONTEXT + steps}`,
      header: ['parameters', 'way', 'clients', 'ms a token', 'bare step ms', 'ratio', 'tax ms', 'mean batch'],
      rows: models.flatMap(({ shape, rows }) =>
        rows.map((row) => [
          shape,
          row.way,
          String(row.clients),
          formatSpread(row.perToken),
          formatSpread(row.bare),
          formatSpread(row.ratio),
          formatSpread(row.tax),
          format(row.batch.median, 1),
        ]),
      ),
      notes: [
        'Random weights in 32 bits in the shapes of stories15M and SmolLM2; a step takes the time of the real model. fused: one step a token. run-ahead: decoded on the device.',
        `ms a token: from the first start signal to the last token, by the inferlets' clocks, over ${steps} steps. The signals go out one after another, and that time counts. Ratio and tax are taken within the round.`,
        'The guest, the runtime and the GPU host share the cores with the engine, which has them to itself in the bare loop.',
        "The paper's own figure is an overhead of 3 to 12 % over existing systems, with models of 1B to 8B parameters on one GPU.",
      ],
      data: models,
    };
  },
};

async function measure(
  shape: Shape,
  steps: number,
  rounds: number,
  progress: (line: string) => void,
): Promise<OverBare[]> {
  const home = await newHome();
  const directory = await randomShape(home, shape);
  const config = `[[model]]\nname = "random"\nsource = "file:${directory}"\npages = ${PAGES}\nbits = 32\n`;
  await using platform = await Platform.start({ home, functions: false, config });
  await deploy(platform, 'decode');
  await using bare = await BareBackend.open(platform);
  const ways = ['fused', 'run-ahead'] as const;
  return await measureOverBare(platform, bare, { ways, clients: [1, 8], context: CONTEXT, steps, rounds, progress });
}

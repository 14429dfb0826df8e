/**
 * `node gpu-host/backends/cuda/card/fixtures.ts OUT [--small] [--stories]`: writes the reference's results for random models of all shapes
 * and masks into OUT, for `cuda-harness check OUT`. `--stories` adds greedy tokens of stories15M; the emulation runs `--small` in seconds.
 */
import { copyFile, mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import fc from 'fast-check';
import type { LoadedAdapter } from '#gpu-host/models/adapter.ts';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import { type LoadedModel, loadModel } from '#gpu-host/models/load.ts';
import { pullModel } from '#gpu-host/models/pull.ts';
import { type RandomAdapterOptions, randomAdapter, randomModel } from '#gpu-host/models/testing/random-model.ts';
import type { DeviceAdapter, Draw, SequenceInput } from '../../backend.ts';
import { createReferenceBackend } from '../../reference/index.ts';
import { handlerValues } from '../../testing/handlers.ts';
import { MASK_KINDS, type Scenario, take } from '../../testing/mask-kinds.ts';
import { narrowModel, VARIANTS } from '../../testing/models.ts';
import { batches, RANDOM_POOL, randomSteps } from '../../testing/random-batch.ts';
import { Random, range, sequence } from '../../testing/scenario.ts';
import { FixtureWriter } from './fixture-writer.ts';
import { Recorder } from './recorder.ts';

/** Shapes that the fast kernels support: heads of 64 or 128, and widths that are multiples of 64. */
const FAST: Readonly<Record<string, Partial<ModelConfig>>> = {
  'heads of 64': { hiddenSize: 128, intermediateSize: 256, heads: 4, kvHeads: 2, headDim: 64, vocabularySize: 160 },
  'heads of 128': { hiddenSize: 192, intermediateSize: 320, heads: 4, kvHeads: 1, headDim: 128, vocabularySize: 257 },
  'heads of 64 alone, tied': {
    hiddenSize: 128,
    intermediateSize: 192,
    heads: 2,
    kvHeads: 2,
    headDim: 64,
    tiedEmbeddings: true,
  },
  'heads of 64, Qwen 2': { family: 'qwen2', hiddenSize: 128, intermediateSize: 192, heads: 8, kvHeads: 1, headDim: 64 },
  'heads of 128, Qwen 3': {
    family: 'qwen3',
    hiddenSize: 128,
    intermediateSize: 256,
    heads: 3,
    kvHeads: 1,
    headDim: 128,
    layers: 3,
  },
};
const ADAPTERS: Readonly<Record<string, RandomAdapterOptions>> = {
  'adapter of every projection': { rank: 3 },
  'adapter of some': { rank: 16, alpha: 3, rslora: true, targets: ['q_proj', 'v_proj', 'gate_proj', 'down_proj'] },
};
const WITH_ADAPTERS = ['grouped queries', 'heads of 64', 'heads of 128, Qwen 3'];
/** Models with `--small`: one for the plain kernels, one for the fast kernels. */
const SMALL_MODELS = ['Qwen 3', 'heads of 64'];
/** Kinds of mask with `--small`, which cover each operation of a fixture except `greedy`. */
const SMALL_KINDS = [
  'causal',
  'attention sink with shifted copy',
  'read after write in one batch',
  'page moved out and in',
];
/** Batch sizes of one-row sequences, around the sizes where kernels change. */
const DECODE_BATCHES = [1, 2, 3, 7, 8, 9, 16, 17, 31, 33, 64, 65];
/** Tokens of a context so long that the kernels split it over blocks. */
const LONG_CONTEXT = 520;
/** Number of tokens that all sequences of a group share. */
const SHARED = 330;
/** Number of further tokens that some of them share. */
const SHARED_BY_SOME = 200;
const PROMPTS = [[1], [1, 9038, 2501, 263, 931], [1, 450, 4266, 471, 1407]];
/** The first tokens that stories15M decodes greedily. llama2.c decodes the same ones. */
const STORY = [9038, 2501, 263, 931, 29892, 727, 471, 263, 2217, 7826, 4257, 365];
const STORY_TOKENS = 24;
/** Least lead of a greedy token over the next best, nats. Rounding to bf16 changes log-probabilities by some hundredths. */
const LEAST_MARGIN = 0.1;
/** Factor on the projections of `randomModel`, whose standard deviation is 1.5 / √inputs. */
const MILD = 2 / 3;
const SEED = 61;

await main();

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { small: { type: 'boolean', default: false }, stories: { type: 'boolean', default: false } },
  });
  const [folder] = positionals;
  if (folder === undefined || positionals.length !== 1)
    throw new RangeError('Usage: fixtures.ts OUT [--small] [--stories]');
  await mkdir(folder, { recursive: true });
  const scratch = await mkdtemp(join(tmpdir(), 'pie-fixtures-'));
  try {
    const shapes = Object.entries({ ...VARIANTS, ...FAST }).filter(
      ([name]) => !values.small || SMALL_MODELS.includes(name),
    );
    for (const [i, [name, shape]] of shapes.entries()) {
      await writeModel(name, shape, SEED + i, folder, await mkdtemp(join(scratch, 'm-')), values.small);
    }
    if (values.stories) await writeStories(folder, await mkdtemp(join(scratch, 'm-')));
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/** Writes one fixture of one shape, and its weights beside it. */
async function writeModel(
  name: string,
  shape: Partial<ModelConfig>,
  seed: number,
  folder: string,
  scratch: string,
  isSmall: boolean,
): Promise<void> {
  const model = await narrowModel(
    withMildProjections(await randomModel(join(scratch, 'wide'), shape, seed)),
    join(scratch, 'narrow'),
    'BF16',
  );
  const isFast = name in FAST;
  const reference = await createReferenceBackend(
    model,
    isFast && !isSmall ? { pageSize: 16, pageCount: 80 } : RANDOM_POOL,
  );
  const adapters = new Map<DeviceAdapter, LoadedAdapter>();
  const namedAdapters: [string, DeviceAdapter][] = [];
  if (WITH_ADAPTERS.includes(name)) {
    for (const [adapterName, options] of Object.entries(ADAPTERS)) {
      const loaded = await randomAdapter(join(scratch, adapterName), model.config, seed, options);
      const onDevice = await reference.loadAdapter(loaded);
      adapters.set(onDevice, loaded);
      namedAdapters.push([adapterName, onDevice]);
    }
  }
  const { out, weights } = await open(name, folder, model);
  const recorder = Recorder.begin(name, model, weights, reference, out, adapters);
  for (const [kind, scenarioOf] of Object.entries(MASK_KINDS)) {
    if (isSmall && !SMALL_KINDS.includes(kind)) continue;
    recorder.case(kind);
    await handlerValues(recorder, scenarioOf(model.config, new Random(seed)), seed);
  }
  for (const [i, each] of fc.sample(batches, { seed: 42, numRuns: isSmall ? 2 : 10 }).entries()) {
    recorder.case(`random batch ${i + 1}`);
    await take(recorder, randomSteps(model.config, each));
  }
  for (const [adapterName, adapter] of namedAdapters) {
    recorder.case(adapterName);
    for (const kind of isSmall ? ['causal'] : ['causal', 'tree draft', 'read after write in one batch']) {
      const scenario = MASK_KINDS[kind]?.(model.config, new Random(seed));
      if (scenario) await recordWithAdapters(recorder, scenario, () => adapter);
    }
  }
  if (namedAdapters.length > 0) await recordMixedAdapters(recorder, [undefined, ...adapters.keys()], seed, isSmall);
  recorder.case('fewer tokens, and draws');
  await recordDraws(recorder, seed);
  if (isFast) await recordSharedPrefixes(recorder, seed);
  if (isFast && !isSmall) await recordLargeCases(recorder, seed);
  else await recordDecodeBatches(recorder, seed, [1, 5]);
  out.close();
  process.stderr.write(`${name}: ${(out.bytes / 1e6).toFixed(1)} MB\n`);
}

/**
 * Scales projections to two thirds, so that a layer's output is about as large as its input, as in trained models. With `randomModel`'s own
 * projections, bf16's rounding error grows in every layer: rounding only the inputs of products costs 0.5 to 1 % after two layers.
 */
function withMildProjections(model: LoadedModel): LoadedModel {
  const { tensors } = model;
  const read = (name: string) => {
    const values = tensors.read(name);
    return name.includes('_proj.weight') ? values.map((value) => value * MILD) : values;
  };
  return { ...model, tensors: { has: tensors.has, info: tensors.info, read } };
}

async function writeStories(folder: string, scratch: string): Promise<void> {
  const { directory } = await pullModel('stories15m');
  const model = await narrowModel(await loadModel(directory), scratch, 'BF16');
  const reference = await createReferenceBackend(model, { pageSize: 16, pageCount: 8 });
  const { out, weights } = await open('stories15M', folder, model);
  const recorder = Recorder.begin('stories15M', model, weights, reference, out);
  recorder.case('a story');
  const story = Uint32Array.of(1, ...STORY);
  await recorder.forward([
    sequence(model.config, story, { output: { kind: 'states', rows: story.length } }),
    sequence(model.config, story, { output: { kind: 'top', rows: 2, topK: 40 } }),
  ]);
  recorder.case('greedy');
  for (const prompt of PROMPTS) {
    const { tokens, margins } = await recorder.greedy(Uint32Array.from(prompt), STORY_TOKENS, LEAST_MARGIN);
    process.stderr.write(`stories15M: ${tokens.join(' ')}; closest ${Math.min(...margins).toFixed(3)} nats\n`);
    if (prompt.length === 1 && STORY.some((token, i) => tokens[i] !== token))
      throw new Error('The tokens of the reference differ from those of llama2.c.');
  }
  out.close();
}

/** Begins a fixture, and copies its weights into the folder of fixtures. */
async function open(
  name: string,
  folder: string,
  model: LoadedModel,
): Promise<{ out: FixtureWriter; weights: string }> {
  const base = name.toLowerCase().replace(/[^a-z0-9]+/g, '-');
  const weights = `${base}.safetensors`;
  await copyFile(join(model.directory, 'model.safetensors'), join(folder, `${weights}.part`));
  await rename(join(folder, `${weights}.part`), join(folder, weights));
  return { out: new FixtureWriter(join(folder, `${base}.fixture`)), weights };
}

/** Records a scenario whose sequences have adapters: states and distributions of every input. */
async function recordWithAdapters(
  recorder: Recorder,
  { before, batch }: Scenario,
  adapterOf: (sequence: number) => DeviceAdapter | undefined,
): Promise<void> {
  const withAdapter = (each: SequenceInput, i: number): SequenceInput => {
    const adapter = adapterOf(i);
    return adapter ? { ...each, adapter } : each;
  };
  await take(
    recorder,
    before.map((step) => (step.kind === 'forward' ? { ...step, batch: step.batch.map(withAdapter) } : step)),
  );
  const topK = recorder.config.vocabularySize;
  await recorder.forward(
    batch.map((each, i) =>
      withAdapter({ ...each, output: { kind: 'top', rows: each.positions.length, topK, states: true } }, i),
    ),
  );
}

/** Records batches in which sequences have different adapters, or none: decodes, and prompts with more rows than the kernels compute at once. */
async function recordMixedAdapters(
  recorder: Recorder,
  adapters: readonly (DeviceAdapter | undefined)[],
  seed: number,
  isSmall: boolean,
): Promise<void> {
  const { config } = recorder;
  const random = new Random(seed + 3);
  for (const [kind, rows] of Object.entries({
    'decode batch': isSmall ? 5 : 21,
    'prompts and decodes': isSmall ? 4 : 9,
  })) {
    recorder.case(`different adapters, ${kind}`);
    const batch = Array.from({ length: rows }, (_, i) =>
      sequence(config, random.tokens(config, kind === 'decode batch' ? 1 : 1 + ((i * 11) % 23))),
    );
    await recordWithAdapters(recorder, { before: [], batch }, () => adapters[random.below(adapters.length)]);
  }
}

/** Records rows that ask for a few tokens: without probabilities, drawn, or with fewer allowed tokens than the row asks for. */
async function recordDraws(recorder: Recorder, seed: number): Promise<void> {
  const { config } = recorder;
  const random = new Random(seed);
  const draws = (count: number): Draw[] =>
    Array.from({ length: count }, (_, i) => ({
      temperature: [0, 0.7, 1, 1.5][random.below(4)] as number,
      topK: 0,
      topP: [1, 0.9, 0.5][random.below(3)] as number,
      minP: [0, 0.05][random.below(2)] as number,
      seed: random.below(2 ** 32),
      position: 100 + i,
    }));
  const make = (rows: number, topK: number, rest: object = {}) =>
    sequence(config, random.tokens(config, rows), { output: { kind: 'top', rows, topK, ...rest } });
  const allowed = new Uint32Array(2 * Math.ceil(config.vocabularySize / 32)).fill(0);
  allowed[0] = 0b1011_0000;
  allowed[Math.ceil(config.vocabularySize / 32) + 1] = 1;
  await recorder.forward(
    [
      make(3, 1),
      make(4, 5),
      make(2, 1, { tokensOnly: true }),
      make(2, 20, { allowed }),
      make(6, 40),
      make(1, config.vocabularySize),
    ],
    [[], draws(4), [], draws(2), draws(6), draws(1)],
  );
}

/** Records batches of one-row sequences over contexts of unlike lengths. */
async function recordDecodeBatches(recorder: Recorder, seed: number, sizes: readonly number[]): Promise<void> {
  const { config } = recorder;
  const random = new Random(seed);
  const sharedSlots = range(0, 40);
  recorder.case('decode batches');
  await recorder.forward([
    sequence(config, random.tokens(config, 40), { writes: sharedSlots, output: { kind: 'none' } }),
  ]);
  for (const size of sizes) {
    recorder.case(`decode of ${size}`);
    await recorder.forward(
      Array.from({ length: size }, (_, i) =>
        sequence(config, random.tokens(config, 1), {
          context: sharedSlots.subarray(0, 1 + ((7 * i) % 40)),
          writes: range(64 + i, 65 + i),
          output: { kind: 'top', rows: 1, topK: config.vocabularySize, states: true },
        }),
      ),
    );
  }
}

/** Records a decode batch whose sequences begin with the same slots, except one. Some of them share further slots. */
async function recordSharedPrefixes(recorder: Recorder, seed: number): Promise<void> {
  const { config } = recorder;
  const random = new Random(seed + 2);
  const slots = random.permutation(recorder.pageSize * recorder.pageCount);
  const sharedByAll = slots.slice(0, SHARED);
  const sharedBySome = slots.slice(0, SHARED + SHARED_BY_SOME);
  recorder.case('shared prefixes');
  await recorder.forward([
    sequence(config, random.tokens(config, SHARED), { writes: sharedByAll, output: { kind: 'none' } }),
  ]);
  await recorder.forward([
    sequence(config, random.tokens(config, SHARED_BY_SOME), {
      context: sharedByAll,
      writes: sharedBySome.slice(SHARED),
      output: { kind: 'none' },
    }),
  ]);
  const contexts = [
    sharedBySome,
    sharedByAll,
    slots.slice(1, 100),
    sharedByAll,
    sharedBySome,
    sharedBySome,
    sharedByAll,
    sharedBySome,
  ];
  await recorder.forward(
    contexts.map((context, i) =>
      sequence(config, random.tokens(config, 1), {
        context,
        writes: slots.slice(600 + i, 601 + i),
        output: { kind: 'top', rows: 1, topK: config.vocabularySize, states: true },
      }),
    ),
  );
}

/** Records cases that only large sizes reach: many rows, long contexts, long masks. */
async function recordLargeCases(recorder: Recorder, seed: number): Promise<void> {
  await recordDecodeBatches(recorder, seed, DECODE_BATCHES);
  const { config } = recorder;
  const random = new Random(seed + 1);
  const slots = random.permutation(recorder.pageSize * recorder.pageCount);
  const context = slots.slice(0, LONG_CONTEXT);
  const states = (rows: number): Pick<SequenceInput, 'output'> => ({ output: { kind: 'states', rows } });
  recorder.case('prefill of many rows');
  await recorder.forward([
    sequence(config, random.tokens(config, 300), { writes: context.slice(0, 300), ...states(7) }),
    sequence(config, random.tokens(config, LONG_CONTEXT - 300), {
      context: context.slice(0, 300),
      writes: context.slice(300),
      ...states(3),
    }),
  ]);
  recorder.case('long contexts');
  const mask = Uint8Array.from({ length: 3 * (LONG_CONTEXT + 3) }, () => (random.next() < 0.3 ? 1 : 0));
  await recorder.forward([
    sequence(config, random.tokens(config, 1), { context, ...states(1) }),
    sequence(config, random.tokens(config, 17), { context: context.slice(0, 400), ...states(17), attention: true }),
    sequence(config, random.tokens(config, 3), { context, mask, ...states(3) }),
    sequence(config, random.tokens(config, 1), { context: context.slice(100, 357), ...states(1) }),
    sequence(config, random.tokens(config, 70), { ...states(70) }),
  ]);
}

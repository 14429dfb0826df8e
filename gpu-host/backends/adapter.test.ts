import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { type RandomAdapterOptions, randomAdapter, randomModel } from '../models/testing/random-model.ts';
import type { Backend, DeviceAdapter, SequenceInput } from './backend.ts';
import { InvalidInput } from './check.ts';
import { createGgmlBackend } from './ggml/index.ts';
import { createOnnxBackend } from './onnx/index.ts';
import { BLOCK_SIZE } from './onnx/weights.ts';
import { createReferenceBackend } from './reference/index.ts';
import { createTestCudaBackend } from './testing/cuda.ts';
import { dequantizedModel } from './testing/dequantize.ts';
import { MASK_KINDS, MASK_POOL, type Scenario, take } from './testing/mask-kinds.ts';
import { mergedModel } from './testing/merged-model.ts';
import { VARIANTS } from './testing/models.ts';
import { Random, relativeError, run, sequence, values, wholeVocabulary } from './testing/scenario.ts';

/** Largest relative error between two float32 computations of the same values. */
const TOLERANCE = 1e-4;
/** Largest relative error of the reference with an adapter, against the same reference with merged weights. */
const EXACT = 1e-5;
/** Largest relative error with quantised weights: when the two sides round an input to different levels, later results differ, too. */
const ROUNDED_APART = 1;

const ADAPTERS: Readonly<Record<string, RandomAdapterOptions>> = {
  'every projection, rank 3': { rank: 3 },
  'queries and values, rank 2, scaled by the root': { rank: 2, alpha: 3, rslora: true, targets: ['q_proj', 'v_proj'] },
  'the feed-forward part, rank 1': { rank: 1, targets: ['gate_proj', 'down_proj'] },
};

describe('low-rank adapters', () => {
  let directory: string;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-adapters-'));
  });
  after(() => rm(directory, { recursive: true, force: true }));

  const make = async (variant: string, options: RandomAdapterOptions, seed = 5) => {
    const at = await mkdtemp(join(directory, 'm-'));
    const model = await randomModel(join(at, 'model'), VARIANTS[variant] ?? {}, 41);
    return { at, model, adapter: await randomAdapter(join(at, 'adapter'), model.config, seed, options) };
  };

  for (const variant of ['grouped queries', 'Qwen 2', 'Qwen 3']) {
    for (const [name, options] of Object.entries(ADAPTERS)) {
      test(`${variant}, ${name}: computes the same as a model with merged weights, over every kind of mask`, async (context) => {
        const { at, model, adapter } = await make(variant, options);
        const merged = await mergedModel(model, adapter.directory, join(at, 'merged'));
        await using backends = await open(model, merged);
        const { reference, oracle } = backends;
        const devices = [backends.onnx, backends.cuda, backends.ggml];
        const referenceAdapter = await reference.loadAdapter(adapter);
        const loaded = new Map<Backend, DeviceAdapter>();
        for (const device of devices) loaded.set(device, await device.loadAdapter(adapter));
        let adapterEffect = 0;
        const worst = new Map<string, number>();
        for (const [kind, scenarioOf] of Object.entries(MASK_KINDS)) {
          const scenario = outputScenarios(scenarioOf(model.config, new Random(31)), model);
          const expected = await outputNumbers(oracle, scenario);
          const exact = relativeError(await outputNumbers(reference, scenario, referenceAdapter), expected);
          assert.ok(exact <= EXACT, `reference, ${kind}: ${exact}`);
          for (const device of devices) {
            const error = relativeError(await outputNumbers(device, scenario, loaded.get(device)), expected);
            assert.ok(error <= TOLERANCE, `${device.name}, ${kind}: ${error}`);
            worst.set(device.name, Math.max(worst.get(device.name) ?? 0, error));
          }
          adapterEffect = Math.max(
            adapterEffect,
            relativeError(await outputNumbers(backends.onnx, scenario), expected),
          );
        }
        assert.ok(adapterEffect > 0.05, `the adapter hardly changes anything: ${adapterEffect}`);
        const errors = [...worst].map(([name, error]) => `${name} ${error.toExponential(1)}`);
        context.diagnostic(`largest relative errors: ${errors}; without the adapter ${adapterEffect}`);
      });
    }
  }

  for (const bits of [8, 4] as const) {
    test(`${bits} bits: the weights stay quantised, the low-rank part is not rounded`, async (context) => {
      const { at, model, adapter } = await make('grouped queries', { rank: 3 });
      const onnx = await createOnnxBackend(model, { ...MASK_POOL, bits, threads: 1, cacheDirectory: at });
      const oracle = await createReferenceBackend(await dequantizedModel(model, bits, bits, at), {
        ...MASK_POOL,
        roundedBlock: BLOCK_SIZE,
      });
      try {
        const [onnxAdapter, oracleAdapter] = [await onnx.loadAdapter(adapter), await oracle.loadAdapter(adapter)];
        const errors: number[] = [];
        for (const [kind, scenarioOf] of Object.entries(MASK_KINDS)) {
          const scenario = outputScenarios(scenarioOf(model.config, new Random(31)), model);
          const expected = await outputNumbers(oracle, scenario, oracleAdapter);
          const error = relativeError(await outputNumbers(onnx, scenario, onnxAdapter), expected);
          assert.ok(error <= ROUNDED_APART, `${kind}: ${error}`);
          errors.push(error);
        }
        const median = errors.toSorted((a, b) => a - b)[errors.length >> 1];
        context.diagnostic(`median relative error ${median.toExponential(1)}`);
        // The rounding of other processors' kernels is unknown.
        if (process.arch === 'x64') assert.ok(median <= TOLERANCE, `median ${median}`);
      } finally {
        await onnx.dispose();
      }
    });
  }

  const DEVICES: Readonly<Record<string, (model: LoadedModel) => Promise<Backend>>> = {
    onnx: (model) => createOnnxBackend(model, { ...MASK_POOL, bits: 32, threads: 1, adapters: true }),
    cuda: (model) => createTestCudaBackend(model, MASK_POOL),
    ggml: (model) => createGgmlBackend(model, { ...MASK_POOL, bits: 32, threads: 1 }),
  };
  for (const [name, create] of Object.entries(DEVICES)) {
    test(`${name}: steps with different adapters and without any can alternate`, async () => {
      const { at, model, adapter } = await make('grouped queries', { rank: 3 });
      const other = await randomAdapter(join(at, 'other'), model.config, 6, { rank: 1, targets: ['k_proj', 'o_proj'] });
      const device = await create(model);
      const prompt = sequence(model.config, new Random(3).tokens(model.config, 12), wantsStates(12));
      try {
        const outputs: Float32Array[] = [];
        for (const each of [adapter, undefined, other, adapter, undefined]) {
          const loaded = each && (await device.loadAdapter(each));
          outputs.push((await run(device, { ...prompt, ...(loaded ? { adapter: loaded } : {}) }))[0]);
          loaded?.release?.();
        }
        const [first, plain, second, again, plainAgain] = outputs;
        assert.deepEqual(again, first);
        assert.deepEqual(plainAgain, plain);
        for (const [a, b] of [
          [first, plain],
          [second, plain],
          [first, second],
        ])
          assert.ok(relativeError(a, b) > 0.05);
      } finally {
        await device.dispose();
      }
    });

    test(`${name}: loading an adapter yields the thread between two projections`, async () => {
      const { model, adapter } = await make('grouped queries', { rank: 1 });
      const device = await create(model);
      let turns = 0;
      const count = () => {
        turns++;
        timer = setImmediate(count);
      };
      let timer = setImmediate(count);
      try {
        await device.loadAdapter(adapter);
        const projections = 7 * model.config.layers;
        assert.ok(turns >= projections, `${turns} turns for ${projections} projections`);
      } finally {
        clearImmediate(timer);
        await device.dispose();
      }
    });
  }

  for (const graphs of ['direct', 'from a graph'] as const) {
    test(`cuda, ${graphs}: sequences of one batch have different adapters, or none`, async (context) => {
      const { at, model, adapter } = await make('Qwen 3', { rank: 3 });
      const others = [
        await randomAdapter(join(at, 'wide'), model.config, 6, {
          rank: 20,
          targets: ['q_proj', 'k_proj', 'o_proj', 'up_proj'],
        }),
        await randomAdapter(join(at, 'narrow'), model.config, 7, { rank: 1, targets: ['v_proj', 'down_proj'] }),
      ];
      const device = await createTestCudaBackend(model, MASK_POOL);
      try {
        const oracles = [await createReferenceBackend(model, MASK_POOL)];
        const loaded: (DeviceAdapter | undefined)[] = [undefined];
        for (const [i, each] of [adapter, ...others].entries()) {
          loaded.push(await device.loadAdapter(each));
          const merged = await mergedModel(model, each.directory, join(at, `merged-${i}`));
          oracles.push(await createReferenceBackend(merged, MASK_POOL));
        }
        const random = new Random(8);
        let worst = 0;
        for (let round = 0; round < (graphs === 'direct' ? 2 : 6); round++) {
          const batch = Array.from({ length: 7 }, (_, i) => {
            // More than 128 rows are never replayed from a graph.
            const rows = graphs === 'direct' ? 11 + ((i * 13 + round) % 31) : 1;
            const { config } = model;
            return {
              adapter: (i + round * (i % 3)) % loaded.length,
              call: sequence(config, random.tokens(config, rows), {
                output: { ...wholeVocabulary(config, rows), states: true },
              }),
            };
          });
          const outputs = await device.forward(
            batch.map(({ adapter, call }) => ({ ...call, ...(loaded[adapter] && { adapter: loaded[adapter] }) })),
          );
          for (const [i, { adapter, call }] of batch.entries()) {
            const [expected] = await oracles[adapter]!.forward([call]);
            const error = relativeError(Float32Array.from(values(outputs[i]!)), Float32Array.from(values(expected!)));
            assert.ok(error <= TOLERANCE, `sequence ${i} of round ${round}: ${error}`);
            worst = Math.max(worst, error);
          }
        }
        assert.equal(device.graphs?.().captured, graphs === 'direct' ? 0 : 2);
        context.diagnostic(`largest relative error ${worst.toExponential(1)}`);
      } finally {
        await device.dispose();
      }
    });
  }

  test('forward refuses an adapter of another backend, attention with an adapter and, on ONNX and ggml, a batch with different adapters', async () => {
    const { model, adapter } = await make('grouped queries', { rank: 1 });
    await using backends = await open(model, model);
    const { reference, onnx, cuda, ggml } = backends;
    const plain = sequence(model.config, Uint32Array.of(1, 2));
    for (const [backend, stranger] of [
      [reference, onnx],
      [onnx, reference],
      [cuda, onnx],
      [ggml, onnx],
    ] as const) {
      const loaded = await backend.loadAdapter(adapter);
      const assertRefused = (text: RegExp, ...batch: SequenceInput[]) =>
        assert.rejects(backend.forward(batch), (error) => error instanceof InvalidInput && text.test(error.message));
      if (backend === onnx || backend === ggml)
        await assertRefused(/different adapters/, { ...plain, adapter: loaded }, plain);
      await assertRefused(/another backend/, { ...plain, adapter: await stranger.loadAdapter(adapter) });
      await assertRefused(/[Aa]ttention/, { ...plain, adapter: loaded, attention: true });
    }
  });
});

async function open(model: LoadedModel, merged: LoadedModel) {
  const reference = await createReferenceBackend(model, MASK_POOL);
  const onnx = await createOnnxBackend(model, { ...MASK_POOL, bits: 32, threads: 1 });
  const cuda = await createTestCudaBackend(model, MASK_POOL);
  const ggml = await createGgmlBackend(model, { ...MASK_POOL, bits: 32, threads: 1 });
  const oracle = await createReferenceBackend(merged, MASK_POOL);
  const close = async () => {
    await onnx.dispose();
    await cuda.dispose();
    await ggml.dispose();
  };
  return { reference, onnx, cuda, ggml, oracle, [Symbol.asyncDispose]: close };
}

function wantsStates(rows: number): Pick<SequenceInput, 'output'> {
  return { output: { kind: 'states', rows } };
}

/** Two scenarios from one: the first requests the states of the batch, the second its distributions. */
function outputScenarios({ before: steps, batch }: Scenario, { config }: LoadedModel): Scenario[] {
  return [
    { before: steps, batch: batch.map((each) => ({ ...each, ...wantsStates(each.positions.length) })) },
    {
      before: [],
      batch: batch.map((each) => ({ ...each, output: wholeVocabulary(config, each.positions.length) })),
    },
  ];
}

/** Runs the scenarios, and returns all numbers of their outputs in a fixed order. */
async function outputNumbers(
  backend: Backend,
  scenarios: readonly Scenario[],
  adapter?: DeviceAdapter,
): Promise<Float32Array> {
  const adapted = (batch: readonly SequenceInput[]) => (adapter ? batch.map((each) => ({ ...each, adapter })) : batch);
  const parts: number[] = [];
  for (const { before: steps, batch } of scenarios) {
    await take(
      backend,
      steps.map((step) => (step.kind === 'forward' ? { ...step, batch: adapted(step.batch) } : step)),
    );
    for (const output of await backend.forward(adapted(batch))) parts.push(...values(output));
  }
  return Float32Array.from(parts);
}

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { randomAdapter, randomModel } from '../../models/testing/random-model.ts';
import type { Backend } from '../backend.ts';
import { InvalidInput } from '../check.ts';
import { createTestCudaBackend, testAddon } from '../testing/cuda.ts';
import { Random, range, relativeError, run, sequence, values, wholeVocabulary } from '../testing/scenario.ts';
import { MAX_TOP_K } from '../testing/whole-rows.ts';
import { type CudaAddon, CudaError, type EngineHandle, type EngineOptions, fromAddon, loadAddon } from './addon.ts';
import { BatchWords, readResults } from './batch-words.ts';
import { engineTraits } from './engine-traits.ts';
import { createCudaBackend, Deadline } from './index.ts';
import { tensorPlaces } from './weights.ts';

const POOL = { pageSize: 16, pageCount: 8 };

let directory: string;
let model: LoadedModel;
let file: string;
let addon: CudaAddon;
before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'pie-addon-'));
  model = await randomModel(join(directory, 'model'), {}, 7);
  file = await testAddon();
  addon = loadAddon(file);
});
after(() => rm(directory, { recursive: true, force: true }));

const optionsOf = ({ config }: LoadedModel): EngineOptions => ({
  hidden: config.hiddenSize,
  intermediate: config.intermediateSize,
  layers: config.layers,
  heads: config.heads,
  kvHeads: config.kvHeads,
  headDim: config.headDim,
  vocabulary: config.vocabularySize,
  rmsEpsilon: config.rmsNormEpsilon,
  tiedEmbeddings: config.tiedEmbeddings,
  attentionBias: config.attentionBias,
  queryKeyNorm: config.queryKeyNorm,
  ...engineTraits(config),
  device: 0,
  ...POOL,
  maxRows: 64,
  maxSequences: 16,
  scratchSlots: 64,
  memoryBytes: 0,
  reserveBytes: 0,
  precision: 'float32',
  kv: 'as computed',
  graphs: true,
  dependentLaunch: true,
  sharedPrefixes: true,
  cublas: true,
});

/** Runs a test with an engine of its own. */
function withEngine(body: (engine: EngineHandle) => void | Promise<void>) {
  return async () => {
    const engine = new addon.Engine(optionsOf(model), tensorPlaces(model));
    try {
      await body(engine);
    } finally {
      engine.dispose();
    }
  };
}

const invalid = (text: RegExp) => (error: unknown) =>
  error instanceof Error && 'code' in error && error.code === 'invalid' && text.test(error.message);

describe('the addon', () => {
  const words = (tokens: number, inputs = 3): Uint32Array =>
    new BatchWords(model.config).write([
      sequence(model.config, new Random(tokens).tokens(model.config, inputs), {
        output: wholeVocabulary(model.config),
      }),
    ]);

  test(
    'invalid arguments are refused with a code and have no effect',
    withEngine(async (engine) => {
      const { Engine } = addon;
      const assertOptionRefused = (changed: object, text: RegExp) =>
        assert.throws(() => new Engine({ ...optionsOf(model), ...changed }, tensorPlaces(model)), invalid(text));
      assertOptionRefused({ hidden: 0 }, /hidden is 0/);
      assertOptionRefused({ layers: 1.5 }, /layers is 1.5/);
      assertOptionRefused({ heads: 'four' }, /heads is not a number/);
      assertOptionRefused({ graphs: undefined }, /graphs is neither/);
      assertOptionRefused({ dependentLaunch: undefined }, /dependentLaunch is neither/);
      assertOptionRefused({ sharedPrefixes: undefined }, /sharedPrefixes is neither/);
      assertOptionRefused({ precision: 'int3' }, /precision is "int3"/);
      assertOptionRefused({ kv: 'int3' }, /kv is "int3"/);
      assertOptionRefused({ kv: 'fp8' }, /require bf16 activations/);
      assertOptionRefused({ frequencies: new Float64Array(3) }, /3 frequencies where 4/);
      assertOptionRefused({ frequencies: [1, 2, 3, 4] }, /another type/);
      const [first, ...others] = tensorPlaces(model);
      const tensors = (...places: object[]) => new Engine(optionsOf(model), places as typeof others);
      assert.throws(() => tensors(...others), invalid(/model\.embed_tokens\.weight/));
      assert.throws(() => tensors({ ...first, type: 'I8' }, ...others), invalid(/I8/));
      assert.throws(() => tensors({ ...first, offset: 2 ** 40 }, ...others), invalid(/ends within/));
      assert.throws(() => tensors({ ...first, file: '/proc/nowhere' }, ...others), invalid(/nowhere: No such file/));
      assert.throws(() => tensors({ ...first, file: directory }, ...others), invalid(/not a regular one/));
      assert.throws(() => Reflect.construct(Engine, []), TypeError);
      assert.throws(() => Reflect.apply(engine.submit, {}, [words(1)]), TypeError);
      assert.throws(() => Reflect.apply(Engine, undefined, [optionsOf(model), tensorPlaces(model)]), invalid(/new/));

      const floats = new Float32Array(model.config.hiddenSize);
      const page = new Uint8Array(engine.pages().bytes);
      const calls: readonly [() => unknown, RegExp][] = [
        [() => Reflect.apply(engine.submit, engine, []), /words: expected an array of another type/],
        [() => engine.submit(new Uint32Array(2)), /not a batch/],
        // Word 11 is the id of the first sequence's adapter.
        [() => engine.submit(words(1).with(11, 77)), /no such adapter is on the device: 77/],
        [() => engine.project(floats, 2, 1), /states where/],
        [() => engine.project(floats, 1, MAX_TOP_K + 1), /topK/],
        [() => engine.score(floats, 1, Uint32Array.of(96), Int32Array.of(0, 1)), /token 96/],
        [() => engine.score(floats, 1, Uint32Array.of(1), Int32Array.of(0, 9)), /lists/],
        [() => engine.score(floats, 1, Uint32Array.of(1), Int32Array.of(0, 1, 1)), /first tokens where 2/],
        [() => engine.copySlots(Uint32Array.of(128), Uint32Array.of(0), undefined), /slot 128/],
        [() => engine.copySlots(Uint32Array.of(1), Uint32Array.of(0), new Int32Array(2)), /2 shifts where 1/],
        [() => engine.readPage(8, page), /page is 8/],
        [() => engine.writePage(0, page.subarray(1)), /bytes where/],
        [
          () =>
            engine.loadAdapter([
              { layer: 9, projection: 'q_proj', rank: 1, columns: 1, rows: 1, a: floats, b: floats },
            ]),
          /layer is 9/,
        ],
        [
          () =>
            engine.loadAdapter([
              { layer: 0, projection: 'q_proj', rank: 2, columns: 1, rows: 1, a: floats, b: floats },
            ]),
          /values of A/,
        ],
      ];
      for (const [call, text] of calls) assert.throws(call, invalid(text), String(text));
      const tooNarrow = {
        layer: 0,
        projection: 'q_proj',
        rank: 1,
        columns: 1,
        rows: floats.length,
        a: floats.subarray(1, 2),
        b: floats,
      };
      await assert.rejects(engine.loadAdapter([tooNarrow]), invalid(/q_proj are for 1 inputs/));
      assert.equal((await engine.submit(words(2))).byteLength, 2 * 4 * model.config.vocabularySize);
    }),
  );

  test(
    'steps of a repeated shape are replayed from graphs, which the engine counts',
    withEngine(async (engine) => {
      for (let i = 0; i < 8; i++) await engine.submit(words(1));
      const { captured, refused, why } = engine.graphs();
      assert.ok(captured > 0);
      assert.deepEqual([refused, why], [0, '']);
    }),
  );

  test(
    'two steps may be under way and end in order; a third is refused',
    withEngine(async (engine) => {
      const ended: number[] = [];
      const steps = [1, 2].map((seed) => engine.submit(words(seed)).finally(() => ended.push(seed)));
      assert.throws(() => engine.submit(words(3)), invalid(/two steps are under way/));
      const together = await Promise.all(steps);
      assert.deepEqual(ended, [1, 2]);
      for (const [i, seed] of [1, 2].entries()) {
        assert.deepEqual(new Uint8Array(together[i]!), new Uint8Array(await engine.submit(words(seed))));
      }
    }),
  );

  test('dispose waits for running steps, and may be called twice', async () => {
    const engine = new addon.Engine(optionsOf(model), tensorPlaces(model));
    const step = engine.submit(words(1));
    engine.dispose();
    engine.dispose();
    assert.equal((await step).byteLength, 2 * 4 * model.config.vocabularySize);
    const disposed = (error: unknown) => error instanceof Error && 'code' in error && error.code === 'disposed';
    assert.throws(() => engine.submit(words(1)), disposed);
    assert.throws(() => engine.memory(), disposed);
    engine.freeAdapter(1);
  });

  test(
    'reports the memory that it has taken',
    withEngine((engine) => {
      const { weights, pool, scratch, total, free } = engine.memory();
      const { count, bytes } = engine.pages();
      // 2 layers × 16 slots × a key and a value × 16 floats (2 heads of 8) × 4 bytes.
      assert.deepEqual([count, bytes], [8, 2 * 16 * 2 * 16 * 4]);
      assert.ok(weights > 0 && pool >= count * bytes && scratch > 0 && free > 0);
      assert.equal(weights + pool + scratch, total);
    }),
  );

  test('memory of the device and of the host is freed', async () => {
    const watch = new addon.Engine(optionsOf(model), tensorPlaces(model));
    const { free } = watch.memory();
    const other = new addon.Engine(optionsOf(model), tensorPlaces(model));
    assert.ok(watch.memory().free < free);
    other.dispose();
    const adapter = await randomAdapter(join(directory, 'adapter'), model.config, 3);
    const backend = await createTestCudaBackend(model, POOL);
    const loaded = await backend.loadAdapter(adapter);
    assert.ok(loaded.bytes > 0);
    await run(backend, { ...sequence(model.config, Uint32Array.of(1)), adapter: loaded });
    loaded.release?.();
    await assert.rejects(
      backend.forward([{ ...sequence(model.config, Uint32Array.of(1)), adapter: loaded }]),
      InvalidInput,
    );
    await backend.dispose();
    assert.equal(watch.memory().free, free);
    watch.dispose();
    assert.equal(addon.allocatePinned(100)?.byteLength, 100);
  });

  test('an adapter takes at most the device memory that `adapterBytes` predicts, and less than 100 KB less', async () => {
    for (const precision of ['float32', 'bf16'] as const) {
      const backend = await createTestCudaBackend(model, { ...POOL, precision, maxRows: 64 });
      for (const [rank, targets] of [
        [1, ['q_proj', 'k_proj', 'v_proj']],
        [8, ['o_proj', 'gate_proj', 'up_proj']],
        [17, ['down_proj']],
        [40, undefined],
      ] as const) {
        const at = join(directory, `adapter-${precision}-${rank}`);
        const adapter = await randomAdapter(at, model.config, 3, { rank, ...(targets && { targets }) });
        const predictedBytes = backend.adapterBytes?.(adapter) ?? 0;
        const { bytes } = await backend.loadAdapter(adapter);
        assert.ok(
          bytes <= predictedBytes && predictedBytes - bytes < 100_000,
          `rank ${rank}, ${precision}: ${bytes} of ${predictedBytes} bytes`,
        );
      }
      await backend.dispose();
    }
  });

  test('a process with an engine ends when its event loop is empty, and not before', async () => {
    const script = `
      const { createCudaBackend } = await import(${JSON.stringify(new URL('./index.ts', import.meta.url).href)});
      const { loadModel } = await import(${JSON.stringify(new URL('../../models/load.ts', import.meta.url).href)});
      const backend = await createCudaBackend(await loadModel(${JSON.stringify(model.directory)}), { pageSize: 16, pageCount: 2 });
      const none = new Uint32Array();
      const one = Uint32Array.of(1);
      const output = { kind: 'top', rows: 1, topK: 1 };
      backend.forward([{ inputs: { kind: 'tokens', tokens: one }, positions: one, context: none, mask: 'causal', writes: one, output }])
        .then(([{ tokens }]) => console.log('said', tokens.length));`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
      env: { ...process.env, PIE_CUDA_ADDON: file },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let [stdout, stderr] = ['', ''];
    child.stdout.on('data', (data) => {
      stdout += data;
    });
    child.stderr.on('data', (data) => {
      stderr += data;
    });
    const [code] = await once(child, 'close');
    assert.deepEqual([code, stdout], [0, 'said 1\n']);
    if (addon.emulated) assert.match(stderr, /emulated on the CPU/);
  });

  test('a process that exits does not wait for the card', async (context) => {
    if (!addon.emulated) return context.skip('only an emulated card hangs on demand');
    const script = `
      const { createCudaBackend } = await import(${JSON.stringify(new URL('./index.ts', import.meta.url).href)});
      const { loadModel } = await import(${JSON.stringify(new URL('../../models/load.ts', import.meta.url).href)});
      const backend = await createCudaBackend(await loadModel(${JSON.stringify(model.directory)}), { pageSize: 16, pageCount: 2 });
      const swapped = backend.allocatePinned(1000);
      const none = new Uint32Array();
      const one = Uint32Array.of(1);
      const output = { kind: 'top', rows: 1, topK: 1 };
      backend.forward([{ inputs: { kind: 'tokens', tokens: one }, positions: one, context: none, mask: 'causal', writes: one, output }])
        .finally(() => console.log('ended'));
      setTimeout(() => {
        console.log('exits', swapped.length);
        process.exit(3);
      }, 300);`;
    // The first step hangs after its first kernels.
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
      env: { ...process.env, PIE_CUDA_ADDON: file, PIE_EMULATED_SLOW: '4:600000000' },
      stdio: ['ignore', 'pipe', 'ignore'],
      // Far shorter than the hang of the step.
      timeout: 120_000,
      killSignal: 'SIGKILL',
    });
    let stdout = '';
    child.stdout.on('data', (data) => {
      stdout += data;
    });
    const [code] = await once(child, 'close');
    assert.deepEqual([code, stdout], [3, 'exits 1000\n']);
  });

  test('a thread that ends with a step under way disposes of its engine', async () => {
    const script = `
      const { workerData } = require('node:worker_threads');
      const { Engine } = require(workerData.file);
      const engine = new Engine(workerData.options, workerData.tensors);
      engine.submit(workerData.words);
      process.exit(0);`;
    const workerData = { file, options: optionsOf(model), tensors: tensorPlaces(model), words: words(1).slice() };
    for (let i = 0; i < 3; i++) {
      const worker = new Worker(script, { eval: true, workerData });
      assert.deepEqual(await once(worker, 'exit'), [0]);
    }
  });
});

describe('a CUDA backend', () => {
  const failure = (code: string, text: RegExp) => (error: unknown) =>
    error instanceof CudaError && error.code === code && text.test(error.message);

  test('without the addon, a card or enough memory, the error states what to do', async () => {
    const create = (more: object) => createCudaBackend(model, { ...POOL, addon: file, ...more });
    const missing = join(directory, 'missing.node');
    await assert.rejects(
      create({ addon: missing }),
      failure('not-built', /there is no .*missing\.node.*npm run build:cuda/),
    );
    const broken = join(directory, 'broken.node');
    await writeFile(broken, 'no library');
    await assert.rejects(create({ addon: broken }), failure('not-built', /cannot be loaded/));
    await assert.rejects(create({ device: 9 }), failure('no-device', /no CUDA device 9; the devices here are: 0 \(/));
    const tight = create({ memoryBytes: 2 ** 16, pageCount: 100_000 });
    await assert.rejects(tight, failure('out-of-memory', /\(device 0\): .*\. Lower "pages"/));
  });

  test('faults of the addon itself are not reported as faults of the caller', () => {
    const thrown = (code: string) => fromAddon(Object.assign(new Error('what'), { code }));
    assert.ok(failure('internal', /^what$/)(thrown('internal')));
    assert.ok(failure('device-lost', /^what$/)(thrown('cuda')));
    assert.ok(thrown('invalid') instanceof InvalidInput);
  });

  test('takes as many pages as fit when pageCount is 0', async () => {
    const some = await createTestCudaBackend(model, { ...POOL, pageCount: 0, memoryBytes: 16 * 2 ** 20 });
    const more = await createTestCudaBackend(model, { ...POOL, pageCount: 0, memoryBytes: 17 * 2 ** 20 });
    const reserved = { memoryBytes: 17 * 2 ** 20, reserveBytes: 2 ** 20 };
    const fewer = await createTestCudaBackend(model, { ...POOL, pageCount: 0, ...reserved });
    try {
      assert.ok(0 < some.pageCount && some.pageCount < more.pageCount);
      assert.equal(fewer.pageCount, some.pageCount);
    } finally {
      for (const backend of [some, more, fewer]) await backend.dispose();
    }
  });

  test('later steps do not change the outputs of earlier ones', async () => {
    const backend = await createTestCudaBackend(model, POOL);
    try {
      const ask = (seed: number) => sequence(model.config, new Random(seed).tokens(model.config, 4));
      const [first] = await run(backend, ask(1));
      const copy = first?.slice();
      for (let seed = 2; seed < 6; seed++) await run(backend, ask(seed));
      assert.deepEqual(first, copy);
    } finally {
      await backend.dispose();
    }
  });

  test('more top tokens than the device finds are sorted in TypeScript, also with a token mask', async (t) => {
    const deadlineOf = t.mock.method(Deadline.prototype, 'of');
    const wide = await randomModel(join(directory, 'wide'), { vocabularySize: MAX_TOP_K + 100 }, 8);
    const backend = await createTestCudaBackend(wide, POOL);
    try {
      const prompt = sequence(wide.config, Uint32Array.of(5, 9), { output: wholeVocabulary(wide.config, 2) });
      const allowed = new Uint32Array(2 * Math.ceil(wide.config.vocabularySize / 32)).fill(0x0f0f0f0f);
      const masked = { ...prompt, output: { ...wholeVocabulary(wide.config, 2), allowed, states: true } };
      const [whole, some] = await backend.forward([prompt, masked]);
      assert.ok(whole?.kind === 'top' && some?.kind === 'top' && some.states);
      const few = { kind: 'top', rows: 2, topK: 50 } as const;
      for (const [output, top] of [
        [few, whole],
        [{ ...few, allowed }, some],
      ] as const) {
        const [best] = await backend.forward([{ ...prompt, output }]);
        assert.ok(best?.kind === 'top');
        for (const row of [0, 1]) {
          const part = range(row * top.topK, row * top.topK + 50);
          assert.deepEqual(
            [...best.tokens.subarray(row * 50, row * 50 + 50)],
            Array.from(part, (i) => top.tokens[i]),
          );
          const found = Float32Array.from(part, (i) => top.logProbabilities[i] as number);
          assert.ok(relativeError(found, best.logProbabilities.subarray(row * 50, row * 50 + 50)) < 1e-5);
        }
      }
      const projected = await backend.project(some.states, 2, wide.config.vocabularySize);
      assert.ok(relativeError(values({ kind: 'top', ...projected }), values(whole)) < 1e-5);
      // One scoring per row: two sequences of two rows, and two projected states.
      assert.equal(deadlineOf.mock.calls.filter(({ arguments: [, what] }) => what === 'a scoring').length, 6);
    } finally {
      await backend.dispose();
    }
  });

  test('a model whose file was changed since it was opened is refused', async () => {
    const changed = await randomModel(join(directory, 'changed'), {}, 8);
    await appendFile(join(changed.directory, 'model.safetensors'), 'x');
    await assert.rejects(createTestCudaBackend(changed, POOL), { code: 'malformed-weights', message: /was changed/ });
  });

  test('a batch larger than a device step computes the same as its sequences alone; the memory of the words grows', async () => {
    const backend: Backend = await createTestCudaBackend(model, {
      ...POOL,
      maxRows: 8,
      maxSequences: 3,
      maxUnkeptRows: 64,
    });
    try {
      const random = new Random(4);
      const batch = Array.from({ length: 7 }, (_, i) =>
        sequence(model.config, random.tokens(model.config, 1 + 5 * i), {
          mask: i % 2 === 0 ? 'causal' : lowerTriangle(1 + 5 * i),
        }),
      );
      // The batch has more inputs and sequences than one device step takes.
      const together = await run(backend, ...batch);
      for (const [i, each] of batch.entries()) {
        const [alone] = await run(backend, each);
        assert.ok(relativeError(together[i]!, alone!) < 1e-5);
      }
    } finally {
      await backend.dispose();
    }
    const writer = new BatchWords(model.config);
    const small = writer.write([sequence(model.config, Uint32Array.of(1))]);
    const large = writer.write([sequence(model.config, new Uint32Array(40_000))]);
    assert.ok(large.length > 80_000 && small.length < 20);
    assert.deepEqual(readResults(model.config, [], new ArrayBuffer(0)), []);
  });
});

function lowerTriangle(inputs: number): Uint8Array {
  return Uint8Array.from({ length: inputs * inputs }, (_, i) => Number(i % inputs <= Math.floor(i / inputs)));
}

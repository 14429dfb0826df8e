import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { defaultCacheDirectory, findCached } from '#gpu-host/models/cache.ts';
import { type LoadedModel, loadModel } from '#gpu-host/models/load.ts';
import { randomModel } from '../../models/testing/random-model.ts';
import type { Backend } from '../backend.ts';
import { createGgmlBackend } from '../ggml/index.ts';
import { createOnnxBackend } from '../onnx/index.ts';
import { BLOCK_SIZE } from '../onnx/weights.ts';
import { createReferenceBackend } from '../reference/index.ts';
import { createTestCudaBackend } from './cuda.ts';
import { dequantizedModel } from './dequantize.ts';
import { HANDLERS, type HandlerName, handlerError, handlerValues, NORMS } from './handlers.ts';
import { MASK_KINDS, MASK_POOL } from './mask-kinds.ts';
import { narrowModel, VARIANTS } from './models.ts';
import { narrowWeightsModel } from './narrow-weights.ts';
import { Random } from './scenario.ts';

/**
 * `node gpu-host/backends/testing/parity-table.ts [--seed n]`: prints the error of each backend's handlers against the oracle, by width of the
 * weights and kind of mask, beside its bound. Exits with 1 when an error is out of bounds. The CUDA backend is emulated unless
 * `PIE_CUDA_ADDON` names the addon of a card.
 *
 * The oracle is the float64 reference on the same weights that the backend multiplies by. Kernels for 8 and 4 bits also round their inputs
 * to 8 bits, which is a separate error. The table therefore compares them with two references: one that rounds its inputs in the same way,
 * and one that does not. bf16 kernels round every value that they pass on, so the table compares them in the same two ways. The error
 * against the original weights shows the cost of the width, and has no bound.
 */

/** Runs per model and kind of mask, each with its own random numbers. */
const SAMPLES = 3;
/** A trained model is slow in float64, so its lines have these kinds of mask only. */
const KINDS_OF_TRAINED = ['causal', 'attention sink with shifted copy', 'read after write in one batch'];
const TRAINED = ['minimind2-small', 'stories15m'];
/** `several blocks` is wider than a block of weights, and no multiple of a block: each row ends in a shorter block. */
const SHAPES = { ...VARIANTS, 'several blocks': { hiddenSize: 160, intermediateSize: 200, headDim: 20, heads: 8 } };

interface HandlerBounds {
  /** For 32-bit weights. */
  readonly exact: Bounds;
  /** For 8 and 4 bits. */
  readonly rounded: Bounds;
  /** For bf16, including bf16 with weights of 8 or 4 bits. */
  readonly narrow: Bounds;
}

interface Bounds {
  /**
   * Bound of the median error. Where backend and oracle round alike, only float32's loss is left. A bf16 backend and
   * its oracle always round some values differently, so the bound in `narrow` covers bf16's loss.
   */
  readonly typical: number;
  /** Bound of the worst error. */
  readonly worst: number;
  /** Bound of the worst error against the oracle that rounds no inputs; 0 and unused for 32-bit weights. */
  readonly unrounded: number;
}

/**
 * Float32 differs from float64 by 1e-6 (relative) after a few layers. Log-probabilities of these models reach 30 nats, so 1e-6 of them is
 * 3e-5; a trained model of eight layers doubles this error.
 *
 * With rounded inputs the median error stays the same. Now and then an input lies so near the middle between two levels
 * that backend and oracle round it to different levels. Their inputs then differ by up to 1/127 of the largest value in
 * the input's block. In later layers the difference grows to at most the error that rounding itself causes.
 *
 * That error bounds the worst case. Rounding to 127 levels changes each input of a multiplication by about 1 %. A model
 * has two to eight layers with four multiplications each, after which its states are off by 3 to 6 % (by 10 % in the
 * worst of 2,520 runs). Logits spread over tens of nats, so this is 1 or 2 nats. Attention weights are off by less,
 * because they are averages over heads and layers. Each bound is at least twice the worst error seen over five seeds.
 *
 * bf16 has 8 significant bits, so each number that kernels pass on is off by up to 0.4 %. The order of sums decides in
 * which direction, and the oracle sums in another order. After two layers, states differ by 0.6 % from an oracle that
 * rounds too, and by 1 % from an oracle that does not round. A trained model of eight layers doubles both.
 */
const LOG_PROBABILITIES: HandlerBounds = {
  exact: { typical: 1e-4, worst: 2e-4, unrounded: 0 },
  rounded: { typical: 1e-4, worst: 2, unrounded: 4 },
  narrow: { typical: 0.2, worst: 1, unrounded: 1 },
};
const BOUNDS: Readonly<Record<HandlerName, HandlerBounds>> = {
  forward: {
    exact: { typical: 1e-5, worst: 1e-5, unrounded: 0 },
    rounded: { typical: 1e-5, worst: 0.1, unrounded: 0.2 },
    narrow: { typical: 0.02, worst: 0.05, unrounded: 0.05 },
  },
  'next-distribution': LOG_PROBABILITIES,
  'log-probabilities': LOG_PROBABILITIES,
  entropy: {
    exact: { typical: 1e-4, worst: 1e-4, unrounded: 0 },
    rounded: { typical: 1e-4, worst: 1, unrounded: 1 },
    narrow: { typical: 0.02, worst: 0.3, unrounded: 0.3 },
  },
  step: LOG_PROBABILITIES,
  'step, allowed tokens': LOG_PROBABILITIES,
  'forward-scores': {
    exact: { typical: 1e-5, worst: 1e-5, unrounded: 0 },
    rounded: { typical: 1e-5, worst: 0.05, unrounded: 0.1 },
    narrow: { typical: 0.01, worst: 0.03, unrounded: 0.03 },
  },
};

/** True when ONNX Runtime's kernels round inputs as the oracle does: measured on x64, not tried on other architectures. */
const ROUNDS_ALIKE = process.arch === 'x64';

/** Backends and widths in the order of the table. */
const DEVICES = [
  { backend: 'onnx', width: 32 },
  { backend: 'onnx', width: 8 },
  { backend: 'onnx', width: 4 },
  { backend: 'ggml', width: 32 },
  { backend: 'cuda', width: 32 },
  { backend: 'cuda', width: 'bf16' },
  { backend: 'cuda', width: 'int8' },
  { backend: 'cuda', width: 'fp8' },
  { backend: 'cuda', width: 'int4' },
] as const;
type DeviceKind = (typeof DEVICES)[number];

/** One line of the table, with the errors of its samples. */
interface Cell {
  readonly models: string;
  readonly device: DeviceKind;
  readonly handler: HandlerName;
  readonly kind: string;
  readonly errors: number[];
  readonly unrounded: number[];
  readonly original: number[];
}

type Report = (cell: Omit<Cell, 'errors' | 'unrounded' | 'original'>, errors: CellErrors) => void;
interface CellErrors {
  readonly error: number;
  readonly unrounded?: number;
  readonly original?: number;
}

await main();

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { seed: { type: 'string', default: '1' } } });
  const seed = Number(values.seed);
  if (!Number.isSafeInteger(seed)) throw new RangeError(`--seed ${values.seed} is not an integer.`);
  const directory = await mkdtemp(join(tmpdir(), 'pie-parity-table-'));
  const cells = new Map<string, Cell>();
  const report: Report = (cell, { error, unrounded, original }) => {
    const key = JSON.stringify([cell.models, cell.device, cell.handler, cell.kind]);
    const tableCell = cells.get(key) ?? { ...cell, errors: [], unrounded: [], original: [] };
    cells.set(key, tableCell);
    tableCell.errors.push(error);
    if (unrounded !== undefined) tableCell.unrounded.push(unrounded);
    if (original !== undefined) tableCell.original.push(original);
  };
  try {
    for (const [i, [name, shape]] of Object.entries(SHAPES).entries()) {
      const model = await randomModel(join(directory, `model-${i}`), shape, seed + i);
      process.stderr.write(`${name}\n`);
      await measure('random', model, Object.keys(MASK_KINDS), SAMPLES, seed + 100 * i, directory, report);
    }
    const trained = await cachedModel();
    if (trained === null) process.stderr.write(`No trained model is in the cache (${TRAINED.join(', ')}).\n`);
    else {
      process.stderr.write(`${trained.name}\n`);
      await measure(trained.name, trained.model, KINDS_OF_TRAINED, 1, seed, directory, report);
    }
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
  const failures = print([...cells.values()], seed);
  process.exitCode = failures === 0 ? 0 : 1;
}

async function cachedModel(): Promise<{ readonly name: string; readonly model: LoadedModel } | null> {
  for (const name of TRAINED) {
    const directory = await findCached(name, defaultCacheDirectory());
    if (directory !== null) return { name, model: await loadModel(directory) };
  }
  return null;
}

async function measure(
  models: string,
  model: LoadedModel,
  kinds: readonly string[],
  samples: number,
  seed: number,
  directory: string,
  report: Report,
): Promise<void> {
  const original = await createReferenceBackend(model, MASK_POOL);
  for (const deviceKind of DEVICES) {
    const { device, oracles } = await openDevice(deviceKind, model, directory);
    try {
      for (const mask of kinds) {
        for (let sample = 0; sample < samples; sample++) {
          const scenario = MASK_KINDS[mask](model.config, new Random(seed + sample));
          const run = (backend: Backend) => handlerValues(backend, scenario, seed + sample);
          const actual = await run(device);
          const plain = await run(original);
          const rounded = oracles === null ? plain : await run(oracles.rounded);
          const unrounded = oracles === null ? null : await run(oracles.unrounded);
          for (const handler of HANDLERS) {
            const error = handlerError(handler, actual[handler], rounded[handler]);
            const cell = { models, device: deviceKind, handler, kind: mask };
            if (unrounded === null) report(cell, { error });
            else {
              report(cell, {
                error,
                unrounded: handlerError(handler, actual[handler], unrounded[handler]),
                original: handlerError(handler, actual[handler], plain[handler]),
              });
            }
          }
        }
      }
    } finally {
      await device.dispose();
    }
  }
}

/** A backend. If its weights differ from the model's own, also two oracles with its weights: one with the backend's rounding, one without. */
interface OpenDevice {
  readonly device: Backend;
  readonly oracles: { readonly rounded: Backend; readonly unrounded: Backend } | null;
}

async function openDevice({ backend, width }: DeviceKind, model: LoadedModel, directory: string): Promise<OpenDevice> {
  if (backend === 'cuda') {
    if (width === 32) return { device: await createTestCudaBackend(model, MASK_POOL), oracles: null };
    const narrow = await narrowModel(model, join(await mkdtemp(join(directory, 'narrow-')), 'model'), 'BF16');
    const oracleModel = width === 'bf16' ? narrow : narrowWeightsModel(narrow, width);
    return {
      device: await createTestCudaBackend(narrow, { ...MASK_POOL, precision: width }),
      oracles: {
        rounded: await createReferenceBackend(oracleModel, { ...MASK_POOL, roundedTo: 'bf16' }),
        unrounded: await createReferenceBackend(oracleModel, MASK_POOL),
      },
    };
  }
  if (backend === 'ggml')
    return { device: await createGgmlBackend(model, { ...MASK_POOL, bits: width, threads: 1 }), oracles: null };
  const options = { ...MASK_POOL, bits: width, threads: 1, cacheDirectory: directory };
  const device = await createOnnxBackend(model, options);
  if (width === 32) return { device, oracles: null };
  const oracleModel = await dequantizedModel(model, width, width, directory);
  return {
    device,
    oracles: {
      rounded: await createReferenceBackend(oracleModel, { ...MASK_POOL, roundedBlock: BLOCK_SIZE }),
      unrounded: await createReferenceBackend(oracleModel, MASK_POOL),
    },
  };
}

/** Prints the table and returns the number of lines out of bounds. */
function print(cells: readonly Cell[], seed: number): number {
  const lines = [
    [
      'models',
      'backend',
      'width',
      'handler',
      'mask',
      'norm',
      'median',
      'bound',
      'worst',
      'bound',
      'inputs unrounded',
      'bound',
      'original weights',
      '',
    ],
  ];
  let failures = 0;
  const show = (value: number | undefined) => (value === undefined ? '-' : value.toExponential(1));
  for (const { models, device, handler, kind, errors, unrounded, original } of cells) {
    const norm = NORMS[handler];
    const { backend, width } = device;
    const isExact = width === 32;
    const inexactBounds = backend === 'cuda' ? 'narrow' : 'rounded';
    const bounds = BOUNDS[handler][isExact ? 'exact' : inexactBounds];
    // A trained model gives one sample, and is so deep that backend and oracle always round some input differently.
    const hasTypicalBound = isExact || (models === 'random' && (backend === 'cuda' || ROUNDS_ALIKE));
    const median = errors.toSorted((a, b) => a - b)[errors.length >> 1];
    const worst = Math.max(...errors);
    const worstUnrounded = unrounded.length === 0 ? undefined : Math.max(...unrounded);
    const isWithin =
      (!hasTypicalBound || median <= bounds.typical) &&
      worst <= bounds.worst &&
      (worstUnrounded === undefined || worstUnrounded <= bounds.unrounded);
    if (!isWithin) failures++;
    lines.push([
      models,
      backend,
      String(width),
      handler,
      kind,
      norm,
      show(median),
      show(hasTypicalBound ? bounds.typical : undefined),
      show(worst),
      show(bounds.worst),
      show(worstUnrounded),
      show(isExact ? undefined : bounds.unrounded),
      show(original.length === 0 ? undefined : Math.max(...original)),
      isWithin ? '' : 'OUT OF BOUNDS',
    ]);
  }
  const widths = lines[0].map((_, column) => Math.max(...lines.map((line) => line[column].length)));
  for (const line of lines) {
    console.log(
      line
        .map((text, column) => text.padEnd(widths[column]))
        .join('  ')
        .trimEnd(),
    );
  }
  console.log(`${cells.length} lines, ${failures} out of bounds; seed ${seed}; oracle: reference (float64)`);
  return failures;
}

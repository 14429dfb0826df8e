import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe } from 'node:test';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { randomModel } from '../../models/testing/random-model.ts';
import type { Backend, SequenceInput } from '../backend.ts';
import { createOnnxBackend } from '../onnx/index.ts';
import { createReferenceBackend } from '../reference/index.ts';
import { createTestCudaBackend } from './cuda.ts';
import { Random, relativeError, sequence } from './scenario.ts';

/** The pool of every backend under test. */
export const POOL = { pageSize: 16, pageCount: 16 } as const;
/** Largest error by {@link relativeError} between two float32 computations of the same values. */
export const TOLERANCE = 1e-4;

/** Largest error for keys in 8 bits: a key rotated to another position is rounded differently. */
const NARROW_TOLERANCE = 5e-2;
const NARROW = 'cuda, keys and values in 8 bits';

const BACKENDS: Readonly<Record<string, (model: LoadedModel) => Promise<Backend>>> = {
  reference: (model) => createReferenceBackend(model, POOL),
  onnx: (model) => createOnnxBackend(model, { ...POOL, bits: 32, threads: 1 }),
  cuda: (model) => createTestCudaBackend(model, POOL),
  [NARROW]: (model) => createTestCudaBackend(model, { ...POOL, precision: 'bf16', kv: 'fp8' }),
};

/** The environment of a conformance test. `model` and `backend` exist inside tests only. */
interface Subject {
  readonly name: string;
  readonly model: LoadedModel;
  readonly backend: Backend;
  readonly random: Random;
  readonly close: (actual: Float32Array, expected: Float32Array) => void;
  readonly make: (inputs: Uint32Array | Float32Array, rest?: Parameters<typeof sequence>[2]) => SequenceInput;
}

/** Defines the same tests for every backend, each with its own tiny random model and pool. */
export function eachBackend(topic: string, define: (subject: Subject) => void): void {
  for (const [name, create] of Object.entries(BACKENDS)) {
    describe(`${name} backend: ${topic}`, () => {
      let directory: string;
      let model: LoadedModel;
      let backend: Backend;
      before(async () => {
        directory = await mkdtemp(join(tmpdir(), 'pie-conformance-'));
        model = await randomModel(directory, {}, 5);
        backend = await create(model);
      });
      after(async () => {
        await backend.dispose();
        await rm(directory, { recursive: true, force: true });
      });
      define({
        name,
        get model() {
          return model;
        },
        get backend() {
          return backend;
        },
        random: new Random(11),
        close: (actual, expected) => {
          const error = relativeError(actual, expected);
          assert.ok(error <= (name === NARROW ? NARROW_TOLERANCE : TOLERANCE), `relative error ${error}`);
        },
        make: (inputs, rest = {}) => sequence(model.config, inputs, rest),
      });
    });
  }
}

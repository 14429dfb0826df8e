import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe } from 'node:test';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { randomModel } from '#gpu-host/models/testing/random-model.ts';
import type { Backend, SequenceInput } from '../../backend.ts';
import { Random, relativeError, sequence } from '../scenario.ts';

/** The pool of every backend under test. */
export const POOL = { pageSize: 16, pageCount: 16 } as const;
/** Largest error by {@link relativeError} between two float32 computations of the same values. */
export const TOLERANCE = 1e-4;

/** The environment of a conformance test. `model` and `backend` exist inside tests only. */
interface Subject {
  readonly name: string;
  readonly model: LoadedModel;
  readonly backend: Backend;
  readonly random: Random;
  readonly close: (actual: Float32Array, expected: Float32Array) => void;
  readonly make: (inputs: Uint32Array | Float32Array, rest?: Parameters<typeof sequence>[2]) => SequenceInput;
}

/** A backend under test. */
export interface TestedBackend {
  readonly name: string;
  readonly create: (model: LoadedModel) => Promise<Backend>;
  /** Largest error by {@link relativeError} between two ways to compute the same values; {@link TOLERANCE} by default. */
  readonly tolerance?: number;
}

/** Some of the tests that every backend passes. */
export type Topic = (tested: TestedBackend) => void;

/** Makes a topic: its tests run for each backend with a tiny random model and a pool of their own. */
export function topic(title: string, define: (subject: Subject) => void): Topic {
  return ({ name, create, tolerance = TOLERANCE }) => {
    describe(`${name} backend: ${title}`, () => {
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
          assert.ok(error <= tolerance, `relative error ${error}`);
        },
        make: (inputs, rest = {}) => sequence(model.config, inputs, rest),
      });
    });
  };
}

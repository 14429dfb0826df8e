import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { randomModel } from '../models/testing/random-model.ts';
import type { Backend, SequenceInput } from './backend.ts';
import type { Encoder } from './encoder.ts';
import { type PaceClock, pacedBackend, pacedEncoder } from './paced.ts';
import { createReferenceBackend } from './reference/index.ts';

const PACE = { stepMs: 20, tokenMs: 0.5, sequenceMs: 2 };

/** A clock that stands still while the device computes, but for the times that a test adds. */
class StillClock implements PaceClock {
  nowMs = 100;
  readonly waits: number[] = [];

  now(): number {
    return this.nowMs;
  }

  async wait(ms: number): Promise<void> {
    this.waits.push(ms);
  }
}

const prompt = (...tokens: number[]): SequenceInput => ({
  inputs: { kind: 'tokens', tokens: Uint32Array.from(tokens) },
  positions: Uint32Array.from(tokens.keys()),
  context: new Uint32Array(),
  mask: 'causal',
  writes: new Uint32Array(),
  output: { kind: 'top', rows: 1, topK: 3 },
});

describe('a paced device', () => {
  let folder: string;
  let inner: Backend;

  before(async () => {
    folder = await mkdtemp(path.join(os.tmpdir(), 'pie-paced-'));
    inner = await createReferenceBackend(await randomModel(folder, {}, 3), { pageSize: 16, pageCount: 4 });
  });

  after(async () => {
    await inner.dispose();
    await rm(folder, { recursive: true });
  });

  it('gives the results of the inner device, after the time of its profile', async () => {
    const clock = new StillClock();
    const paced = pacedBackend(inner, 'tiny', PACE, clock);
    const batch = [prompt(1, 2, 3, 4), prompt(5, 6)];
    assert.deepEqual(await paced.forward(batch), await inner.forward(batch));
    // A step, 6 inputs and 2 sequences.
    assert.deepEqual(clock.waits, [20 + 6 * 0.5 + 2 * 2]);
    const states = new Float32Array(inner.config.hiddenSize).fill(0.5);
    assert.deepEqual(await paced.project(states, 1, 3), await inner.project(states, 1, 3));
    assert.equal(clock.waits.at(-1), 20 + 0.5 + 2);
    assert.equal(paced.pageCount, inner.pageCount);
    assert.deepEqual(paced.device, { name: 'paced tiny' });
  });

  it("waits only for the rest of the step's time", async () => {
    const clock = new StillClock();
    const slow = (ms: number): Encoder => ({
      config: {} as Encoder['config'],
      async encode(inputs) {
        clock.nowMs += ms;
        return inputs.map(() => Float32Array.of(ms));
      },
      dispose: async () => undefined,
    });
    const texts = [3, 5].map((length) => ({ tokens: new Uint32Array(length), types: new Uint8Array(length) }));
    assert.deepEqual(await pacedEncoder(slow(9), PACE, clock).encode(texts), [Float32Array.of(9), Float32Array.of(9)]);
    // Both texts are padded to 5 tokens, and the encoder itself took 9 ms.
    assert.deepEqual(clock.waits, [20 + 2 * 5 * 0.5 + 2 * 2 - 9]);
    await pacedEncoder(slow(50), PACE, clock).encode(texts);
    assert.equal(clock.waits.length, 1, 'a slower step takes its own time');
  });

  it('waits after a step that fails, too', async () => {
    const clock = new StillClock();
    await assert.rejects(pacedBackend(inner, 'tiny', PACE, clock).forward([prompt(1 << 30)]));
    assert.deepEqual(clock.waits, [20 + 0.5 + 2]);
  });
});

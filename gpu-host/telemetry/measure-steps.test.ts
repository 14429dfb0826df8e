import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Backend } from '../backends/backend.ts';
import { type Pace, pacedBackend } from '../backends/paced.ts';
import { createReferenceBackend } from '../backends/reference/index.ts';
import { randomModel } from '../models/testing/random-model.ts';
import { measuredSteps, type StepLimits, waitedForCoreMs } from './measure-steps.ts';
import type { StepPoint } from './step-profile.ts';

const LIMITS: StepLimits = { maxTokens: 512, maxSequences: 64 };
const sizesOf = (points: readonly StepPoint[]) => points.map(({ size }) => size);

describe('measuring steps at the start', () => {
  let folder: string;
  let inner: Backend;

  before(async () => {
    folder = await mkdtemp(path.join(os.tmpdir(), 'pie-measure-'));
    const model = await randomModel(folder, { contextLength: 300 }, 3);
    inner = await createReferenceBackend(model, { pageSize: 16, pageCount: 4 });
  });

  after(async () => {
    await inner.dispose();
    await rm(folder, { recursive: true });
  });

  /** Measures a device whose steps take the time of `pace`, on a clock that only its waits move. */
  async function measure(pace: Pace, limits = LIMITS) {
    let nowMs = 0;
    const now = () => nowMs;
    const wait = async (ms: number) => {
      nowMs += ms;
    };
    const device = pacedBackend(inner, 'tiny', pace, { now, wait });
    const { tokens, sequences } = await measuredSteps(device, limits, now);
    return { tokens, sequences, tookMs: nowMs };
  }

  it('gives the efficient size of a device before it serves', async () => {
    // Llama-2-7B on an RTX 3090, by the figures of Ayo (ASPLOS '25).
    const { tokens, sequences } = await measure({ stepMs: 21, tokenMs: 0.23, sequenceMs: 0 });
    assert.equal(tokens.efficient(512), Math.round(21 / 0.23));
    assert.deepEqual(sizesOf(tokens.points), [1, 4, 16, 64, 256]);
    assert.deepEqual(sizesOf(sequences.points), [1, 4, 16, 64]);
    assert.ok(Math.abs((sequences.points.at(-1)?.ms ?? 0) - (21 + 64 * 0.23)) < 1e-6);
  });

  it('leaves out the time in which the thread waits for a core', async () => {
    let [nowMs, waitedMs] = [0, 0];
    const wait = async (ms: number) => {
      nowMs += 10 * ms;
      waitedMs += 9 * ms;
    };
    const now = () => nowMs;
    const pace = { stepMs: 5, tokenMs: 0.1, sequenceMs: 0 };
    const device = pacedBackend(inner, 'tiny', pace, { now, wait });
    const { tokens } = await measuredSteps(device, LIMITS, now, () => waitedMs);
    assert.ok(tokens.points.length >= 3);
    for (const { size, ms } of tokens.points) assert.ok(Math.abs(ms - (5 + 0.1 * size)) < 1e-6, `${size}: ${ms} ms`);
    assert.ok(waitedForCoreMs() >= 0);
  });

  it('ends with the first size that takes far longer than one input, at the limits of a step, or after two seconds', async () => {
    // One input takes 5 ms. The step of size 16 takes 20 ms, more than three times as long, and is the last.
    const steep = await measure({ stepMs: 4, tokenMs: 1, sequenceMs: 0 });
    assert.deepEqual(
      [sizesOf(steep.tokens.points), sizesOf(steep.sequences.points)],
      [
        [1, 4, 16],
        [1, 4, 16],
      ],
    );
    const small = await measure({ stepMs: 20, tokenMs: 0, sequenceMs: 0 }, { maxTokens: 64, maxSequences: 8 });
    assert.deepEqual(
      [sizesOf(small.tokens.points), sizesOf(small.sequences.points)],
      [
        [1, 4, 16, 64],
        [1, 4],
      ],
    );
    const slow = await measure({ stepMs: 1500, tokenMs: 0, sequenceMs: 0 });
    assert.deepEqual([sizesOf(slow.tokens.points), slow.tookMs], [[1], 3000], 'two steps of one input');
  });

  it('never begins a step of more than four seconds, except one of a single input', async () => {
    for (let eachMs = 1; eachMs < 3000; eachMs *= 1.3) {
      let longestMs = 0;
      let nowMs = 0;
      const wait = async (ms: number) => {
        nowMs += ms;
        if (ms > 1.01 * eachMs) longestMs = Math.max(longestMs, ms);
      };
      const now = () => nowMs;
      const device = pacedBackend(inner, 'tiny', { stepMs: 0, tokenMs: eachMs, sequenceMs: 0 }, { now, wait });
      await measuredSteps(device, LIMITS, now);
      assert.ok(longestMs <= 4000, `${longestMs} ms at ${eachMs} ms an input`);
    }
  });

  it('changes no keys and values', async () => {
    const before = new Uint8Array(inner.pageBytes).fill(7);
    inner.writePage(0, before);
    await measure({ stepMs: 1, tokenMs: 0, sequenceMs: 0 });
    const page = new Uint8Array(inner.pageBytes);
    inner.readPage(0, page);
    assert.deepEqual(page, before);
  });
});

import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { randomModel } from '../../models/testing/random-model.ts';
import type { Backend, SequenceInput } from '../backend.ts';
import { InvalidInput } from '../check.ts';
import { createTestCudaBackend } from '../testing/cuda.ts';
import { Random, run, sequence } from '../testing/scenario.ts';

const PAGE_SIZE = 16;
const SLOTS = 64 * PAGE_SIZE;
/** The shortest context of these tests: long enough to have a table. */
const LEAST_CONTEXT = 130;

describe('slot tables of a CUDA backend', () => {
  let directory: string;
  let model: LoadedModel;
  let backend: Backend;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-tables-'));
    model = await randomModel(join(directory, 'model'), { layers: 1 }, 11);
    const pool = { pageSize: PAGE_SIZE, pageCount: SLOTS / PAGE_SIZE, maxRows: 8, maxSequences: 4 };
    backend = await createTestCudaBackend(model, pool);
  });
  after(async () => {
    await backend.dispose();
    await rm(directory, { recursive: true, force: true });
  });

  /** The same sequence with an explicit causal mask, which makes it bring its whole list. The result writes no keys to the pool. */
  const whole = (causal: SequenceInput): SequenceInput => {
    const { positions, context } = causal;
    const keys = context.length + positions.length;
    const mask = new Uint8Array(positions.length * keys);
    for (let row = 0; row < positions.length; row++) mask.fill(1, row * keys, row * keys + context.length + row + 1);
    return { ...causal, mask, writes: new Uint32Array(0) };
  };
  const check = async (batch: readonly SequenceInput[]) => {
    const tabled = await run(backend, ...batch);
    assert.deepEqual(tabled, await run(backend, ...batch.map(whole)));
  };

  test('random schedules give the same bits with tables as with whole lists', async () => {
    const random = new Random(3);
    let live: { slots: Uint32Array; filled: number }[] = [];
    const start = () => ({ slots: random.permutation(SLOTS), filled: LEAST_CONTEXT + random.below(60) });
    for (let round = 0; round < 50; round++) {
      if (live.length < 3 || (live.length < 5 && random.next() < 0.3)) live.push(start());
      if (random.next() < 0.1) live = live.filter((_, i) => i !== round % live.length);
      const [first, last] = [live[0], live.at(-1)];
      // A fork shares a context, and then both write slots of their own.
      if (first && random.next() < 0.15)
        live.push({ ...start(), slots: forkedSlots(first, random), filled: first.filled });
      // A slot of the context changes.
      if (last && random.next() < 0.15) last.slots[random.below(last.filled)] = random.below(SLOTS);
      const batch: SequenceInput[] = [];
      const written = new Set<number>();
      for (const each of live) {
        const rows = random.next() < 0.7 ? 1 : 1 + random.below(5);
        const context = each.slots.slice(0, each.filled);
        const writes = each.slots.slice(each.filled, each.filled + rows);
        // No sequence of a batch writes what another one reads.
        if (batch.some((other) => writes.some((slot) => other.context.includes(slot)))) continue;
        if (context.some((slot) => written.has(slot)) || writes.some((slot) => context.includes(slot))) continue;
        for (const slot of writes) written.add(slot);
        batch.push(sequence(model.config, random.tokens(model.config, rows), { context, writes }));
        each.filled += rows;
      }
      if (batch.length > 0) await check(batch);
    }
  });

  test('after a refused batch, tables give the same bits as whole lists again', async () => {
    const random = new Random(5);
    const slots = random.permutation(SLOTS);
    const ask = (filled: number) =>
      sequence(model.config, random.tokens(model.config, 1), {
        context: slots.slice(0, filled),
        writes: slots.slice(filled, filled + 1),
      });
    await check([ask(LEAST_CONTEXT)]);
    // The refused batch would have brought slots that the next one has in its context.
    const grown = ask(LEAST_CONTEXT + 9);
    const outside = sequence(model.config, Uint32Array.of(1), { context: Uint32Array.of(SLOTS) });
    await assert.rejects(run(backend, grown, outside), InvalidInput);
    await check([ask(LEAST_CONTEXT + 10)]);
  });
});

function forkedSlots({ slots, filled }: { slots: Uint32Array; filled: number }, random: Random): Uint32Array {
  const own = random.permutation(SLOTS);
  own.set(slots.subarray(0, filled));
  return own;
}

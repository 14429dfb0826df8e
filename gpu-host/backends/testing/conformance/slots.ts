import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { SequenceInput } from '../../backend.ts';
import { type Random, range, relativeError, run, sequence } from '../scenario.ts';
import { POOL, TOLERANCE, topic } from './topic.ts';

/** Checks the contents of slots: copies, pages moved out and in, and reads of slots that the same batch writes. */
export const slots = topic('keys and values', (subject) => {
  const { random, close, make } = subject;

  test('a sequence without `writes` changes no slot', async () => {
    const tokens = random.tokens(subject.model.config, 6);
    await run(subject.backend, make(tokens, { writes: range(0, 6), output: { kind: 'none' } }));
    const question = make(random.tokens(subject.model.config, 1), { context: range(0, 6) });
    const [first] = await run(subject.backend, question);
    await run(
      subject.backend,
      make(random.tokens(subject.model.config, 9)),
      make(random.tokens(subject.model.config, 2)),
    );
    assert.deepEqual((await run(subject.backend, question))[0], first);
  });

  test('copySlots reads all sources before it writes any destination', async () => {
    const tokens = random.tokens(subject.model.config, 10);
    const question = random.tokens(subject.model.config, 2);
    await run(subject.backend, make(tokens, { writes: range(0, 10), output: { kind: 'none' } }));
    const [original] = await run(subject.backend, make(question, { context: range(0, 10) }));
    subject.backend.copySlots(
      range(0, 10),
      random.permutation(10).map((slot) => slot + 100),
    );
    const [copied] = await run(subject.backend, make(question, { context: range(100, 110) }));
    close(copied, original);
    // Move all slots by one: sources and destinations overlap.
    subject.backend.copySlots(range(0, 10), range(1, 11));
    close((await run(subject.backend, make(question, { context: range(1, 11) })))[0], original);
    // Swap two slots.
    subject.backend.copySlots(Uint32Array.of(1, 2), Uint32Array.of(2, 1));
    close((await run(subject.backend, make(question, { context: range(1, 11) })))[0], original);
    subject.backend.copySlots(new Uint32Array(0), new Uint32Array(0));
  });

  test('copied keys are rotated by their shifts', async () => {
    const tokens = random.tokens(subject.model.config, 9);
    const question = random.tokens(subject.model.config, 2);
    const prefill = (first: number, start: number) =>
      make(tokens, {
        writes: range(first, first + 9),
        positions: range(start, start + 9),
        output: { kind: 'none' },
      });
    await run(subject.backend, prefill(0, 30));
    const ask = (first: number, start: number) =>
      run(subject.backend, make(question, { context: range(first, first + 9), positions: range(start, start + 2) }));
    // A context moved by one shift must equal the context computed there, also past the trained length and backwards.
    for (const shift of [7, -30, 100_000]) {
      subject.backend.copySlots(range(0, 9), range(100, 109), new Int32Array(9).fill(shift));
      await run(subject.backend, prefill(120, 30 + shift));
      close((await ask(100, 39 + shift))[0], (await ask(120, 39 + shift))[0]);
    }
    // Rotate each slot by its own shift, in place, and back: the result must equal the original.
    const shifts = Int32Array.from(range(0, 9), (i) => 5 * i - 11);
    const [before] = await ask(0, 39);
    subject.backend.copySlots(range(0, 9), range(0, 9), shifts);
    assert.ok(relativeError((await ask(0, 39))[0], before) > 10 * TOLERANCE);
    subject.backend.copySlots(
      range(0, 9),
      range(0, 9),
      shifts.map((shift) => -shift),
    );
    close((await ask(0, 39))[0], before);
  });

  test('pages are moved out and in bit for bit', async () => {
    const slots = range(3 * POOL.pageSize, 5 * POOL.pageSize);
    const tokens = random.tokens(subject.model.config, slots.length);
    await run(subject.backend, make(tokens, { writes: slots, output: { kind: 'none' } }));
    const question = make(random.tokens(subject.model.config, 1), { context: slots });
    const [before] = await run(subject.backend, question);
    const pages = [3, 4].map((page) => {
      // Read into an odd offset of a larger buffer, as a file reader may do.
      const bytes = new Uint8Array(subject.backend.pageBytes + 3).subarray(3);
      subject.backend.readPage(page, bytes);
      return bytes;
    });
    await run(
      subject.backend,
      make(random.tokens(subject.model.config, slots.length), { writes: slots, output: { kind: 'none' } }),
    );
    assert.notDeepEqual(await run(subject.backend, question), [before]);
    subject.backend.writePage(8, pages[0]);
    subject.backend.writePage(3, Buffer.from(pages[0]));
    subject.backend.writePage(4, pages[1]);
    assert.deepEqual(await run(subject.backend, question), [before]);
    const again = new Uint8Array(subject.backend.pageBytes);
    subject.backend.readPage(8, again);
    assert.deepEqual(again, Uint8Array.from(pages[0]));
    const elsewhere = Uint32Array.of(...range(8 * POOL.pageSize, 9 * POOL.pageSize), ...slots.subarray(POOL.pageSize));
    assert.deepEqual(await run(subject.backend, { ...question, context: elsewhere }), [before]);
  });

  test('every bit pattern survives a page move', () => {
    const bytes = new Uint8Array(subject.backend.pageBytes).map(() => random.below(256));
    const back = new Uint8Array(subject.backend.pageBytes);
    subject.backend.writePage(0, bytes);
    subject.backend.readPage(0, back);
    assert.deepEqual(back, bytes);
    subject.backend.writePage(0, new Uint8Array(subject.backend.pageBytes));
  });

  test('a sequence reads slots that earlier sequences of its batch write, also in chains', async () => {
    const { chain, alone } = splitPrompt(subject.model.config, random);
    const step = (batch: readonly SequenceInput[]) => run(subject.backend, ...batch);
    const together = await step(chain);
    const oneByOne: Float32Array[] = [];
    for (const each of chain) oneByOne.push((await step([each]))[0]);
    chain.forEach((_, i) => {
      close(together[i], oneByOne[i]);
    });
    close(together[chain.length - 1], (await step([alone]))[0]);
    // Later batches must read the written keys and values.
    const last = chain[chain.length - 1];
    const everything = Uint32Array.of(...last.context, ...last.writes);
    const after = make(Uint32Array.of(5), { context: everything });
    await step(chain);
    const [batched] = await step([after]);
    for (const each of chain) await step([each]);
    close(batched, (await step([after]))[0]);
  });

  test('many sequences read slots that another sequence of their batch writes: different parts, some with masks', async () => {
    const prompt = random.tokens(subject.model.config, 24);
    const writer = make(prompt, { writes: range(0, 24) });
    const readers = Array.from({ length: 6 }, (_, i) => {
      const context = range(0, 24 - 2 * i);
      const mask = Uint8Array.from({ length: context.length + 1 }, (_, j) => (j % 5 === i ? 0 : 1));
      const writes = range(40 + i, 41 + i);
      return make(random.tokens(subject.model.config, 1), { context, writes, ...(i % 2 ? { mask } : {}) });
    });
    const others = [make(random.tokens(subject.model.config, 3)), make(random.tokens(subject.model.config, 1))];
    const batch = [others[0], writer, ...readers, others[1]];
    const together = await run(subject.backend, ...batch);
    for (const [i, each] of batch.entries()) close(together[i], (await run(subject.backend, each))[0]);
  });

  test('a context that names written slots twice counts them twice', async () => {
    const writer = make(random.tokens(subject.model.config, 4), { writes: range(0, 4) });
    const context = Uint32Array.of(0, 1, 2, 3, 1, 1);
    const reader = make(random.tokens(subject.model.config, 2), { context, positions: range(4, 6) });
    const [, together] = await run(subject.backend, writer, reader);
    close(together, (await run(subject.backend, reader))[0]);
    const [once] = await run(subject.backend, { ...reader, context: range(0, 4) });
    assert.ok(relativeError(together, once) > 10 * TOLERANCE);
  });
});

/** One prompt in two forms: as a chain of sequences that read each other's writes, in scattered slots, and as a single sequence. */
function splitPrompt(config: ModelConfig, random: Random): { chain: SequenceInput[]; alone: SequenceInput } {
  const slots = random.permutation(POOL.pageSize * POOL.pageCount).slice(0, 24);
  const tokens = random.tokens(config, 24);
  const ends = [5, 6, 14, 23, 24];
  const chain = ends.map((end, i): SequenceInput => {
    const start = i === 0 ? 0 : ends[i - 1];
    return sequence(config, tokens.subarray(start, end), {
      context: slots.subarray(0, start),
      writes: slots.subarray(start, end),
    });
  });
  return { chain, alone: sequence(config, tokens) };
}

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SequenceInput } from '../../backend.ts';
import { checkSequence, InvalidInput } from '../../check.ts';
import { range, run, wholeVocabulary } from '../scenario.ts';
import { POOL, topic } from './topic.ts';

/** Inputs, contexts and masks: a batch gives the same results however it is cut. */
export const inputs = topic('inputs, contexts and masks', (subject) => {
  const { random, close, make } = subject;

  test('a backend describes itself and its model', () => {
    assert.equal(subject.backend.name, subject.name.split(',')[0]);
    assert.equal(subject.backend.pageSize, POOL.pageSize);
    assert.equal(subject.backend.pageCount, POOL.pageCount);
    assert.deepEqual(subject.backend.config, subject.model.config);
    assert.ok(subject.backend.config.kvHeads < subject.backend.config.heads, 'grouped queries');
  });

  test('a prefill in two forwards, or one token at a time, computes the same as in one forward', async () => {
    const tokens = random.tokens(subject.model.config, 12);
    const [whole] = await run(subject.backend, make(tokens, { writes: range(0, 12) }));
    const [, split] = [
      await run(subject.backend, make(tokens.subarray(0, 7), { writes: range(20, 27), output: { kind: 'none' } })),
      await run(subject.backend, make(tokens.subarray(7), { context: range(20, 27), writes: range(27, 32) })),
    ];
    close(split[0], whole);
    let last: Float32Array = new Float32Array(0);
    for (let i = 0; i < tokens.length; i++) {
      const step = make(tokens.subarray(i, i + 1), { context: range(40, 40 + i), writes: range(40 + i, 41 + i) });
      [last] = await run(subject.backend, step);
    }
    close(last, whole);
  });

  test('a batch of decodes and prefills of different lengths computes the same as each sequence alone', async () => {
    const lengths = [3, 30, 1, 9];
    const contexts: Uint32Array[] = [];
    let next = 60;
    for (const length of lengths) {
      const slots = range(next, next + length);
      next += length;
      contexts.push(slots);
      await run(
        subject.backend,
        make(random.tokens(subject.model.config, length), { writes: slots, output: { kind: 'none' } }),
      );
    }
    const batch = [1, 4, 20, 1].map((count, i) =>
      make(random.tokens(subject.model.config, count), { context: contexts[i] }),
    );
    batch.push(make(random.tokens(subject.model.config, 6)));
    const together = await run(subject.backend, ...batch);
    for (let i = 0; i < batch.length; i++) {
      const [alone] = await run(subject.backend, batch[i]);
      close(together[i], alone);
    }
    for (const [i, reversed] of (await run(subject.backend, ...batch.toReversed())).entries()) {
      close(reversed, together[batch.length - 1 - i]);
    }
  });

  test('forks of one prefix compute the same together as alone', async () => {
    const prefix = range(0, 50);
    await run(
      subject.backend,
      make(random.tokens(subject.model.config, 50), { writes: prefix, output: { kind: 'none' } }),
    );
    const forks: SequenceInput[] = [];
    let next = 50;
    for (let i = 0; i < 10; i++) {
      // One fork leaves the prefix early.
      const shared = prefix.subarray(0, i === 4 ? 40 : 50);
      const own = range(next, next + i);
      next += i;
      if (i > 0) {
        await run(
          subject.backend,
          make(random.tokens(subject.model.config, i), { context: shared, writes: own, output: { kind: 'none' } }),
        );
      }
      const inputs = i === 7 ? 3 : 1;
      const writes = i % 2 === 0 ? range(next, next + inputs) : new Uint32Array(0);
      next += writes.length;
      const context = Uint32Array.of(...shared, ...own);
      forks.push(make(random.tokens(subject.model.config, inputs), { context, writes }));
    }
    const together = await run(subject.backend, ...forks, make(random.tokens(subject.model.config, 1)));
    const later: SequenceInput[] = [];
    for (const [i, fork] of forks.entries()) {
      const everything = Uint32Array.of(...fork.context, ...fork.writes);
      later.push(make(Uint32Array.of(i), { context: everything }));
    }
    const afterTogether = await run(subject.backend, ...later);
    for (const [i, fork] of forks.entries()) {
      close(together[i], (await run(subject.backend, fork))[0]);
      close(afterTogether[i], (await run(subject.backend, later[i]))[0]);
    }
  });

  test('forks of forks compute the same together as alone', async () => {
    let next = 0;
    const forks: SequenceInput[] = [];
    /** Appends tokens to a context, then grows three forks of the result, down to depth 2. */
    const grow = async (context: Uint32Array, depth: number): Promise<void> => {
      const length = [40, 12, 5][depth] ?? 0;
      const writes = range(next, next + length);
      next += length;
      const tokens = random.tokens(subject.model.config, length);
      await run(subject.backend, make(tokens, { context, writes, output: { kind: 'none' } }));
      const grown = Uint32Array.of(...context, ...writes);
      const inputs = forks.length % 5 === 4 ? 2 : 1;
      if (depth !== 1) forks.push(make(random.tokens(subject.model.config, inputs), { context: grown }));
      if (depth < 2) for (let i = 0; i < 3; i++) await grow(grown, depth + 1);
    };
    await grow(new Uint32Array(0), 0);
    const together = await run(subject.backend, ...forks, make(random.tokens(subject.model.config, 1)));
    for (const [i, fork] of forks.entries()) close(together[i], (await run(subject.backend, fork))[0]);
  });

  test('results do not depend on which slots are used', async () => {
    const tokens = random.tokens(subject.model.config, 20);
    const question = random.tokens(subject.model.config, 3);
    const scattered = random.permutation(POOL.pageSize * POOL.pageCount).slice(0, 20);
    await run(subject.backend, make(tokens, { writes: scattered, output: { kind: 'none' } }));
    const [far] = await run(subject.backend, make(question, { context: scattered }));
    const [near] = await run(subject.backend, make(Uint32Array.of(...tokens, ...question)));
    close(far, near);
    // Attention is over a set: the order of the slots decides only the order of the mask's columns.
    const [shuffled] = await run(subject.backend, make(question, { context: scattered.toReversed() }));
    close(shuffled, near);
  });

  test('embeds of tokens compute the same as the tokens', async () => {
    const tokens = random.tokens(subject.model.config, 6);
    const { hiddenSize } = subject.model.config;
    const table = subject.model.tensors.read('model.embed_tokens.weight');
    const embeds = new Float32Array(tokens.length * hiddenSize);
    tokens.forEach((token, i) => {
      embeds.set(table.subarray(token * hiddenSize, (token + 1) * hiddenSize), i * hiddenSize);
    });
    const other = make(random.tokens(subject.model.config, 4));
    const [byToken, byEmbed, beside] = await run(subject.backend, make(tokens), make(embeds), other);
    close(byEmbed, byToken);
    close(beside, (await run(subject.backend, other))[0]);
  });

  test('an explicit mask that equals the causal one changes nothing, and masked slots are as if absent', async () => {
    const context = random.tokens(subject.model.config, 8);
    await run(subject.backend, make(context, { writes: range(0, 8), output: { kind: 'none' } }));
    const tokens = random.tokens(subject.model.config, 4);
    const causalMask = new Uint8Array(4 * 12);
    for (let i = 0; i < 4; i++) causalMask.fill(1, i * 12, i * 12 + 8 + i + 1);
    const [causal] = await run(subject.backend, make(tokens, { context: range(0, 8) }));
    const [explicit] = await run(subject.backend, make(tokens, { context: range(0, 8), mask: causalMask }));
    close(explicit, causal);
    const maskWithGap = causalMask.slice();
    for (let i = 0; i < 4; i++) maskWithGap.fill(0, i * 12 + 2, i * 12 + 5);
    const visibleSlots = Uint32Array.of(0, 1, 5, 6, 7);
    const positions = range(8, 12);
    const [masked] = await run(subject.backend, make(tokens, { context: range(0, 8), mask: maskWithGap, positions }));
    const [absent] = await run(subject.backend, make(tokens, { context: visibleSlots, positions }));
    close(masked, absent);
  });

  test('inputs may see no key, or only later ones', async () => {
    const tokens = random.tokens(subject.model.config, 3);
    // Row 0 sees no input, row 1 only the third input, row 2 itself.
    const mask = Uint8Array.of(0, 0, 0, 0, 0, 1, 0, 0, 1);
    const output = wholeVocabulary(subject.model.config, 3);
    const [rows, beside] = await run(subject.backend, make(tokens, { mask, output }), make(tokens));
    assert.ok(rows.every(Number.isFinite));
    const size = subject.model.config.vocabularySize;
    const [alone] = await run(subject.backend, make(tokens.subarray(0, 1), { mask: Uint8Array.of(0) }));
    close(rows.subarray(0, size), alone);
    const [last] = await run(subject.backend, make(tokens.subarray(2), { positions: Uint32Array.of(2) }));
    close(rows.subarray(2 * size), last);
    close(beside, (await run(subject.backend, make(tokens)))[0]);
  });

  test('positions may have any value, even beyond the trained context and every table', async () => {
    const tokens = random.tokens(subject.model.config, 3);
    const relative: Float32Array[] = [];
    // The rotation is relative: the same distances give the same scores, up to the rounding of large angles.
    for (const start of [0, 300, 5000, 140_000]) {
      const positions = range(start, start + 3);
      relative.push((await run(subject.backend, make(tokens, { positions })))[0]);
    }
    for (const shifted of relative) close(shifted, relative[0]);
  });

  test('a batch that does not fit is refused before anything is computed', async () => {
    const tokens = random.tokens(subject.model.config, 2);
    const good = make(tokens);
    const bad: SequenceInput[] = [
      make(new Uint32Array(0)),
      make(Uint32Array.of(0, subject.model.config.vocabularySize)),
      { ...good, positions: range(0, 3) },
      { ...good, inputs: { kind: 'embeds', embeds: new Float32Array(3) } },
      { ...good, mask: new Uint8Array(3) },
      { ...good, context: Uint32Array.of(POOL.pageSize * POOL.pageCount) },
      { ...good, writes: Uint32Array.of(3) },
      { ...good, writes: Uint32Array.of(3, 2 ** 31) },
      { ...good, output: { kind: 'states', rows: 3 } },
      { ...good, output: { kind: 'top', rows: 0, topK: 1 } },
      { ...good, output: { kind: 'top', rows: 1, topK: 0 } },
      { ...good, output: { kind: 'top', rows: 1, topK: 1, allowed: new Uint32Array(2) } },
      make(new Float32Array(2 * subject.model.config.hiddenSize).fill(Number.NaN, 40, 41)),
      make(new Float32Array(2 * subject.model.config.hiddenSize).fill(Number.NEGATIVE_INFINITY, 3, 4)),
    ];
    const slotCount = POOL.pageSize * POOL.pageCount;
    checkSequence(subject.model.config, slotCount, good);
    for (const each of bad) {
      await assert.rejects(subject.backend.forward([good, each]), InvalidInput);
      // With checkSequence, a caller finds the bad sequence of its batch.
      assert.throws(() => checkSequence(subject.model.config, slotCount, each), InvalidInput);
    }
    const one = Uint32Array.of(0);
    assert.throws(() => subject.backend.copySlots(one, Uint32Array.of(9999)), InvalidInput);
    assert.throws(() => subject.backend.copySlots(one, Uint32Array.of(1, 2)), InvalidInput);
    assert.throws(() => subject.backend.copySlots(one, one, new Int32Array(2)), InvalidInput);
    const page = new Uint8Array(subject.backend.pageBytes);
    for (const index of [-1, 0.5, POOL.pageCount, Number.NaN]) {
      assert.throws(() => subject.backend.readPage(index, page), InvalidInput);
      assert.throws(() => subject.backend.writePage(index, page), InvalidInput);
    }
    assert.throws(() => subject.backend.readPage(0, page.subarray(1)), InvalidInput);
    assert.throws(() => subject.backend.writePage(0, page.subarray(1)), InvalidInput);
    const state = new Float32Array(subject.model.config.hiddenSize);
    const vocabulary = subject.model.config.vocabularySize;
    await assert.rejects(subject.backend.project(new Float32Array(5), 1, 1), InvalidInput);
    await assert.rejects(subject.backend.project(state.with(2, Number.NaN), 1, 1), InvalidInput);
    await assert.rejects(subject.backend.score(state, 1, []), InvalidInput);
    await assert.rejects(subject.backend.score(state, 1, [Uint32Array.of(vocabulary)]), InvalidInput);
    assert.deepEqual(await subject.backend.forward([]), []);
  });
});

import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { randomModel } from '#gpu-host/models/random-model.ts';
import type { Backend, SequenceInput } from './backend.ts';
import { createOnnxBackend } from './onnx/index.ts';
import { createReferenceBackend } from './reference/index.ts';
import { Random, range, relativeError, run, sequence, values, wholeVocabulary } from './testing/scenario.ts';

const POOL = { pageSize: 16, pageCount: 16 };
const TOLERANCE = 1e-4;

const BACKENDS: Readonly<Record<string, (model: LoadedModel) => Promise<Backend>>> = {
  reference: (model) => createReferenceBackend(model, POOL),
  onnx: (model) => createOnnxBackend(model, { ...POOL, bits: 32, threads: 1 }),
};

/** What any backend must do, held against itself: the same suite for all. Parity with the reference is in parity.test.ts. */
for (const [name, create] of Object.entries(BACKENDS)) {
  describe(`${name} backend`, () => {
    let directory: string;
    let model: LoadedModel;
    let backend: Backend;
    const random = new Random(11);

    before(async () => {
      directory = await mkdtemp(join(tmpdir(), 'pie-conformance-'));
      model = await randomModel(directory, {}, 5);
      backend = await create(model);
    });
    after(async () => {
      await backend.dispose();
      await rm(directory, { recursive: true, force: true });
    });

    const close = (actual: Float32Array, expected: Float32Array) => {
      const error = relativeError(actual, expected);
      assert.ok(error <= TOLERANCE, `relative error ${error}`);
    };
    const make = (inputs: Uint32Array | Float32Array, rest: Parameters<typeof sequence>[2] = {}) =>
      sequence(model.config, inputs, rest);

    test('describes itself', () => {
      assert.equal(backend.name, name);
      assert.equal(backend.pageSize, POOL.pageSize);
      assert.equal(backend.pageCount, POOL.pageCount);
      assert.deepEqual(backend.config, model.config);
      assert.ok(backend.config.kvHeads < backend.config.heads, 'grouped queries');
    });

    test('probabilities sum to one, most probable first', async () => {
      const [output] = await backend.forward([make(random.tokens(model.config, 5))]);
      assert.equal(output.kind, 'top');
      const sum = output.logProbabilities.reduce((total, each) => total + Math.exp(each), 0);
      assert.ok(Math.abs(sum - 1) < 1e-4, `${sum}`);
      assert.deepEqual(output.logProbabilities, output.logProbabilities.toSorted().reverse());
      assert.deepEqual(output.tokens.toSorted(), range(0, model.config.vocabularySize));
    });

    test('fewer tokens are the first of more; without probabilities they are the same', async () => {
      const tokens = random.tokens(model.config, 4);
      const all = make(tokens, { output: wholeVocabulary(model.config, 2) });
      const [whole, three, bare, excess] = await backend.forward([
        all,
        { ...all, output: { kind: 'top', rows: 2, topK: 3 } },
        { ...all, output: { kind: 'top', rows: 2, topK: 2, tokensOnly: true } },
        { ...all, output: { kind: 'top', rows: 2, topK: 10_000 } },
      ]);
      assert.ok(whole.kind === 'top' && three.kind === 'top' && bare.kind === 'top' && excess.kind === 'top');
      const size = model.config.vocabularySize;
      assert.deepEqual(
        three.tokens,
        Uint32Array.of(...whole.tokens.slice(0, 3), ...whole.tokens.slice(size, size + 3)),
      );
      assert.deepEqual(bare.tokens, Uint32Array.of(...whole.tokens.slice(0, 2), ...whole.tokens.slice(size, size + 2)));
      assert.equal(three.logProbabilities.length, 6);
      assert.equal(bare.logProbabilities.length, 0);
      assert.equal(excess.topK, size);
      assert.deepEqual(excess.tokens, whole.tokens);
    });

    test('a prefill split into two forwards, and one token at a time, are the same as one', async () => {
      const tokens = random.tokens(model.config, 12);
      const [whole] = await run(backend, make(tokens, { writes: range(0, 12) }));
      const [, split] = [
        await run(backend, make(tokens.subarray(0, 7), { writes: range(20, 27), output: { kind: 'none' } })),
        await run(backend, make(tokens.subarray(7), { context: range(20, 27), writes: range(27, 32) })),
      ];
      close(split[0], whole);
      let last: Float32Array = new Float32Array(0);
      for (let i = 0; i < tokens.length; i++) {
        const step = make(tokens.subarray(i, i + 1), { context: range(40, 40 + i), writes: range(40 + i, 41 + i) });
        [last] = await run(backend, step);
      }
      close(last, whole);
    });

    test('ragged batches are the same as each alone, decode and prefill mixed', async () => {
      const lengths = [3, 30, 1, 9];
      const contexts: Uint32Array[] = [];
      let next = 60;
      for (const length of lengths) {
        const slots = range(next, next + length);
        next += length;
        contexts.push(slots);
        await run(backend, make(random.tokens(model.config, length), { writes: slots, output: { kind: 'none' } }));
      }
      const batch = [1, 4, 20, 1].map((count, i) => make(random.tokens(model.config, count), { context: contexts[i] }));
      batch.push(make(random.tokens(model.config, 6)));
      const together = await run(backend, ...batch);
      for (let i = 0; i < batch.length; i++) {
        const [alone] = await run(backend, batch[i]);
        close(together[i], alone);
      }
      for (const [i, reversed] of (await run(backend, ...batch.toReversed())).entries()) {
        close(reversed, together[batch.length - 1 - i]);
      }
    });

    test('forks of one prefix are the same beside each other as alone', async () => {
      const prefix = range(0, 50);
      await run(backend, make(random.tokens(model.config, 50), { writes: prefix, output: { kind: 'none' } }));
      const forks: SequenceInput[] = [];
      let next = 50;
      for (let i = 0; i < 10; i++) {
        const own = range(next, next + i);
        next += i;
        // Some forks leave the prefix early.
        const context = Uint32Array.of(...prefix.subarray(0, i === 4 ? 40 : 50), ...own);
        if (i > 0) {
          const writes = own;
          const before = prefix.subarray(0, i === 4 ? 40 : 50);
          await run(
            backend,
            make(random.tokens(model.config, i), { context: before, writes, output: { kind: 'none' } }),
          );
        }
        const inputs = i === 7 ? 3 : 1;
        const writes = i % 2 === 0 ? range(next, next + inputs) : new Uint32Array(0);
        next += writes.length;
        forks.push(make(random.tokens(model.config, inputs), { context, writes }));
      }
      const together = await run(backend, ...forks, make(random.tokens(model.config, 1)));
      const later: SequenceInput[] = [];
      for (const [i, fork] of forks.entries()) {
        const everything = Uint32Array.of(...fork.context, ...fork.writes);
        later.push(make(Uint32Array.of(i), { context: everything }));
      }
      const afterTogether = await run(backend, ...later);
      for (const [i, fork] of forks.entries()) {
        close(together[i], (await run(backend, fork))[0]);
        close(afterTogether[i], (await run(backend, later[i]))[0]);
      }
    });

    test('where the slots lie does not matter', async () => {
      const tokens = random.tokens(model.config, 20);
      const question = random.tokens(model.config, 3);
      const scattered = random.permutation(POOL.pageSize * POOL.pageCount).slice(0, 20);
      await run(backend, make(tokens, { writes: scattered, output: { kind: 'none' } }));
      const [far] = await run(backend, make(question, { context: scattered }));
      const [near] = await run(backend, make(Uint32Array.of(...tokens, ...question)));
      close(far, near);
      // Attention is over a set: the order of the slots is nothing but the order of the mask's columns.
      const [shuffled] = await run(backend, make(question, { context: scattered.toReversed() }));
      close(shuffled, near);
    });

    test('embeds take the place of tokens', async () => {
      const tokens = random.tokens(model.config, 6);
      const { hiddenSize } = model.config;
      const table = model.tensors.read('model.embed_tokens.weight');
      const embeds = new Float32Array(tokens.length * hiddenSize);
      tokens.forEach((token, i) => {
        embeds.set(table.subarray(token * hiddenSize, (token + 1) * hiddenSize), i * hiddenSize);
      });
      const other = make(random.tokens(model.config, 4));
      const [byToken, byEmbed, beside] = await run(backend, make(tokens), make(embeds), other);
      close(byEmbed, byToken);
      close(beside, (await run(backend, other))[0]);
    });

    test('states project to the same probabilities, and may be inputs again', async () => {
      const tokens = random.tokens(model.config, 5);
      const wanted = make(tokens, { output: wholeVocabulary(model.config, 3) });
      const [top, output] = await backend.forward([wanted, { ...wanted, output: { kind: 'states', rows: 3 } }]);
      assert.ok(output.kind === 'states' && output.states.length === 3 * model.config.hiddenSize);
      const projected = await backend.project(output.states, 3, model.config.vocabularySize);
      close(values({ kind: 'top', ...projected }), values(top));
      const [again] = await backend.forward([make(output.states.slice(), { output: { kind: 'states', rows: 1 } })]);
      assert.ok(again.kind === 'states' && again.states.every(Number.isFinite));
      assert.equal((await backend.project(new Float32Array(0), 0, 4)).tokens.length, 0);
    });

    test('an explicit mask: causal written out, a masked slot as if it were not there, and its undoing', async () => {
      const context = random.tokens(model.config, 8);
      await run(backend, make(context, { writes: range(0, 8), output: { kind: 'none' } }));
      const tokens = random.tokens(model.config, 4);
      const written = new Uint8Array(4 * 12);
      for (let i = 0; i < 4; i++) written.fill(1, i * 12, i * 12 + 8 + i + 1);
      const [causal] = await run(backend, make(tokens, { context: range(0, 8) }));
      const [explicit] = await run(backend, make(tokens, { context: range(0, 8), mask: written }));
      close(explicit, causal);
      const without = written.slice();
      for (let i = 0; i < 4; i++) without.fill(0, i * 12 + 2, i * 12 + 5);
      const kept = Uint32Array.of(0, 1, 5, 6, 7);
      const positions = range(8, 12);
      const [masked] = await run(backend, make(tokens, { context: range(0, 8), mask: without, positions }));
      const [absent] = await run(backend, make(tokens, { context: kept, positions }));
      close(masked, absent);
    });

    test('inputs that see no key, or only later ones', async () => {
      const tokens = random.tokens(model.config, 3);
      // Row 0 sees nothing, row 1 only the third input, row 2 itself.
      const mask = Uint8Array.of(0, 0, 0, 0, 0, 1, 0, 0, 1);
      const output = wholeVocabulary(model.config, 3);
      const [rows, beside] = await run(backend, make(tokens, { mask, output }), make(tokens));
      assert.ok(rows.every(Number.isFinite));
      const size = model.config.vocabularySize;
      const [alone] = await run(backend, make(tokens.subarray(0, 1), { mask: Uint8Array.of(0) }));
      close(rows.subarray(0, size), alone);
      const [last] = await run(backend, make(tokens.subarray(2), { positions: Uint32Array.of(2) }));
      close(rows.subarray(2 * size), last);
      close(beside, (await run(backend, make(tokens)))[0]);
    });

    test('nothing is written without slots to write to', async () => {
      const tokens = random.tokens(model.config, 6);
      await run(backend, make(tokens, { writes: range(0, 6), output: { kind: 'none' } }));
      const question = make(random.tokens(model.config, 1), { context: range(0, 6) });
      const [first] = await run(backend, question);
      await run(backend, make(random.tokens(model.config, 9)), make(random.tokens(model.config, 2)));
      assert.deepEqual((await run(backend, question))[0], first);
    });

    test('slots are copied, all read before any is written', async () => {
      const tokens = random.tokens(model.config, 10);
      const question = random.tokens(model.config, 2);
      await run(backend, make(tokens, { writes: range(0, 10), output: { kind: 'none' } }));
      const [original] = await run(backend, make(question, { context: range(0, 10) }));
      backend.copySlots(
        range(0, 10),
        random.permutation(10).map((slot) => slot + 100),
      );
      const [copied] = await run(backend, make(question, { context: range(100, 110) }));
      close(copied, original);
      // One to the right, over themselves.
      backend.copySlots(range(0, 10), range(1, 11));
      close((await run(backend, make(question, { context: range(1, 11) })))[0], original);
      // A swap.
      backend.copySlots(Uint32Array.of(1, 2), Uint32Array.of(2, 1));
      close((await run(backend, make(question, { context: range(1, 11) })))[0], original);
      backend.copySlots(new Uint32Array(0), new Uint32Array(0));
    });

    test('positions are free, beyond the trained context and any table', async () => {
      const tokens = random.tokens(model.config, 3);
      const relative: Float32Array[] = [];
      // The rotation is relative: the same distances give the same scores, up to the rounding of large angles.
      for (const start of [0, 300, 5000, 140_000]) {
        const positions = range(start, start + 3);
        relative.push((await run(backend, make(tokens, { positions })))[0]);
      }
      for (const shifted of relative) close(shifted, relative[0]);
    });

    test('what does not fit is refused before anything is computed', async () => {
      const tokens = random.tokens(model.config, 2);
      const good = make(tokens);
      const bad: SequenceInput[] = [
        make(new Uint32Array(0)),
        make(Uint32Array.of(0, model.config.vocabularySize)),
        { ...good, positions: range(0, 3) },
        { ...good, inputs: { kind: 'embeds', embeds: new Float32Array(3) } },
        { ...good, mask: new Uint8Array(3) },
        { ...good, context: Uint32Array.of(POOL.pageSize * POOL.pageCount) },
        { ...good, writes: Uint32Array.of(3) },
        { ...good, writes: Uint32Array.of(3, 2 ** 31) },
        { ...good, output: { kind: 'states', rows: 3 } },
        { ...good, output: { kind: 'top', rows: 0, topK: 1 } },
        { ...good, output: { kind: 'top', rows: 1, topK: 0 } },
      ];
      for (const each of bad) await assert.rejects(backend.forward([good, each]), RangeError);
      assert.throws(() => backend.copySlots(Uint32Array.of(0), Uint32Array.of(9999)), RangeError);
      assert.throws(() => backend.copySlots(Uint32Array.of(0), Uint32Array.of(1, 2)), RangeError);
      await assert.rejects(backend.project(new Float32Array(5), 1, 1), RangeError);
      assert.deepEqual(await backend.forward([]), []);
    });
  });
}

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { allowedMask } from '../handlers.ts';
import { range, run, values, wholeVocabulary } from '../scenario.ts';
import { topic } from './topic.ts';

/** Checks the kinds of output against each other: top tokens, states, projections, scores and received attention. */
export const outputs = topic('outputs', (subject) => {
  const { random, close, make } = subject;

  test('probabilities sum to one, and the most probable token comes first', async () => {
    const [output] = await subject.backend.forward([make(random.tokens(subject.model.config, 5))]);
    assert.equal(output.kind, 'top');
    const sum = output.logProbabilities.reduce((total, each) => total + Math.exp(each), 0);
    assert.ok(Math.abs(sum - 1) < 1e-4, `${sum}`);
    assert.deepEqual(output.logProbabilities, output.logProbabilities.toSorted().reverse());
    assert.deepEqual(output.tokens.toSorted(), range(0, subject.model.config.vocabularySize));
  });

  test('a smaller topK gives the first tokens of a larger one, with and without probabilities', async () => {
    const tokens = random.tokens(subject.model.config, 4);
    const all = make(tokens, { output: wholeVocabulary(subject.model.config, 2) });
    const [whole, three, bare, excess] = await subject.backend.forward([
      all,
      { ...all, output: { kind: 'top', rows: 2, topK: 3 } },
      { ...all, output: { kind: 'top', rows: 2, topK: 2, tokensOnly: true } },
      { ...all, output: { kind: 'top', rows: 2, topK: 10_000 } },
    ]);
    assert.ok(whole.kind === 'top' && three.kind === 'top' && bare.kind === 'top' && excess.kind === 'top');
    const size = subject.model.config.vocabularySize;
    assert.deepEqual(three.tokens, Uint32Array.of(...whole.tokens.slice(0, 3), ...whole.tokens.slice(size, size + 3)));
    assert.deepEqual(bare.tokens, Uint32Array.of(...whole.tokens.slice(0, 2), ...whole.tokens.slice(size, size + 2)));
    assert.equal(three.logProbabilities.length, 6);
    assert.equal(bare.logProbabilities.length, 0);
    assert.equal(excess.topK, size);
    assert.deepEqual(excess.tokens, whole.tokens);
  });

  test('states project to the same probabilities, and may be inputs again', async () => {
    const tokens = random.tokens(subject.model.config, 5);
    const wanted = make(tokens, { output: wholeVocabulary(subject.model.config, 3) });
    const [top, output] = await subject.backend.forward([wanted, { ...wanted, output: { kind: 'states', rows: 3 } }]);
    assert.ok(output.kind === 'states' && output.states.length === 3 * subject.model.config.hiddenSize);
    const projected = await subject.backend.project(output.states, 3, subject.model.config.vocabularySize);
    close(values({ kind: 'top', ...projected }), values(top));
    const [again] = await subject.backend.forward([
      make(output.states.slice(), { output: { kind: 'states', rows: 1 } }),
    ]);
    assert.ok(again.kind === 'states' && again.states.every(Number.isFinite));
    assert.equal((await subject.backend.project(new Float32Array(0), 0, 4)).tokens.length, 0);
  });

  test('one request can ask for the states and the most probable tokens of the same rows', async () => {
    const tokens = random.tokens(subject.model.config, 5);
    const top = make(tokens, { output: { ...wholeVocabulary(subject.model.config, 2), states: true } });
    const bare = make(tokens, { output: { kind: 'top', rows: 3, topK: 1, tokensOnly: true, states: true } });
    const states = make(tokens, { output: { kind: 'states', rows: 3 } });
    const plain = make(random.tokens(subject.model.config, 2), { output: wholeVocabulary(subject.model.config) });
    const [first, beside, second, expected] = await subject.backend.forward([top, plain, bare, states]);
    assert.ok(first.kind === 'top' && second.kind === 'top' && expected.kind === 'states' && beside.kind === 'top');
    assert.equal(beside.states, undefined);
    close(second.states ?? new Float32Array(0), expected.states);
    close(first.states ?? new Float32Array(0), expected.states.slice(subject.model.config.hiddenSize));
    const projected = await subject.backend.project(
      first.states ?? new Float32Array(0),
      2,
      subject.model.config.vocabularySize,
    );
    close(values({ kind: 'top', ...projected }), values(first));
  });

  test('allowed tokens share all of the probability, in the same order', async () => {
    const { vocabularySize } = subject.model.config;
    const rows = 3;
    const tokens = random.tokens(subject.model.config, 6);
    const allowed = allowedMask(subject.model.config, random, rows);
    const free = make(tokens, { output: wholeVocabulary(subject.model.config, rows) });
    const masked = make(tokens, { output: { ...wholeVocabulary(subject.model.config, rows), allowed } });
    const all = make(tokens, {
      output: {
        ...wholeVocabulary(subject.model.config, rows),
        allowed: new Uint32Array(allowed.length).fill(0xffffffff),
      },
    });
    const [whole, restricted, unrestricted, beside] = await subject.backend.forward([free, masked, all, make(tokens)]);
    assert.ok(whole.kind === 'top' && restricted.kind === 'top' && beside.kind === 'top');
    close(values(unrestricted), values(whole));
    const words = allowed.length / rows;
    for (let row = 0; row < rows; row++) {
      const start = row * vocabularySize;
      const isAllowed = (token: number) => ((allowed[row * words + (token >> 5)] >>> (token & 31)) & 1) === 1;
      const places: number[] = Array.from(range(start, start + vocabularySize)).filter((i) =>
        isAllowed(whole.tokens[i]),
      );
      const total = places.reduce((sum, i) => sum + Math.exp(whole.logProbabilities[i]), 0);
      places.forEach((place, k) => {
        assert.equal(restricted.tokens[start + k], whole.tokens[place]);
        const expected = whole.logProbabilities[place] - Math.log(total);
        assert.ok(Math.abs(restricted.logProbabilities[start + k] - expected) < 1e-4);
      });
      for (let k: number = start + places.length; k < start + vocabularySize; k++) {
        assert.equal(restricted.tokens[k], 0);
        assert.equal(restricted.logProbabilities[k], Number.NEGATIVE_INFINITY);
      }
    }
    // The mask does not affect another sequence of the batch.
    const last = values(whole).subarray((rows - 1) * vocabularySize);
    close(values(beside), last);
    // Masks that allow no token.
    const none = { kind: 'top', rows: 1, topK: 3, allowed: new Uint32Array(words) } as const;
    const [nothing, tokensOnly] = await subject.backend.forward([
      make(tokens, { output: none }),
      make(tokens, { output: { ...none, tokensOnly: true } }),
    ]);
    assert.ok(nothing.kind === 'top' && tokensOnly.kind === 'top');
    assert.deepEqual(nothing.tokens, new Uint32Array(3));
    assert.deepEqual(nothing.logProbabilities, new Float32Array(3).fill(Number.NEGATIVE_INFINITY));
    assert.deepEqual(tokensOnly.tokens, new Uint32Array(3));
    assert.equal(tokensOnly.logProbabilities.length, 0);
  });

  test('score returns the log-probabilities of given tokens and the entropy of the whole distribution', async () => {
    const tokens = random.tokens(subject.model.config, 5);
    const { vocabularySize } = subject.model.config;
    const [output] = await subject.backend.forward([
      make(tokens, { output: { ...wholeVocabulary(subject.model.config, 3), states: true } }),
    ]);
    assert.ok(output.kind === 'top' && output.states !== undefined);
    const byToken = values(output);
    const wanted = [
      random.tokens(subject.model.config, 7),
      new Uint32Array(0),
      Uint32Array.of(3, 3, vocabularySize - 1),
    ];
    const { logProbabilities, entropies } = await subject.backend.score(output.states, 3, wanted);
    for (let row = 0; row < 3; row++) {
      const own = byToken.subarray(row * vocabularySize, (row + 1) * vocabularySize);
      close(
        logProbabilities[row],
        Float32Array.from(wanted[row], (token) => own[token]),
      );
      const entropy = -own.reduce((sum, each) => sum + Math.exp(each) * each, 0);
      assert.ok(Math.abs(entropies[row] - entropy) < 1e-4, `${entropies[row]} nats, not ${entropy}`);
    }
    const none = await subject.backend.score(new Float32Array(0), 0, []);
    assert.deepEqual(none, { logProbabilities: [], entropies: new Float32Array(0) });
  });

  test('the received attention sums to the number of inputs, and masked keys receive none', async () => {
    await run(
      subject.backend,
      make(random.tokens(subject.model.config, 10), { writes: range(0, 10), output: { kind: 'none' } }),
    );
    const inputs = 3;
    // Each row of the mask has 13 keys: 10 context slots and 3 inputs. No input sees keys 4 and 11.
    const mask = Uint8Array.from({ length: inputs * (10 + inputs) }, (_, i) => (i % 13 === 4 || i % 13 === 11 ? 0 : 1));
    const watched = make(random.tokens(subject.model.config, inputs), { context: range(0, 10), attention: true, mask });
    const causal = make(random.tokens(subject.model.config, 4), {
      context: range(0, 6),
      attention: true,
      writes: range(20, 24),
    });
    const reader = make(random.tokens(subject.model.config, 2), {
      context: Uint32Array.of(...range(20, 24), ...range(2, 5)),
      attention: true,
      output: { kind: 'none' },
    });
    const alone = make(Uint32Array.of(7), { attention: true, output: { kind: 'states', rows: 1 } });
    const batch = [watched, causal, make(random.tokens(subject.model.config, 2)), reader, alone];
    const outputs = await subject.backend.forward(batch);
    for (const [i, each] of batch.entries()) {
      const { attention } = outputs[i];
      if (each.attention !== true) {
        assert.equal(attention, undefined);
        continue;
      }
      assert.ok(attention !== undefined && attention.length === each.context.length + each.positions.length);
      const sum = attention.reduce((total, share) => total + share, 0);
      assert.ok(Math.abs(sum - each.positions.length) < 1e-4, `${sum}`);
      const [single] = await subject.backend.forward([each]);
      close(attention, single.attention ?? new Float32Array(0));
      close(values(outputs[i]), values(single));
    }
    assert.equal(outputs[0].attention?.[4], 0);
    assert.equal(outputs[0].attention?.[11], 0);
    close(outputs[4].attention ?? new Float32Array(0), Float32Array.of(1));
  });
});

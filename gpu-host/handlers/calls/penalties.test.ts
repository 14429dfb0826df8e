import assert from 'node:assert/strict';
import { test } from 'node:test';
import { seeded } from '#test/harness/random.ts';
import { CHOSEN_TOKEN } from '../../backends/backend.ts';
import { drawPlace } from '../../backends/draw.ts';
import type { CallFault } from '../../memory/fault.ts';
import type { LogitChanges, Sampler } from '../../protocol/calls.ts';
import { GREEDY, must, NONE, tagOf } from '../../testing/host.ts';
import { ids, PROMPT, type Workbench, withWorkbench } from '../../testing/workbench.ts';
import { Penalties } from './penalties.ts';

const UNCHANGED: LogitChanges = {
  frequency: 0,
  presence: 0,
  biasTokens: NONE,
  biasValues: new Float32Array(),
  chosen: NONE,
};
const SAMPLED: Sampler = { temperature: 0.9, topK: 12, topP: 0.95, minP: 0.01, seed: 7 };
const STEPS = 12;

/** Biases from pairs of token and value. */
const biased = (...pairs: (readonly [token: number, value: number])[]): LogitChanges => ({
  ...UNCHANGED,
  biasTokens: Uint32Array.from(pairs, ([token]) => token),
  biasValues: Float32Array.from(pairs, ([, value]) => value),
});

/** The token by definition: changes every logit of the vocabulary, sorts them, and picks. */
function definedToken(
  { frequency, presence, biasTokens, biasValues, chosen }: LogitChanges,
  sampler: Sampler,
  logits: ReadonlyMap<number, number>,
  position: number,
): number {
  const changed = new Map(logits);
  const add = (token: number, value: number) => changed.set(token, (changed.get(token) ?? 0) + value);
  for (const [i, token] of biasTokens.entries()) add(token, biasValues[i] as number);
  for (const token of chosen) add(token, -frequency);
  for (const token of new Set(chosen)) add(token, -presence);
  const sorted = [...changed].toSorted(([a, x], [b, y]) => y - x || a - b);
  const values = Float32Array.from(sorted, ([, value]) => value);
  const place = sampler.temperature === 0 ? 0 : drawPlace({ ...sampler, position }, values, 0, values.length);
  return sorted[place]?.[0] as number;
}

test('wrong changes are refused', () => {
  const refused: [LogitChanges, CallFault['error']['tag'], RegExp][] = [
    [{ ...UNCHANGED, frequency: Number.NaN }, 'invalid-argument', /frequency NaN/],
    [{ ...UNCHANGED, presence: Number.POSITIVE_INFINITY }, 'invalid-argument', /presence Infinity/],
    [biased([3, Number.POSITIVE_INFINITY]), 'invalid-argument', /bias Infinity/],
    [biased([64, 1]), 'invalid-argument', /token 64/],
    [{ ...UNCHANGED, chosen: ids(64) }, 'invalid-argument', /token 64/],
    [{ ...UNCHANGED, biasTokens: ids(3) }, 'invalid-argument', /0 bias-values for 1/],
    [{ ...UNCHANGED, chosen: new Uint32Array(8193) }, 'limit-exceeded', /8193 chosen tokens; 8192/],
    [{ ...UNCHANGED, frequency: 1e7 }, 'invalid-argument', /frequency 10000000/],
    [biased(...Array.from({ length: 1025 }, () => [1, -1] as const)), 'limit-exceeded', /1025 biases; 1024/],
  ];
  for (const [changes, tag, text] of refused) {
    assert.throws(
      () => new Penalties(changes, 64, 0),
      ({ error, message }: CallFault) => error.tag === tag && text.test(message),
    );
  }
  const chosen = new Uint32Array(8200);
  assert.throws(() => new Penalties({ ...UNCHANGED, chosen }, 64, 7), /8200 chosen tokens; 8199/);
  assert.ok(new Penalties({ ...UNCHANGED, chosen }, 64, 8), 'the rest of a run that a quota capped');
  const all = Array.from({ length: 64 }, (_, token) => [token, Number.NEGATIVE_INFINITY] as const);
  assert.throws(() => new Penalties(biased(...all), 64, 0), /leave no token/);
  assert.ok(new Penalties(biased(...all.slice(1)), 64, 0));
});

/** The tokens of a run whose first input, `token`, stands in place of the prompt's last token. */
async function run(b: Workbench, changes: LogitChanges, sampler: Sampler, token = 12, maxTokens = STEPS) {
  const pages = b.pages(4);
  must(await b.fill(pages, PROMPT.slice(0, -1)));
  const request = { token, position: PROMPT.length - 1, pages, maxTokens, sampler, stopTokens: NONE, changes };
  const handle = b.inferlet.run(b.queue, request);
  const tokens: number[] = [];
  for (;;) {
    const chunk = await handle.next();
    if (chunk.tag === 'err') return chunk;
    tokens.push(...chunk.val.tokens);
    if (chunk.val.finished) break;
  }
  b.inferlet.freePages(b.queue, pages);
  return { tag: 'ok' as const, val: tokens };
}

test('the list of changes has each changed token once, with its current change', () => {
  for (let seed = 1; seed <= 50; seed++) {
    const below = seeded(seed);
    const some = (count: number) => Uint32Array.from({ length: count }, () => below(200));
    const biasTokens = some(below(20));
    const changes: LogitChanges = {
      frequency: below(3),
      presence: below(3) - 1,
      biasTokens,
      biasValues: Float32Array.from(biasTokens, () => (below(9) === 0 ? Number.NEGATIVE_INFINITY : below(9) - 4)),
      chosen: some(below(90)),
    };
    const penalties = new Penalties(changes, 200, 0);
    const list = penalties.changes;
    const chosen = changes.frequency === 0 && changes.presence === 0 ? [] : [...changes.chosen];
    for (let step = 0; step < 100; step++) {
      const expected = new Map<number, number>();
      const add = (token: number, value: number) => expected.set(token, (expected.get(token) ?? 0) + value);
      for (const [i, token] of biasTokens.entries()) add(token, changes.biasValues[i] as number);
      for (const token of chosen) add(token, -changes.frequency);
      for (const token of new Set(chosen)) add(token, -changes.presence);
      const { tokens, values, frequency, presence } = list.row;
      assert.deepEqual([frequency, presence], [changes.frequency, changes.presence]);
      const found = Array.from(tokens, (token, i) => [(token & ~CHOSEN_TOKEN) >>> 0, values[i]] as const);
      assert.deepEqual(new Map(found), expected, `seed ${seed}, step ${step}`);
      assert.equal(found.length, expected.size);
      for (const token of tokens)
        assert.equal(
          token >= CHOSEN_TOKEN,
          chosen.includes((token & ~CHOSEN_TOKEN) >>> 0),
          'marked when it was chosen',
        );
      const next = below(200);
      penalties.noteToken(next);
      if (changes.frequency !== 0 || changes.presence !== 0) chosen.push(next);
    }
  }
});

withWorkbench('runs with changed logits', (handler) => {
  for (const [name, sampler] of Object.entries({ greedy: GREEDY, sampled: SAMPLED })) {
    for (const [what, changes] of Object.entries({
      penalties: { ...UNCHANGED, frequency: 0.7, presence: 0.4, chosen: ids(9, 9, 44) },
      biases: biased([12, Number.NEGATIVE_INFINITY], [3, 4], [60, -3]),
      both: { ...biased([44, 2], [7, -5]), frequency: 1.5 },
    })) {
      handler(`${what}, ${name}: each token is the token by definition over the model's distribution`, async (b) => {
        const tokens = must(await run(b, changes, sampler));
        assert.equal(tokens.length, STEPS);
        const text = PROMPT.slice(0, -1).concat(12);
        const chosen = [...changes.chosen];
        for (const token of tokens) {
          const positions = text.map((_, i) => i);
          const { vocabularySize } = b.host.model.config;
          const top = await b.oracle.top(text, positions, 1, vocabularySize);
          const logits = new Map(Array.from(top.tokens, (id, i) => [id, top.logProbabilities[i] as number]));
          const now = { ...changes, chosen: Uint32Array.from(chosen) };
          assert.equal(token, definedToken(now, sampler, logits, text.length - 1));
          text.push(token);
          chosen.push(token);
        }
      });
    }
  }

  handler('penalties change the text, and a run without changes gives the text of a plain run', async (b) => {
    const plain = must(await run(b, UNCHANGED, GREEDY));
    const pages = b.pages(4);
    must(await b.fill(pages, PROMPT.slice(0, -1)));
    const request = {
      token: 12,
      position: PROMPT.length - 1,
      pages,
      maxTokens: STEPS,
      sampler: GREEDY,
      stopTokens: NONE,
    };
    const handle = b.inferlet.run(b.queue, request);
    const tokens: number[] = [];
    for (let finished: unknown; finished === undefined; ) {
      const chunk = must(await handle.next());
      tokens.push(...chunk.tokens);
      finished = chunk.finished;
    }
    assert.deepEqual(plain, tokens);
    b.inferlet.freePages(b.queue, pages);
    const penalised = must(await run(b, { ...UNCHANGED, presence: 100 }, GREEDY));
    assert.equal(new Set(penalised).size, STEPS, 'no token twice');
  });

  handler('a backend that takes steps ahead decodes the run ahead of its last token', async (b) => {
    const { model, stats } = b.host.host.engines[0]!;
    const before = stats.stepsAhead;
    must(await run(b, { ...biased([12, -2]), frequency: 0.5, presence: 0.5 }, SAMPLED));
    assert.equal(stats.stepsAhead > before, model.backend.ahead === true);
  });

  handler('wrong changes fail the run, and the next one works', async (b) => {
    const { vocabularySize } = b.host.model.config;
    const excludeAll = biased(
      ...Array.from({ length: vocabularySize }, (_, token) => [token, Number.NEGATIVE_INFINITY] as const),
    );
    assert.equal(tagOf(await run(b, excludeAll, GREEDY)), 'invalid-argument');
    const excludeAllButLast = biased(
      ...Array.from({ length: vocabularySize - 1 }, (_, token) => [token, Number.NEGATIVE_INFINITY] as const),
    );
    for (const sampler of [GREEDY, SAMPLED])
      assert.deepEqual(
        must(await run(b, excludeAllButLast, sampler)),
        new Array(STEPS).fill(vocabularySize - 1),
        'the only token that is left',
      );
    const refused = await run(b, { ...UNCHANGED, frequency: Number.NaN }, GREEDY);
    assert.equal(tagOf(refused), 'invalid-argument');
    assert.equal(tagOf(await run(b, { ...UNCHANGED, frequency: 1 }, GREEDY)), 'ok');
  });
});

withWorkbench(
  'runs that exclude more tokens than a host returns candidates',
  (handler) => {
    for (const [name, sampler] of Object.entries({ greedy: GREEDY, sampled: SAMPLED })) {
      handler(`${name}: the token is one of the tokens that are not excluded`, async (b) => {
        const { vocabularySize } = b.host.model.config;
        const text = PROMPT.slice(0, -1).concat(12);
        const top = await b.oracle.top(text, [...text.keys()], 1, vocabularySize);
        const excluded = Array.from(top.tokens.subarray(0, 256), (token) => [token, Number.NEGATIVE_INFINITY] as const);
        const changes = biased(...excluded);
        const logits = new Map(Array.from(top.tokens, (id, i) => [id, top.logProbabilities[i] as number]));
        const expected = definedToken(changes, sampler, logits, text.length - 1);
        if (sampler === GREEDY) assert.equal(expected, top.tokens[256]);
        assert.deepEqual(must(await run(b, changes, sampler, 12, 1)), [expected]);
      });
    }
  },
  { shape: { vocabularySize: 320 } },
);

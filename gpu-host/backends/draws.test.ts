import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { PlainForward } from '#gpu-host/models/testing/plain-forward.ts';
import { randomModel } from '../models/testing/random-model.ts';
import { BACKENDS } from '../testing/backends.ts';
import type { Backend, Draw, SequenceInput, TopRequest } from './backend.ts';
import { uniform } from './draw.ts';
import { createGgmlBackend } from './ggml/index.ts';
import { createOnnxBackend } from './onnx/index.ts';
import { createReferenceBackend } from './reference/index.ts';
import { createTestCudaBackend } from './testing/cuda.ts';
import { Random } from './testing/scenario.ts';

const POOL = { pageSize: 16, pageCount: 4 };
const VOCABULARY = 515;
/** Tokens that a backend lists, as the handlers ask for them. */
const LISTED = 256;
/** Rows of one step. */
const ROWS = 250;
const TOKEN = 7;
/** A sequence that makes the step list as many tokens as any. */
const NEIGHBOUR: SequenceInput = {
  inputs: { kind: 'tokens', tokens: Uint32Array.of(3) },
  positions: Uint32Array.of(0),
  context: new Uint32Array(0),
  mask: 'causal',
  writes: new Uint32Array(0),
  output: { kind: 'top', rows: 1, topK: LISTED, tokensOnly: true },
};
const PLAIN: Draw = { temperature: 1, topK: 0, topP: 1, minP: 0, seed: 0, position: 0 };

interface Subject {
  /** Draws whose frequencies are compared. */
  readonly draws: number;
  /** Draws of each sampler that are compared one by one. */
  readonly compared: number;
  create(model: LoadedModel): Promise<Backend>;
}

const ALL = process.env.PIE_TEST_ALL !== undefined;
const SUBJECTS: Readonly<Record<(typeof BACKENDS)[number], Subject>> = {
  // The reference sorts the whole vocabulary for each draw: 100,000 draws take half a minute.
  reference: {
    draws: ALL ? 100_000 : 1000,
    compared: ALL ? ROWS : 40,
    create: (model) => createReferenceBackend(model, POOL),
  },
  onnx: {
    draws: ALL ? 400_000 : 10_000,
    compared: ALL ? ROWS : 100,
    create: (model) => createOnnxBackend(model, { ...POOL, bits: 32, threads: 1 }),
  },
  ggml: {
    draws: ALL ? 400_000 : 10_000,
    compared: ALL ? ROWS : 100,
    create: (model) => createGgmlBackend(model, { ...POOL, bits: 32, threads: 1 }),
  },
  cuda: {
    draws: ALL ? 20_000 : 100,
    compared: ALL ? ROWS : 8,
    create: (model) => createTestCudaBackend(model, POOL),
  },
};

/** A token of the vocabulary with its probability at temperature 1, unnormalised. */
interface Weighted {
  readonly token: number;
  readonly logit: number;
}

/** The tokens in order of falling logit, then rising id. */
const inOrder = (logits: readonly Weighted[]): Weighted[] =>
  logits.toSorted((a, b) => b.logit - a.logit || a.token - b.token);

/** The place in `sorted` that a draw gives by definition: each cut normalises anew. */
function definedPlace(draw: Draw, sorted: readonly Weighted[]): number {
  const { temperature, topK, topP, minP } = draw;
  let kept = sorted.map(({ logit }) => Math.exp((logit - sorted[0]!.logit) / temperature));
  const normalise = () => {
    const sum = kept.reduce((a, b) => a + b, 0);
    kept = kept.map((weight) => weight / sum);
  };
  if (topK > 0) kept = kept.slice(0, topK);
  normalise();
  let reached = 0;
  if (topP < 1) {
    let count = 0;
    while (count < kept.length && reached < topP) reached += kept[count++]!;
    kept = kept.slice(0, count);
    normalise();
  }
  if (minP > 0) {
    const floor = minP * kept[0]!;
    kept = kept.filter((weight) => weight >= floor);
    normalise();
  }
  reached = 0;
  const u = uniform(draw.seed, draw.position);
  let place = 0;
  while (place < kept.length - 1 && reached + kept[place]! <= u) reached += kept[place++]!;
  return place;
}

/** Draws are from the whole vocabulary: equal to the definition, over logits that an implementation without shared code computes. */
for (const name of BACKENDS) {
  const { create, draws, compared } = SUBJECTS[name];
  describe(`${name} backend: draws`, () => {
    let directory: string;
    let backend: Backend;
    let logits: Weighted[];
    before(async () => {
      directory = await mkdtemp(join(tmpdir(), 'pie-draws-'));
      const model = await randomModel(directory, { vocabularySize: VOCABULARY }, 5);
      backend = await create(model);
      logits = Array.from(new PlainForward(model).next(TOKEN), (logit, token) => ({ token, logit }));
    });
    after(async () => {
      await backend.dispose();
      await rm(directory, { recursive: true, force: true });
    });

    /** Draws in steps of equal rows: each input is the same token at the same position and sees itself only. */
    async function drawn(all: readonly Draw[], more: Partial<TopRequest> = {}): Promise<number[]> {
      const tokens: number[] = [];
      const topK = Math.min(all[0]!.topK || LISTED, LISTED);
      for (let start = 0; start < all.length; start += ROWS) {
        const rows = Math.min(ROWS, all.length - start);
        const mask = new Uint8Array(rows * rows);
        for (let row = 0; row < rows; row++) mask[row * rows + row] = 1;
        const sequence: SequenceInput = {
          inputs: { kind: 'tokens', tokens: new Uint32Array(rows).fill(TOKEN) },
          positions: new Uint32Array(rows),
          context: new Uint32Array(0),
          mask,
          writes: new Uint32Array(0),
          output: { kind: 'top', rows, topK, draws: all.slice(start, start + rows), ...more },
        };
        const [output] = await backend.forward([sequence, NEIGHBOUR]);
        assert.ok(output?.kind === 'top' && output.drawn?.length === rows);
        assert.equal(output.tokens.length + output.logProbabilities.length, 0, 'nothing but the drawn tokens');
        tokens.push(...output.drawn);
      }
      return tokens;
    }

    /** The tokens that the backend draws from when a draw has no top-k. */
    const drawable = (sorted: readonly Weighted[]) => (backend.truncatesDraws ? sorted.slice(0, LISTED) : sorted);

    test(`${draws} draws at temperature 2 have the frequencies of the softmax`, async (context) => {
      const temperature = 2;
      const tokens = await drawn(
        Array.from({ length: draws }, (_, i) => ({ ...PLAIN, temperature, seed: i % 97, position: 1 + i })),
      );
      const sorted = drawable(inOrder(logits));
      const weights = sorted.map(({ logit }) => Math.exp((logit - sorted[0]!.logit) / temperature));
      const sum = weights.reduce((a, b) => a + b, 0);
      const counts = new Map<number, number>();
      for (const token of tokens) counts.set(token, (counts.get(token) ?? 0) + 1);
      // Neighbours in the order share a bin until the bin has at least 20 draws.
      const bins = [{ expected: 0, count: 0 }];
      for (const [i, { token }] of sorted.entries()) {
        if (bins.at(-1)!.expected >= 20) bins.push({ expected: 0, count: 0 });
        bins.at(-1)!.expected += (draws * weights[i]!) / sum;
        bins.at(-1)!.count += counts.get(token) ?? 0;
      }
      assert.equal(
        bins.reduce((total, { count }) => total + count, 0),
        draws,
      );
      const chiSquare = bins.reduce((total, { expected, count }) => total + (count - expected) ** 2 / expected, 0);
      // The normal approximation of Wilson and Hilferty: 3.1 deviations are exceeded once in a thousand.
      const degrees = bins.length - 1;
      const deviations = (Math.cbrt(chiSquare / degrees) - (1 - 2 / (9 * degrees))) / Math.sqrt(2 / (9 * degrees));
      context.diagnostic(
        `chi square ${chiSquare.toFixed(1)}, ${degrees} degrees of freedom, ${deviations.toFixed(2)} deviations`,
      );
      assert.ok(deviations < 3.1, `chi square ${chiSquare} with ${degrees} degrees of freedom`);
      const behind = weights.slice(LISTED).reduce((a, b) => a + b, 0) / sum;
      if (!backend.truncatesDraws) assert.ok(behind > 0.15, `${behind} of the probability is behind the listed tokens`);
    });

    const samplers: Readonly<Record<string, Partial<Draw>>> = {
      'no cut': { temperature: 1.5 },
      'a high temperature': { temperature: 1e6 },
      'a low temperature': { temperature: Math.fround(0.05) },
      'top-k below the listed tokens': { topK: 12 },
      'top-k beyond the listed tokens': { topK: 400, temperature: 3 },
      'top-k beyond the vocabulary': { topK: 5000, temperature: 3 },
      'top-p within the listed tokens': { topP: 0.25 },
      'top-p beyond the listed tokens': { topP: Math.fround(0.95), temperature: 2 },
      'min-p within the listed tokens': { minP: Math.fround(0.4) },
      'min-p beyond the listed tokens': { minP: Math.fround(0.02), temperature: 2 },
      'all cuts': { topK: 450, topP: Math.fround(0.9), minP: Math.fround(0.1), temperature: Math.fround(1.3) },
    };
    const random = new Random(3);
    const allowedTokens = new Set(Array.from({ length: 700 }, () => random.below(VOCABULARY)));
    const words = Math.ceil(VOCABULARY / 32);
    const allowed = new Uint32Array(ROWS * words);
    for (let row = 0; row < ROWS; row++)
      for (const token of allowedTokens) allowed[row * words + (token >>> 5)]! |= 1 << (token & 31);

    for (const [what, settings] of Object.entries(samplers)) {
      for (const isMasked of [false, true]) {
        test(`${what}${isMasked ? ', of allowed tokens' : ''}: each draw is the one by definition`, async () => {
          const all = Array.from({ length: compared }, (_, i) => ({
            ...PLAIN,
            ...settings,
            seed: 31 * i,
            position: i,
          }));
          const tokens = await drawn(all, isMasked ? { allowed: allowed.subarray(0, compared * words) } : {});
          const sorted = drawable(inOrder(logits.filter(({ token }) => !isMasked || allowedTokens.has(token))));
          const places = new Map(sorted.map(({ token }, place) => [token, place]));
          let equal = 0;
          for (const [i, draw] of all.entries()) {
            const expected = definedPlace(draw, sorted);
            const actual = places.get(tokens[i]!);
            if (actual === expected) equal++;
            // Rounding may swap neighbours in the order, or move a boundary by less than a token.
            else assert.ok(Math.abs(actual! - expected) <= 1, `draw ${i}: place ${actual}, not ${expected}`);
          }
          assert.ok(equal >= 0.98 * compared, `${equal} of ${compared} draws are equal`);
        });
      }
    }

    test('draws are over the changed logits, and a changed token may come from anywhere in the order', async () => {
      const sorted = inOrder(logits);
      const last = sorted.at(-1)!.token;
      const tokens = Uint32Array.from([last, ...sorted.slice(0, 300).map(({ token }) => token)]);
      const values = Float32Array.from(tokens, (_, i) => (i === 0 ? 2 : i % 3 === 0 ? Number.NEGATIVE_INFINITY : -0.5));
      const change = new Map(Array.from(tokens, (token, i) => [token, values[i]!]));
      const changed = inOrder(
        logits
          .map(({ token, logit }) => ({ token, logit: logit + (change.get(token) ?? 0) }))
          .filter(({ logit }) => Number.isFinite(logit)),
      );
      const drawnFrom = drawable(changed);
      const changes = { tokens, values, frequency: 0, presence: 0 };
      let equal = 0;
      for (let i = 0; i < 60; i++) {
        const draw = { ...PLAIN, temperature: 1.5, seed: i, position: i };
        const [token] = await drawn([draw], { changes });
        const actual = drawnFrom.findIndex((each) => each.token === token);
        const expected = definedPlace(draw, drawnFrom);
        if (actual === expected) equal++;
        else assert.ok(actual >= 0 && Math.abs(actual - expected) <= 1, `draw ${i}: place ${actual}, not ${expected}`);
      }
      assert.ok(equal >= 57, `${equal} of 60`);
    });
  });
}

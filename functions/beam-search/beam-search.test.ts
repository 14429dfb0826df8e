import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Backend } from '#gpu-host/backends/backend.ts';
import { createReferenceBackend } from '#gpu-host/backends/reference/index.ts';
import { loadTokenizer } from '#gpu-host/models/tokenizer.ts';
import { call, deploySource, modelStats } from '#test/harness/deploy.ts';
import { assertBatched } from '#test/harness/functions.ts';
import { Platform, ROOT } from '#test/harness/platform.ts';
import { randomModel } from '../../gpu-host/models/testing/random-model.ts';

/** Token 0 stands for unknown text, 1 begins a text, and 2 ends one. The others are five characters. */
const VOCABULARY = 8;
const BEGIN_OF_TEXT = 1;
/** The tokens that end a continuation. The search counts the begin of another text as an end, too. */
const STOPS = [BEGIN_OF_TEXT, 2];
const PROMPT = '!#$!';

/** A continuation of the prompt, as the function returns it. */
interface Found {
  /** Generated tokens, without the stop token. */
  readonly tokens: number[];
  /** Sum over all generated tokens, the stop token included. */
  readonly logProbability: number;
  /** `logProbability` after the length penalty. */
  readonly score: number;
  /** True when a stop token ended the continuation. */
  readonly ended: boolean;
}

describe('beam-search', () => {
  let directory: string;
  let platform: Platform;
  let backend: Backend;
  let prompt: number[];

  before(async () => {
    directory = await mkdtemp(path.join(os.tmpdir(), 'pie-beam-'));
    const model = await randomModel(directory, { vocabularySize: VOCABULARY }, 7);
    backend = await createReferenceBackend(model, { pageSize: 16, pageCount: 4 });
    prompt = [BEGIN_OF_TEXT, ...(await loadTokenizer(directory)).encode(PROMPT)];
    platform = await Platform.start({
      functions: false,
      config: `[[model]]\nname = "tiny"\nsource = "file:${directory}"\n`,
    });
    await deploySource(platform, path.join(ROOT, 'functions/beam-search'));
  });
  after(async () => {
    await platform?.[Symbol.asyncDispose]();
    await backend?.dispose();
    await rm(directory, { recursive: true, force: true });
  });

  const search = async (input: object): Promise<Found[]> =>
    (await call(platform, 'beam-search', { prompt: PROMPT, ...input })).beams;

  it('finds the same texts as brute force, in the same order', async () => {
    const all = await everything(3);
    const expected = all.sort((a, b) => b.logProbability - a.logProbability).slice(0, 64);
    await modelStats(platform, { reset: true });
    assertSame(await search({ beams: 64, maxTokens: 3 }), expected, ({ logProbability }) => logProbability);
    // The device computes each text once, in a sequence of its own: the prompt without its last token, the prompt, the texts one token longer, and
    // the texts two tokens longer. A text that ends with a stop token is not computed.
    const continuing = VOCABULARY - STOPS.length;
    const stats = await modelStats(platform);
    assert.equal(
      stats.batchSizes.reduce((sum, batches, size) => sum + batches * size, 0),
      1 + 1 + continuing + continuing ** 2,
    );
    await assertBatched(stats);
  });

  it('compares averages with a length penalty of 1', async () => {
    const average = ({ logProbability, tokens, ended }: Found) => logProbability / (tokens.length + (ended ? 1 : 0));
    const expected = (await everything(2)).sort((a, b) => average(b) - average(a));
    assertSame(await search({ beams: 64, maxTokens: 2, lengthPenalty: 1 }), expected, average);
  });

  it('finds the same beams as a search that never stops early, with negative and positive length penalties', async () => {
    // Deploy the function without its input schema, which accepts no penalty below 0. The library accepts any.
    const manifest = { input: { type: 'object' } };
    await deploySource(platform, path.join(ROOT, 'functions/beam-search'), { name: 'any-penalty', manifest });
    for (const lengthPenalty of [-4, -1, 0.5]) {
      for (const beams of [2, 3, 4, 5, 6]) {
        const score = ({ logProbability, tokens, ended }: Found) =>
          logProbability / (tokens.length + (ended ? 1 : 0)) ** lengthPenalty;
        const input = { prompt: PROMPT, beams, maxTokens: 6, lengthPenalty };
        const { beams: found }: { beams: Found[] } = await call(platform, 'any-penalty', input);
        const candidates = await fullSearch(beams, 6);
        const expected = candidates.sort((a, b) => score(b) - score(a)).slice(0, beams);
        // Compare the log-probabilities and not the scores: a penalty of −4 multiplies their rounding error by the fourth power of the length.
        const unscored = found.map((beam) => ({ ...beam, score: beam.logProbability }));
        assertSame(unscored, expected, ({ logProbability }) => logProbability);
      }
    }
  });

  it('equals greedy decoding with one beam', async () => {
    let tokens: number[] = [];
    while (tokens.length < 6 && !STOPS.includes(tokens.at(-1) ?? 0)) {
      const row = await rowAfter(tokens);
      tokens = [...tokens, row.indexOf(Math.max(...row))];
    }
    const [best] = await search({ beams: 1, maxTokens: 6 });
    assert.deepEqual(
      best?.tokens,
      tokens.filter((token) => !STOPS.includes(token)),
    );
  });

  /** All continuations of `before` that end with a stop token or have `length` tokens. The float64 reference gives their probabilities. */
  async function everything(length: number, before: Found = START): Promise<Found[]> {
    const row = await rowAfter(before.tokens);
    const next = row.map((value, token) => ({ token, logProbability: before.logProbability + value }));
    const found = next.map(async ({ token, logProbability }): Promise<Found[]> => {
      if (STOPS.includes(token)) return [{ ...before, logProbability, ended: true }];
      const longer = { ...before, tokens: [...before.tokens, token], logProbability };
      return longer.tokens.length === length ? [longer] : everything(length, longer);
    });
    return (await Promise.all(found)).flat();
  }

  /**
   * A beam search that never stops before `length` tokens. Returns, in any order, the continuations that a stop token ended and the beams still
   * open at the end.
   */
  async function fullSearch(beams: number, length: number): Promise<Found[]> {
    const ended: Found[] = [];
    let live = [START];
    for (let i = 0; i < length; i++) {
      const rows = await Promise.all(live.map(({ tokens }) => rowAfter(tokens)));
      const candidates = live.flatMap((before, at) =>
        (rows[at] ?? []).map((value, token) => ({ before, token, logProbability: before.logProbability + value })),
      );
      live = [];
      for (const { before, token, logProbability } of candidates.sort((a, b) => b.logProbability - a.logProbability)) {
        if (live.length === beams) break;
        if (STOPS.includes(token)) ended.push({ ...before, logProbability, ended: true });
        else live.push({ ...before, tokens: [...before.tokens, token], logProbability });
      }
    }
    return [...ended, ...live];
  }

  /** Log-probability of each token of the vocabulary, by its id, as the next one after the prompt and `tokens`. */
  async function rowAfter(tokens: readonly number[]): Promise<number[]> {
    const inputs = Uint32Array.from([...prompt, ...tokens]);
    const [output] = await backend.forward([
      {
        inputs: { kind: 'tokens', tokens: inputs },
        positions: inputs.map((_, i) => i),
        context: new Uint32Array(0),
        mask: 'causal',
        writes: inputs.map((_, i) => i),
        output: { kind: 'top', rows: 1, topK: VOCABULARY },
      },
    ]);
    assert.ok(output?.kind === 'top');
    const row: number[] = [];
    for (const [i, token] of output.tokens.entries()) row[token] = output.logProbabilities[i] as number;
    return row;
  }
});

const START: Found = { tokens: [], logProbability: 0, score: 0, ended: false };

/** Asserts that the beams equal the expected ones, in the same order, and that each has the score that `score` computes for its expected beam. */
function assertSame(beams: readonly Found[], expected: readonly Found[], score: (found: Found) => number): void {
  assert.deepEqual(
    beams.map(({ tokens, ended }) => [tokens, ended]),
    expected.map(({ tokens, ended }) => [tokens, ended]),
  );
  for (const [i, beam] of beams.entries()) {
    assert.ok(Math.abs(beam.score - score(expected[i] as Found)) < 1e-3, `beam ${i} has the score ${beam.score}`);
  }
}

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { callFunction, longStory, refusedInput, TINY } from '#test/harness/functions.ts';
import { likeliest, ReferenceText, type Row, tinyTokens } from '#test/harness/reference-text.ts';

/** Context length of stories15m, the default model. */
const CONTEXT = 256;
const TINY_CONTEXT = 64;
/** Tokens of one page. */
const PAGE = 16;
/** Number of first tokens that the function always keeps. */
const SINK = 4;
/** Default of the function's `maxKept`: the most landmarks that it keeps. */
const MAX_KEPT = 96;

describe('hierarchical-attention', () => {
  it('reads four times the context with bounded memory, and landmarks lower the perplexity', async () => {
    const text = await longStory();
    const [block, maxTokens] = [48, 20];
    const [landmarks, blocks] = await Promise.all([
      callFunction('hierarchical-attention', { text, block, landmarks: 8, maxTokens }),
      callFunction('hierarchical-attention', { text, block, landmarks: 0, maxTokens }),
    ]);
    assert.ok(landmarks.output.tokens >= 4 * CONTEXT, `${landmarks.output.tokens} tokens`);
    const bound = SINK + MAX_KEPT + block + maxTokens;
    assert.ok(landmarks.output.mostHeld <= bound, `${landmarks.output.mostHeld}`);
    // While the kept tokens move, their copy also takes pages.
    assert.ok(
      (landmarks.usage.kvPagesPeak ?? 0) <= 2 * Math.ceil(bound / PAGE),
      `${landmarks.usage.kvPagesPeak} pages`,
    );
    assert.ok(landmarks.output.perplexity < 12, `${landmarks.output.perplexity}`);
    assert.ok(
      landmarks.output.perplexity < blocks.output.perplexity,
      `${landmarks.output.perplexity} with landmarks, ${blocks.output.perplexity} without`,
    );
  });

  it('reads and writes the same as the float64 reference that holds the same tokens', async () => {
    const text = 'The quick brown fox jumps over the lazy dog, '.repeat(6);
    // With `maxKept` 4, even the landmarks of one block are too many, and only the last of them stay.
    for (const maxKept of [10, 4]) {
      const bounds = { block: 16, landmarks: 6, maxKept, maxTokens: 12 };
      const { output } = await callFunction('hierarchical-attention', { text, ...bounds, model: TINY });
      const expected = await readBlocks(text, bounds);
      assert.ok(output.tokens > 4 * TINY_CONTEXT);
      assert.deepEqual(output.written, expected.written);
      assert.equal(output.mostHeld, expected.mostHeld);
      const difference = Math.abs(Math.log(output.perplexity) - Math.log(expected.perplexity));
      assert.ok(difference < 1e-4, `${difference} nats`);
    }
  });

  it('names the field of a bad input', async () => {
    assert.deepEqual(await refusedInput('hierarchical-attention', { text: 'x', block: 0 }), {
      status: 422,
      field: '/block',
    });
  });
});

/** Number of candidates of the function: the most probable tokens, among which it looks up a token's log-probability. */
const CANDIDATES = 256;
/** Log-probability of a token. A token that is not among the candidates counts as the least probable of them. */
const candidate = (row: Row, token: number) => Math.max(row[token]!, row.toSorted().at(-CANDIDATES)!);

/** Reads a text block by block with the reference, then continues it. Of earlier blocks, the reference keeps the sink and the latest landmarks. */
async function readBlocks(
  text: string,
  bounds: { readonly block: number; readonly landmarks: number; readonly maxKept: number; readonly maxTokens: number },
): Promise<{ perplexity: number; written: readonly number[]; mostHeld: number }> {
  const { block, landmarks, maxKept, maxTokens } = bounds;
  await using reference = await ReferenceText.open();
  const tokens = tinyTokens(text);
  /** Indices in the text of the tokens that the reference holds. */
  let heldPlaces: number[] = [];
  let row: Row | undefined;
  let [surprise, mostHeld] = [0, 0];
  for (let from = 0; from < tokens.length; from += block) {
    const piece = tokens.slice(from, from + block);
    const rows = await reference.add(piece);
    for (const [i, token] of piece.entries()) {
      const before = rows[i - 1] ?? row;
      if (before) surprise -= candidate(before, token);
    }
    row = rows.at(-1);
    heldPlaces.push(...piece.map((_, i) => from + i));
    mostHeld = Math.max(mostHeld, heldPlaces.length);
    // All tokens that are held from earlier blocks are landmarks or belong to the sink.
    const isLandmark = (place: number) => place >= SINK && (place < from || place >= from + piece.length - landmarks);
    const kept = new Set([
      ...heldPlaces.filter((place) => place < SINK),
      ...heldPlaces.filter(isLandmark).slice(-maxKept),
    ]);
    reference.keep([...heldPlaces.keys()].filter((i) => kept.has(heldPlaces[i]!)));
    heldPlaces = heldPlaces.filter((place) => kept.has(place));
  }
  const written: number[] = [];
  while (written.length < maxTokens) {
    written.push(likeliest(row!));
    [row] = await reference.add(written.slice(-1));
  }
  return {
    perplexity: Math.exp(surprise / (tokens.length - 1)),
    written,
    mostHeld: Math.max(mostHeld, reference.length),
  };
}

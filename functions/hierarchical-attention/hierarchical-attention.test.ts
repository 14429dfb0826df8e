import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { callFunction, longStory, refusedInput, TINY } from '#test/harness/functions.ts';
import { likeliest, ReferenceText, type Row, tinyTokens } from '#test/harness/reference-text.ts';

const CONTEXT = 256;
const PAGE = 16;

describe('hierarchical-attention', () => {
  it('reads four times the context with bounded memory, and landmarks lower the perplexity', async () => {
    const text = await longStory();
    const [landmarks, blocks] = await Promise.all([
      callFunction('hierarchical-attention', { text, block: 48, landmarks: 8, maxTokens: 20 }),
      callFunction('hierarchical-attention', { text, block: 48, landmarks: 0, maxTokens: 20 }),
    ]);
    assert.ok(landmarks.output.tokens >= 4 * CONTEXT, `${landmarks.output.tokens} tokens`);
    // The sink, the landmarks, a block, and the tokens of the next step.
    const bound = 4 + 96 + 48 + 20;
    assert.ok(landmarks.output.mostHeld <= bound, `${landmarks.output.mostHeld}`);
    // The held tokens, and the copy of the kept part.
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

  it('reads and writes what the reference does with these tokens in sight', async () => {
    const text = 'The quick brown fox jumps over the lazy dog, '.repeat(6);
    // With the smaller bound, one block has more landmarks than may stay.
    for (const maxKept of [10, 4]) {
      const bounds = { block: 16, landmarks: 6, maxKept, maxTokens: 12 };
      const { output } = await callFunction('hierarchical-attention', { text, ...bounds, model: TINY });
      const expected = await readBlocks(text, bounds);
      assert.ok(output.tokens > 4 * 64);
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

/** A token outside the candidates counts as the last of them. */
const CANDIDATES = 256;
const candidate = (row: Row, token: number) => Math.max(row[token]!, row.toSorted().at(-CANDIDATES)!);

/** Reads a text block by block, of which the first four tokens, and the last ones of the latest blocks, stay in sight. */
async function readBlocks(
  text: string,
  bounds: { readonly block: number; readonly landmarks: number; readonly maxKept: number; readonly maxTokens: number },
): Promise<{ perplexity: number; written: readonly number[]; mostHeld: number }> {
  const { block, landmarks, maxKept, maxTokens } = bounds;
  await using reference = await ReferenceText.open();
  const tokens = tinyTokens(text);
  /** Places in the text of the tokens that are held. */
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
    const isLandmark = (place: number) => place >= 4 && (place < from || place >= from + piece.length - landmarks);
    const kept = new Set([
      ...heldPlaces.filter((place) => place < 4),
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

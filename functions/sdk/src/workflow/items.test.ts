import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { seeded } from '../../../../test/harness/random.ts';
import { ItemSplitter } from './engine.ts';
import type { Items } from './graph.ts';

function itemsOf(pieces: readonly string[], items: Items): string[] {
  const splitter = new ItemSplitter(items);
  const taken = [...pieces.flatMap((piece) => splitter.push(piece)), ...splitter.end()];
  assert.deepEqual(
    taken.map(({ index }) => index),
    taken.map((_, i) => i),
  );
  return taken.map(({ item }) => item);
}

describe('ItemSplitter', () => {
  it('takes the first sentences or lines, and adds empty items when the text has too few', () => {
    const text = 'One is 1.5 big. "Two!" Three? Four';
    assert.deepEqual(itemsOf([text], { by: 'sentence', count: 5 }), [
      'One is 1.5 big.',
      '"Two!"',
      'Three?',
      'Four',
      '',
    ]);
    assert.deepEqual(itemsOf([text], { by: 'sentence', count: 2 }), ['One is 1.5 big.', '"Two!"']);
    assert.deepEqual(itemsOf(['\n a\n\n', 'b\nc'], { by: 'line', count: 2 }), ['a', 'b']);
    assert.deepEqual(itemsOf([], { by: 'line', count: 1 }), ['']);
  });

  it('gives the same items however the text is cut', () => {
    const below = seeded(3);
    for (let round = 0; round < 500; round++) {
      const text = Array.from({ length: below(40) }, () => ['a', 'b ', '. ', '."', '!', ' ', '\n', 'c'][below(8)]).join(
        '',
      );
      const items: Items = { by: below(2) === 0 ? 'line' : 'sentence', count: 1 + below(5) };
      const pieces: string[] = [];
      for (let at = 0; at < text.length; ) {
        const length = 1 + below(4);
        pieces.push(text.slice(at, at + length));
        at += length;
      }
      assert.deepEqual(itemsOf(pieces, items), itemsOf([text], items), JSON.stringify(text));
    }
  });
});

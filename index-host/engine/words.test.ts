import assert from 'node:assert/strict';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import fc from 'fast-check';
import { fuse } from './similarity.ts';
import { chosenWords, TOKENIZER, wordExpressions } from './words.ts';

const SEED = 31;

test('the expressions of any text are valid in FTS5 and find that text', () => {
  using db = new DatabaseSync(':memory:');
  db.exec(`CREATE VIRTUAL TABLE words USING fts5(text, tokenize='${TOKENIZER}')`);
  const insert = db.prepare('INSERT INTO words (rowid, text) VALUES (1, ?)');
  const find = db.prepare('SELECT count(*) AS count FROM words WHERE words MATCH ?');
  const text = fc.oneof(
    fc.string({ unit: 'grapheme', maxLength: 60, size: 'max' }),
    fc.string({ unit: 'binary', maxLength: 60, size: 'max' }).map((any) => any.replaceAll('\0', ' ')),
    fc
      .array(fc.constantFrom('AND', 'NOT', 'NEAR(', '"', '*', '^', '-', 'text:', 'fox', 'Äpfel'), { maxLength: 8 })
      .map((list) => list.join(' ')),
  );
  fc.assert(
    fc.property(text, (sample) => {
      db.exec('DELETE FROM words');
      insert.run(sample);
      const words = wordExpressions(sample);
      for (const word of words) assert.equal(find.get(word)?.count, 1, `${word} of ${sample}`);
      if (words.length > 0) assert.equal(find.get(words.join(' OR '))?.count, 1, sample);
      if (words.length === 0) assert.doesNotMatch(sample, /[a-z0-9]/i);
    }),
    { seed: SEED },
  );
});

test('a query has each word once, without case and diacritics, and at most 16 words', () => {
  assert.deepEqual(wordExpressions('Caf\u00e9s, cafe\u0301s and CAFES'), ['"cafes"', '"and"']);
  assert.deepEqual(wordExpressions(Array.from({ length: 40 }, (_, i) => `w${i % 20}`).join(' ')).length, 16);
});

test('the chosen words are the rarest, and their entries add up to at most `maxEntries`; a single word may have more', () => {
  const counted = fc.uniqueArray(fc.record({ word: fc.string(), entries: fc.nat(30) }), {
    maxLength: 16,
    selector: ({ word }) => word,
  });
  fc.assert(
    fc.property(counted, fc.nat(60), (list, maxEntries) => {
      const chosen = chosenWords(list, maxEntries);
      const knownCounts = list.map(({ entries }) => entries).filter((entries) => entries > 0);
      const rarestCounts = knownCounts.toSorted((a, b) => a - b).slice(0, chosen.length);
      const chosenCounts = chosen.map((word) => list.find((each) => each.word === word)?.entries);
      assert.deepEqual(chosenCounts, rarestCounts);
      const sum = rarestCounts.reduce((total, entries) => total + entries, 0);
      assert.ok(sum <= maxEntries || chosen.length === 1);
      assert.equal(chosen.length > 0, knownCounts.length > 0);
      const next = knownCounts.toSorted((a, b) => a - b)[chosen.length];
      assert.ok(next === undefined || sum + next > maxEntries);
    }),
    { seed: SEED },
  );
});

test('an entry of two rankings precedes one with the same place in a single ranking', () => {
  const list = (...keys: number[]) => keys.map((key) => ({ key, score: 0 }));
  assert.deepEqual(
    fuse([list(1, 2, 3), list(3, 4, 2)]).map(({ key }) => key),
    [3, 2, 1, 4],
  );
  assert.deepEqual(fuse([]), []);
});

import assert from 'node:assert/strict';
import { it } from 'node:test';
import { seeded } from '../../test/harness/random.ts';
import { passagesOf } from './passages.ts';

it('a document is cut between sentences, and a passage that it repeats comes once', () => {
  const line = 'The store is closed today.';
  const document = `${line}\n${line}\nThe train goes to the city.\n${line}\n`;
  assert.deepEqual(passagesOf(document, 30), [line, 'The train goes to the city.']);
  assert.deepEqual(passagesOf('One two three four.', 9), ['One two', 'three', 'four.']);
  assert.deepEqual(passagesOf(' \n ', 9), []);
});

it('passages hold every character of the document except white space, and cut no number', () => {
  assert.deepEqual(passagesOf('Use it. .NET is old. Pi is 3.14 or so.', 14), [
    'Use it.',
    '.NET is old.',
    'Pi is 3.14 or',
    'so.',
  ]);
  const below = seeded(4);
  for (let round = 0; round < 500; round++) {
    const parts = Array.from({ length: below(40) }, () => ['a', ' ', '.', '?"', '\n', '3.14', '🦊🦊'][below(7)]);
    // A character of its own before each part keeps passages from repeating each other.
    const document = parts.map((part, i) => String.fromCharCode(0x4e00 + i) + part).join('');
    const passages = passagesOf(document, 5);
    assert.equal(passages.join('').replaceAll(/\s/g, ''), document.replaceAll(/\s/g, ''));
    for (const passage of passages) assert.ok(passage.length <= 5 && passage.isWellFormed(), passage);
  }
});

import assert from 'node:assert/strict';
import { it } from 'node:test';
import { passagesOf } from './passages.ts';

it('a document is cut between sentences, and a passage that it repeats comes once', () => {
  const line = 'The store is closed today.';
  const document = `${line}\n${line}\nThe train goes to the city.\n${line}\n`;
  assert.deepEqual(passagesOf(document, 30), [line, 'The train goes to the city.']);
  assert.deepEqual(passagesOf('One two three four.', 9), ['One two', 'three', 'four.']);
  assert.deepEqual(passagesOf('...', 9), []);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { vocabularyOf } from './vocabulary.ts';

test('a vocabulary that could not be packed is packed again at its next use', async () => {
  let isBroken = true;
  const tokenizer = {
    vocabularySize: 2,
    special: { eos: [1] },
    stream: () => ({ push: () => 'a', finish: () => '' }),
    tokenBytes: () => {
      if (isBroken) throw new Error('no memory is left');
      return Buffer.from('a');
    },
  } as unknown as Tokenizer;
  await assert.rejects(vocabularyOf(tokenizer, 2), /no memory is left/);
  isBroken = false;
  assert.equal(String(Buffer.from((await vocabularyOf(tokenizer, 2)).bytes)), 'aa');
  assert.equal(vocabularyOf(tokenizer, 2), vocabularyOf(tokenizer, 2));
});

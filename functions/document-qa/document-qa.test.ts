import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ENCODER, failingFunction } from '#test/harness/functions.ts';
import { DOCUMENT, samePasses } from '../rag-shared/testing/documents.ts';

const input = { document: DOCUMENT, question: 'Who baked a cake?', encoder: ENCODER, passageCharacters: 90 };

describe('document-qa', () => {
  for (const mode of ['tree', 'refine'] as const) {
    it(`gives the same answer with all passes and with none, in the mode ${mode}`, async () => {
      const { answer, found } = await samePasses('document-qa', { ...input, mode });
      assert.equal(typeof answer, 'string');
      assert.equal(found.length, 3);
      for (const passage of found) assert.ok(DOCUMENT.includes(passage), passage);
    });
  }

  it('answers from one passage', async () => {
    const { found } = await samePasses('document-qa', { ...input, document: 'Only this.', topK: 4 });
    assert.deepEqual(found, ['Only this.']);
  });

  it('refuses a document without text', async () => {
    const { message } = await failingFunction('document-qa', { ...input, document: ' \n ' });
    assert.match(message, /^invalid-argument: The document has no text/);
  });
});

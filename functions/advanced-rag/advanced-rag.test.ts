import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { DOCUMENT, ENCODERS, samePasses } from '../rag-shared/testing/documents.ts';

const input = { document: DOCUMENT, question: 'Who baked a cake?', ...ENCODERS, passageCharacters: 90, topK: 2 };

describe('advanced-rag', () => {
  for (const mode of ['tree', 'refine']) {
    it(`gives the same answer with all passes and with none, in the mode ${mode}`, async () => {
      const { answer, found, queries } = await samePasses('advanced-rag', { ...input, mode });
      assert.equal(typeof answer, 'string');
      assert.equal(queries.length, 3);
      assert.equal(found.length, 2);
      for (const passage of found) assert.ok(DOCUMENT.includes(passage), passage);
    });
  }

  it('answers from topK passages even when candidates is less than topK', async () => {
    const few = { queries: 1, candidates: 1, topK: 3 };
    const { found } = await samePasses('advanced-rag', { ...input, ...few });
    assert.equal(found.length, 3);
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { DOCUMENT, ENCODERS, samePasses } from '../rag-shared/testing/documents.ts';

const input = { document: DOCUMENT, question: 'Who baked a cake?', ...ENCODERS, passageCharacters: 90 };

describe('contextual-retrieval', () => {
  it('answers the same with all passes and with none, from passages with their contexts', async () => {
    const { answer, found, contexts } = await samePasses('contextual-retrieval', { ...input, contextTokens: 6 });
    assert.equal(typeof answer, 'string');
    assert.ok(contexts.length > 4);
    assert.equal(found.length, 2);
    for (const passage of found) {
      const [about = '', text = ''] = [
        passage.slice(0, passage.indexOf(': ')),
        passage.slice(passage.indexOf(': ') + 2),
      ];
      assert.ok(
        contexts.some((context: string) => context.trim() === about),
        passage,
      );
      assert.ok(DOCUMENT.includes(text), passage);
    }
  });

  it('answers from as many passages as it should, also with fewer candidates', async () => {
    const { found } = await samePasses('contextual-retrieval', { ...input, contextTokens: 2, candidates: 1 });
    assert.equal(found.length, 2);
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { DOCUMENT, ENCODERS, samePasses } from '../rag-shared/testing/documents.ts';

const input = { document: DOCUMENT, question: 'Who baked a cake?', ...ENCODERS, passageCharacters: 90 };

describe('contextual-retrieval', () => {
  it('gives the same answer with all passes and with none, from passages with their contexts', async () => {
    const { answer, found, contexts } = await samePasses('contextual-retrieval', { ...input, contextTokens: 6 });
    assert.equal(typeof answer, 'string');
    assert.ok(contexts.length > 4);
    assert.equal(found.length, 2);
    for (const passage of found) {
      const separator = ': ';
      const at = passage.indexOf(separator);
      const about = passage.slice(0, at);
      const text = passage.slice(at + separator.length);
      assert.ok(
        contexts.some((context: string) => context.trim() === about),
        passage,
      );
      assert.ok(DOCUMENT.includes(text), passage);
    }
  });

  it('answers from `topK` passages even when `candidates` is less than `topK`', async () => {
    const { found } = await samePasses('contextual-retrieval', { ...input, contextTokens: 2, candidates: 1 });
    assert.equal(found.length, 2);
  });
});

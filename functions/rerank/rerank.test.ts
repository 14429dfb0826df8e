import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { deployFunction, ENCODER, functionsPlatform, RANKER } from '#test/harness/functions.ts';

const DOCUMENTS = ['it rained', 'the king is in paris', { text: 'the queen' }, ''];

interface Answer {
  readonly results: readonly { index: number; relevance_score: number; document?: { text: string } }[];
  readonly usage: { readonly total_tokens: number };
  readonly error?: { readonly message: string; readonly code: string };
}

describe('rerank', () => {
  const post = async (body: object): Promise<{ status: number; answer: Answer }> => {
    const platform = await functionsPlatform();
    await deployFunction('rerank');
    const response = await platform.fetch('/v1/rerank', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    return { status: response.status, answer: (await response.json()) as Answer };
  };

  it('sorts documents by their scores, which do not depend on the other documents', async () => {
    const request = { model: RANKER, query: 'who is the king?', documents: DOCUMENTS };
    const { answer } = await post({ ...request, return_documents: true });
    const scores = answer.results.map(({ relevance_score: score }) => score);
    assert.deepEqual(
      scores,
      scores.toSorted((a, b) => b - a),
    );
    assert.ok(scores.every((score) => score > 0 && score < 1));
    assert.deepEqual(answer.results.map(({ index }) => index).sort(), [0, 1, 2, 3]);
    for (const { index, document, relevance_score: score } of answer.results) {
      const original = DOCUMENTS[index] as string | { text: string };
      assert.equal(document?.text, typeof original === 'string' ? original : original.text);
      const { answer: alone } = await post({ ...request, documents: [original] });
      assert.ok(Math.abs((alone.results[0]?.relevance_score ?? 0) - score) < 1e-5);
    }
    const { answer: best } = await post({ ...request, top_n: 2 });
    assert.deepEqual(
      best.results.map(({ index }) => index),
      answer.results.slice(0, 2).map(({ index }) => index),
    );
    assert.equal(best.usage.total_tokens, answer.usage.total_tokens);
  });

  it('refuses a model of another kind, and a request without documents', async () => {
    const request = { query: 'who?', documents: DOCUMENTS };
    const { status, answer } = await post({ ...request, model: ENCODER });
    assert.equal(status, 404);
    assert.match(answer.error?.message ?? '', /"tiny-encoder" is a model for embeddings; this route needs a reranker/);
    assert.equal((await post({ ...request, model: RANKER, documents: [] })).status, 400);
    const withoutText = await post({ ...request, model: RANKER, documents: [{ title: 'a' }] });
    assert.match(withoutText.answer.error?.message ?? '', /documents\[0\]\.text is missing/);
  });
});

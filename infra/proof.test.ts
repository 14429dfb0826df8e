import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FIRST_FUNCTIONS, firstFunctions } from './bundled.ts';
import { type ListedModel, proofRequest } from './proof.ts';

const request = (model: Partial<ListedModel>) => proofRequest({ id: 'm', kind: 'causal', ...model }, 8);

test('a model with a chat template is asked in a chat, another model continues a text that is not empty', () => {
  const chat = request({ chat: true });
  assert.equal(chat.path, '/v1/chat/completions');
  assert.deepEqual(Object.keys(chat.body).toSorted(), ['max_tokens', 'messages', 'model', 'stream', 'temperature']);
  for (const model of [{ chat: false }, {}]) {
    const { path, body } = request(model);
    assert.equal(path, '/v1/completions');
    assert.ok(typeof body.prompt === 'string' && body.prompt !== '');
    assert.equal(body.max_tokens, 8);
  }
});

test('an encoder is asked by the route of its kind, and each route has a function that a start deploys first', () => {
  assert.equal(request({ kind: 'embedding' }).path, '/v1/embeddings');
  assert.equal(request({ kind: 'reranker' }).path, '/v1/rerank');
  const encoders = (['embedding', 'reranker'] as const).map((kind) => ({ name: kind, kind, source: 'x', threads: 0 }));
  const deployed = firstFunctions({ encoders });
  for (const kind of ['embedding', 'reranker'] as const) assert.ok(deployed.includes(request({ kind }).functionName));
  for (const chat of [true, false]) assert.ok(FIRST_FUNCTIONS.includes(request({ chat }).functionName));
});

import assert from 'node:assert/strict';
import { it } from 'node:test';
import { DEFAULT_LIMITS } from '../context.ts';
import { Bodies, Body } from '../http/bodies.ts';
import { sessionMessageOf } from './message.ts';

const LIMIT = 3000;

const messageIn = (body: unknown) => {
  const request = new Request('http://gateway/', {
    method: 'POST',
    body: JSON.stringify(body),
    headers: { 'content-type': 'application/json' },
  });
  return sessionMessageOf(new Body(request, new Bodies(DEFAULT_LIMITS)), LIMIT);
};

it('a message is a text, bytes or the end, within its size limit', async () => {
  const bytes = new Uint8Array(LIMIT).map((_, i) => i % 256);
  assert.deepEqual(await messageIn({ text: 'é'.repeat(LIMIT / 2) }), { text: 'é'.repeat(LIMIT / 2) });
  assert.deepEqual(await messageIn({ base64: bytes.toBase64() }), { bytes });
  assert.deepEqual(await messageIn({ base64: 'QQ==' }), { bytes: new Uint8Array([65]) });
  assert.deepEqual(await messageIn({ close: true }), { close: true });
  const tooLarge = { code: 'body-too-large' };
  await assert.rejects(messageIn({ text: 'x'.repeat(LIMIT + 1) }), tooLarge);
  await assert.rejects(messageIn({ text: 'é'.repeat(LIMIT / 2 + 1) }), tooLarge);
  await assert.rejects(messageIn({ base64: new Uint8Array(LIMIT + 1).toBase64() }), tooLarge);
  await assert.rejects(messageIn({ base64: 'A'.repeat(4 * LIMIT) }), tooLarge);
  for (const wrong of [
    { base64: 'QQ=' },
    { base64: 'é' },
    { text: 1 },
    { text: '', close: true },
    {},
    null,
    { close: false },
  ])
    await assert.rejects(messageIn(wrong), { code: 'invalid-input' });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Hono } from 'hono';
import type { AppEnv } from '../context.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { jsonAnswer, LARGE_BYTES, textAnswer } from './answer.ts';
import { Bodies, boundedBodies } from './bodies.ts';

const KIB = 1024;
/** Bytes that the gateway may hold; a tenant alone may hold half of them. */
const HELD_LIMIT = 1024 * KIB;

describe('an answer', () => {
  const begin = () => {
    const bodies = new Bodies({ heldBodyBytes: HELD_LIMIT, bodyGraceMs: 1000, bodyBytesPerSecond: 2 ** 30 });
    const app = new Hono<AppEnv>();
    app.use(boundedBodies(bodies, new Map()));
    app.onError((caught, c) => c.text(GatewayError.from(caught).code, GatewayError.from(caught).status));
    app.get('/text/:character/:count', (c) =>
      textAnswer(c, c.req.param('character').repeat(Number(c.req.param('count'))), 200, { 'x-own': 'kept' }),
    );
    app.get('/json/:count', (c) => jsonAnswer(c, { value: 'x'.repeat(Number(c.req.param('count'))) }, 201));
    app.get('/gathered/:bytes', (c) => {
      c.get('answer').hold(Number(c.req.param('bytes')));
      return jsonAnswer(c, { held: bodies.heldBytes });
    });
    app.get('/broken', (c) => {
      c.get('answer').hold(KIB);
      throw new GatewayError('internal', 'It broke.');
    });
    return { bodies, ask: (path: string, method = 'GET') => app.request(path, { method }) };
  };

  it('counts as held until the client has it, if it has more than 64 KiB of UTF-8', async () => {
    const { bodies, ask } = begin();
    // Characters of one, two and three bytes, each with the greatest number of characters that is not counted.
    for (const [character, largestUncounted] of [
      ['x', LARGE_BYTES],
      ['%C3%BC', LARGE_BYTES / 2],
      ['%E2%82%AC', Math.floor(LARGE_BYTES / 3)],
    ] as const) {
      await ask(`/text/${character}/${largestUncounted}`);
      assert.equal(bodies.heldBytes, 0);
      const large = await ask(`/text/${character}/${largestUncounted + 1}`);
      assert.ok(bodies.heldBytes > LARGE_BYTES);
      assert.equal(large.headers.get('content-length'), String(bodies.heldBytes));
      assert.equal(large.headers.get('x-own'), 'kept');
      assert.equal(await large.text(), decodeURIComponent(character).repeat(largestUncounted + 1));
      assert.equal(bodies.heldBytes, 0);
    }
    const json = await ask(`/json/${100 * KIB}`);
    assert.deepEqual([json.status, json.headers.get('content-type')], [201, 'application/json']);
    assert.equal(((await json.json()) as { value: string }).value.length, 100 * KIB);
    assert.equal(bodies.heldBytes, 0);
  });

  it('is refused while other answers use up the share of its tenant, and fits again when their client leaves', async () => {
    const { bodies, ask } = begin();
    const path = `/text/x/${300 * KIB}`;
    const first = await ask(path);
    const refused = await ask(path);
    assert.deepEqual([refused.status, await refused.text()], [429, 'too-many-requests']);
    assert.equal((await ask('/json/10')).status, 201, 'a small answer is not refused');
    await first.body?.cancel();
    assert.equal(bodies.heldBytes, 0);
    assert.equal((await (await ask(path)).text()).length, 300 * KIB);
  });

  it('holds no memory for a HEAD request', async () => {
    const { bodies, ask } = begin();
    const { status, headers } = await ask(`/text/x/${2 * HELD_LIMIT}`, 'HEAD');
    assert.deepEqual([status, headers.get('content-length')], [200, String(2 * HELD_LIMIT)]);
    assert.equal(bodies.heldBytes, 0);
  });

  it('counts the data that its handler gathers until the handler ends, even with an error', async () => {
    const { bodies, ask } = begin();
    assert.deepEqual(await (await ask(`/gathered/${100 * KIB}`)).json(), { held: 100 * KIB });
    assert.equal((await ask(`/gathered/${2 * HELD_LIMIT}`)).status, 503);
    assert.equal((await ask('/broken')).status, 500);
    assert.equal(bodies.heldBytes, 0);
  });
});

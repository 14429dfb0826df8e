import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { NEW_KEY_MS, SESSION_MS, Sessions } from './sessions.ts';

const SECRET = new Uint8Array(32).fill(7);
const NOW = Date.UTC(2026, 0, 1);
const API_KEY = `pie_${'a'.repeat(32)}`;

describe('sessions', () => {
  it('open with the same secret, in any process, until they expire', async () => {
    const session = new Sessions(SECRET).begin(API_KEY, NOW);
    const cookie = await new Sessions(SECRET).seal(session);
    const other = new Sessions(SECRET);
    assert.deepEqual(await other.open(cookie, NOW), session);
    assert.deepEqual(await other.open(cookie, NOW + SESSION_MS - 1), session);
    assert.equal(await other.open(cookie, NOW + SESSION_MS), null);
  });

  it('are sealed differently each time and do not reveal the key', async () => {
    const sessions = new Sessions(SECRET);
    const session = sessions.begin(API_KEY, NOW);
    const [first, second] = [await sessions.seal(session), await sessions.seal(session)];
    assert.notEqual(first, second);
    for (const cookie of [first, second])
      assert.ok(!Buffer.from(cookie, 'base64url').toString('latin1').includes('aaaa'));
    assert.match(first, /^[\w-]+$/, 'the value needs no quoting in a cookie');
  });

  it('do not open with another secret, after a changed bit, or from random text', async () => {
    const sessions = new Sessions(SECRET);
    const cookie = await sessions.seal(sessions.begin(API_KEY, NOW));
    assert.equal(await new Sessions(new Uint8Array(32).fill(8)).open(cookie, NOW), null);
    assert.equal(await new Sessions().open(cookie, NOW), null);
    const sealed = Buffer.from(cookie, 'base64url');
    const changed = fc.tuple(fc.nat(sealed.length * 8 - 1)).map(([bit]) => {
      const copy = Buffer.from(sealed);
      copy[bit >> 3]! ^= 1 << (bit & 7);
      return copy.toString('base64url');
    });
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(changed, fc.string({ maxLength: 2000, size: 'max' }), fc.base64String()),
        async (forged) => {
          assert.equal(await sessions.open(forged, NOW), null);
        },
      ),
      { seed: 5, numRuns: 200 },
    );
  });

  it('have form tokens that are valid for that session and secret only', async () => {
    const sessions = new Sessions(SECRET);
    const [mine, other] = [sessions.begin(API_KEY, NOW), sessions.begin(API_KEY, NOW)];
    const token = await sessions.formToken(mine);
    assert.equal(await sessions.isFormToken(mine, token), true);
    assert.equal(await sessions.isFormToken(other, token), false);
    assert.equal(await new Sessions().isFormToken(mine, token), false);
    for (const forged of ['', 'x', token.slice(1), `${token}A`, 'é', 'A'.repeat(5000)])
      assert.equal(await sessions.isFormToken(mine, forged), false, forged.slice(0, 50));
  });

  it('carry a new key to a page of that session only, for a short time', async () => {
    const sessions = new Sessions(SECRET);
    const [mine, other] = [sessions.begin(API_KEY, NOW), sessions.begin(API_KEY, NOW)];
    const key = { name: '🗝'.repeat(64), id: 'k'.repeat(16), apiKey: API_KEY };
    const cookie = await sessions.sealNewKey(mine, key, NOW);
    assert.deepEqual(await new Sessions(SECRET).openNewKey(mine, cookie, NOW + NEW_KEY_MS - 1), key);
    assert.equal(await sessions.openNewKey(mine, cookie, NOW + NEW_KEY_MS), null);
    assert.equal(await sessions.openNewKey(other, cookie, NOW), null);
    assert.equal(await sessions.open(cookie, NOW), null, 'the cookie is no session');
    assert.equal(await sessions.openNewKey(mine, await sessions.seal(mine), NOW), null);
  });

  it('require a secret of at least 32 bytes', () => {
    assert.throws(() => new Sessions(new Uint8Array(31)), RangeError);
  });
});

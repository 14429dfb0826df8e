import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { componentBytes } from '../platform.ts';
import { type Harness, JSON_TYPE } from './harness.ts';

/** Tests of untrusted schemas and inputs that are slow to check or deeply nested. */
export function describeSchemas(get: () => Harness): void {
  const ask = (name: string, body: string) =>
    get().ask(`/v1/functions/${name}/invocations`, {
      method: 'POST',
      body,
      headers: { ...JSON_TYPE, prefer: 'respond-async' },
    });

  describe('hostile schemas and inputs', () => {
    it('a pattern that makes other engines backtrack for ever is matched in linear time', async () => {
      const h = get();
      await h.platform.register({
        name: 'patterned',
        input: { type: 'string', pattern: '^(([a-z])+.)+[A-Z]([a-z])+$' },
      });
      h.refused(await ask('patterned', JSON.stringify('a'.repeat(1900))), 'invalid-input', '');
      const accepted = await ask('patterned', JSON.stringify('abc Xyz'));
      assert.equal(accepted.status, 202, JSON.stringify(accepted.body));
    });

    it('a pattern without a linear match is refused at deploy, with the reason and advice', async () => {
      const h = get();
      const input = { properties: { word: { pattern: '^(?!no)[a-z]+$' }, twice: { pattern: '(a)\\1' } } };
      const answer = await h.deploy({ name: 'looking', input }, componentBytes('looking'));
      h.refused(answer, 'invalid-manifest', '/input/properties/word/pattern');
      assert.match(answer.body.detail, /"\^\(\?!no\)\[a-z\]\+\$" looks ahead or behind.*Use `not`/);
      h.refused(await h.ask('/v1/functions/looking'), 'unknown-function');
    });

    it('a body with too deep nesting or too many names is refused before it is parsed', async () => {
      const h = get();
      await h.platform.register({ name: 'anything' });
      h.refused(await ask('anything', `${'['.repeat(900)}${']'.repeat(900)}`), 'invalid-input', '');
      h.refused(await ask('anything', '['.repeat(900)), 'invalid-input', '');
      const tenants = await h.ask('/v1/tenants', { method: 'POST', headers: JSON_TYPE, body: '{"a":'.repeat(1000) });
      h.refused(tenants, 'invalid-input', '');
      assert.equal((await ask('anything', `${'['.repeat(200)}${']'.repeat(200)}`)).status, 202);
    });
  });
}

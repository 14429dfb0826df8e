import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { grantsSchema, hostMatches, NO_GRANTS, resolveGrants } from './grants.ts';

describe('grants', () => {
  test('a function has the grants of its manifest, and none by default', () => {
    assert.deepEqual(resolveGrants(), NO_GRANTS);
    assert.deepEqual(resolveGrants({ store: true }).store, 'write');
    assert.deepEqual(resolveGrants({ store: 'read' }).store, 'read');
    assert.deepEqual(resolveGrants({ store: false }).store, 'none');
    const asked = { hosts: ['a.b', '*.c.d:8080', '[::1]', '127.0.0.1:*'], messaging: true, launch: '*' as const };
    assert.deepEqual(resolveGrants(grantsSchema.parse(asked)), { ...NO_GRANTS, ...asked });
  });

  const cases: readonly [pattern: string, url: string, matches: boolean][] = [
    ['api.example.com', 'https://api.example.com/x?y', true],
    ['api.example.com', 'http://API.example.com/', true],
    ['api.example.com', 'https://api.example.com:443/', true],
    ['api.example.com', 'https://api.example.com:8443/', false],
    ['api.example.com', 'http://api.example.com:443/', false],
    ['api.example.com', 'https://api.example.com./', false],
    ['api.example.com', 'https://evil-api.example.com/', false],
    ['api.example.com', 'https://api.example.com.evil.org/', false],
    ['api.example.com', 'https://api.example.com@evil.org/', false],
    ['api.example.com:8443', 'https://api.example.com:8443/', true],
    ['api.example.com:8443', 'https://api.example.com/', false],
    ['api.example.com:443', 'https://api.example.com/', true],
    ['api.example.com:80', 'https://api.example.com/', false],
    ['*.example.com', 'https://a.b.example.com/', true],
    ['*.example.com', 'https://example.com/', false],
    ['*.example.com', 'https://evilexample.com/', false],
    ['127.0.0.1:*', 'http://127.0.0.1:31337/', true],
    ['127.0.0.1', 'http://127.1/', true],
    ['[::1]:8080', 'http://[0:0::1]:8080/', true],
    ['[::1]', 'http://[::1]:8080/', false],
  ];
  for (const [pattern, url, matches] of cases) {
    test(`the host pattern ${pattern} ${matches ? 'matches' : 'does not match'} ${url}`, () => {
      assert.equal(hostMatches(pattern, new URL(url)), matches);
    });
  }
});

import assert from 'node:assert/strict';
import { it } from 'node:test';
import { safeNext } from '../pages/sign-in.ts';
import { isSameOrigin } from './sessions.ts';

const ask = (headers: Record<string, string>) =>
  isSameOrigin(new Request('http://pie.example:8787/dashboard/sign-in', { method: 'POST', headers }));

it('a form is accepted from its own origin only', () => {
  assert.equal(ask({ 'sec-fetch-site': 'same-origin' }), true);
  assert.equal(ask({ origin: 'http://pie.example:8787' }), true);
  assert.equal(ask({ origin: 'https://pie.example:8787' }), true, 'a proxy terminates TLS');
  for (const site of ['cross-site', 'same-site', 'none', 'SAME-ORIGIN', ''])
    assert.equal(ask({ 'sec-fetch-site': site, origin: 'http://pie.example:8787' }), false, site);
  for (const origin of [
    'null',
    '',
    'http://pie.example',
    'http://evil.example:8787',
    'http://pie.example:8787.evil.example',
  ])
    assert.equal(ask({ origin }), false, origin);
  assert.equal(ask({}), false);
});

it('signing in redirects only to pages of the dashboard', () => {
  const origin = 'http://pie.example:8787';
  assert.equal(safeNext('/dashboard/usage?by=hour', origin), '/dashboard/usage?by=hour');
  for (const next of [
    '//evil.example/dashboard',
    'https://evil.example/dashboard',
    '/\\evil.example',
    '/dashboard/../v1/functions',
    '/dashboardx',
    '/dashboard/sign-out',
    'javascript:alert(1)',
    '\u0000',
    null,
    undefined,
  ])
    assert.equal(safeNext(next, origin), '/dashboard', String(next));
});

import assert from 'node:assert/strict';
import { it } from 'node:test';
import { childTraceparent, requestIdOf } from './observer.ts';
import { durationMs, preferenceApplied, preferencesOf, timeMs, wantsEventStream } from './request-options.ts';

it('reads Prefer and ignores unknown preferences', () => {
  const none = { respondAsync: false, waitMs: null, cancelOnDisconnect: false, singleUseKey: false };
  assert.deepEqual(preferencesOf(undefined), none);
  assert.deepEqual(preferencesOf('wait=10, Respond-Async; x=1'), { ...none, respondAsync: true, waitMs: 10_000 });
  assert.deepEqual(preferencesOf('cancel-on-disconnect'), { ...none, cancelOnDisconnect: true });
  assert.deepEqual(preferencesOf('single-use-key'), { ...none, singleUseKey: true });
  assert.deepEqual(preferencesOf('wait="2", wait=9, handling=lenient'), { ...none, waitMs: 2000 });
  assert.equal(preferencesOf('wait=99999').waitMs, 3_600_000);
  for (const bad of ['wait', 'wait=', 'wait=-1', 'wait=1.5', 'wait=soon', `wait=${'9'.repeat(20)}`])
    assert.equal(preferencesOf(bad).waitMs, null, bad);
  assert.equal(preferenceApplied({}), undefined);
  assert.equal(preferenceApplied({ cancelOnDisconnect: true }), 'cancel-on-disconnect');
  assert.equal(preferenceApplied({ respondAsync: true, waitMs: 1500 }), 'respond-async, wait=1.5');
});

it('reads times and durations and rejects other text', () => {
  for (const [text, ms] of [
    ['90', 90_000],
    ['250ms', 250],
    ['30s', 30_000],
    ['5m', 300_000],
    ['2h', 7_200_000],
    ['1d', 86_400_000],
    ['', null],
    ['1.5s', null],
    ['-1', null],
    ['5 m', null],
    ['1w', null],
    ['9999999999', null],
  ] as const)
    assert.equal(durationMs(text), ms, text);
  const now = Date.parse('2026-11-20T12:00:00Z');
  assert.equal(timeMs('10m', now), now - 600_000);
  assert.equal(timeMs('2026-11-20T05:12:00Z', now), Date.parse('2026-11-20T05:12:00Z'));
  assert.equal(timeMs('2026-11', now), Date.parse('2026-11-01T00:00:00Z'));
  for (const bad of ['90', 'yesterday', 'Mon', '1', '2026', '20261120', '2026-13-01', '10x'])
    assert.equal(timeMs(bad, now), null, bad);
});

it('streams only for clients that ask for a stream', () => {
  for (const accept of [
    'text/event-stream',
    'text/event-stream, */*',
    'text/event-stream, application/json',
    'application/json;q=0.5, text/event-stream',
  ]) {
    assert.equal(wantsEventStream(accept), true, String(accept));
  }
  for (const accept of [
    undefined,
    '',
    '*/*',
    'application/json',
    'application/json, text/event-stream',
    'text/event-stream;q=0.1, application/json',
    'text/event-stream;q=0',
  ]) {
    assert.equal(wantsEventStream(accept), false, String(accept));
  }
});

it('keeps a valid request id and replaces any other', () => {
  assert.equal(requestIdOf('abc-1.2:3'), 'abc-1.2:3');
  for (const bad of [undefined, '', 'a b', 'x'.repeat(129), 'a\nb'])
    assert.match(requestIdOf(bad), /^req_[0-9a-f]{24}$/);
});

it('continues a valid trace, or begins a new one', () => {
  const trace = '0af7651916cd43dd8448eb211c80319c';
  assert.match(
    childTraceparent(`00-${trace}-b7ad6b7169203331-00`),
    new RegExp(`^00-${trace}-(?!b7ad6b7169203331)[0-9a-f]{16}-00$`),
  );
  for (const bad of [
    undefined,
    'nonsense',
    `00-${'0'.repeat(32)}-b7ad6b7169203331-01`,
    `00-${trace}-${'0'.repeat(16)}-01`,
  ]) {
    assert.match(childTraceparent(bad), /^00-(?!0af7)[0-9a-f]{32}-[0-9a-f]{16}-01$/);
  }
});

import assert from 'node:assert/strict';
import { it } from 'node:test';
import { preferenceApplied, preferencesOf, wantsEventStream } from './preferences.ts';
import { childTraceparent, requestIdOf } from './trace.ts';

it('reads Prefer and ignores what it does not know', () => {
  assert.deepEqual(preferencesOf(undefined), { respondAsync: false, cancelOnDisconnect: false });
  assert.deepEqual(preferencesOf('wait=10, Respond-Async; x=1'), { respondAsync: true, cancelOnDisconnect: false });
  assert.deepEqual(preferencesOf('cancel-on-disconnect'), { respondAsync: false, cancelOnDisconnect: true });
  assert.equal(preferenceApplied({}), undefined);
  assert.equal(preferenceApplied({ cancelOnDisconnect: true }), 'cancel-on-disconnect');
});

it('streams only for clients that ask for it', () => {
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

it('keeps a usable request id and replaces any other', () => {
  assert.equal(requestIdOf('abc-1.2:3'), 'abc-1.2:3');
  for (const bad of [undefined, '', 'a b', 'x'.repeat(129), 'a\nb'])
    assert.match(requestIdOf(bad), /^req_[0-9a-f]{24}$/);
});

it('continues a trace, or begins one', () => {
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

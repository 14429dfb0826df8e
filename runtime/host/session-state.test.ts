import assert from 'node:assert/strict';
import { it } from 'node:test';
import { Session } from './session-state.ts';

it('the first message of a session may be a file', () => {
  const session = new Session(
    { pendingBytes: 0, add: () => undefined, flushed: () => Promise.resolve(true) },
    { attach: () => () => undefined },
  );
  const before = performance.now();
  session.tellFile({ name: 'a.txt', mediaType: 'text/plain', bytes: 1 });
  const first = session.firstMessageAt;
  assert.ok(first >= before);
  session.send({ tag: 'text', val: 'second' });
  assert.deepEqual([session.firstMessageAt, session.messages], [first, 2]);
});

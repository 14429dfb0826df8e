import assert from 'node:assert/strict';
import { it } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { handlerError } from '#gpu-host/protocol/errors.ts';
import type { Message } from '#wit/generated/host.ts';
import { value } from '../../testing/outcome.ts';
import { type MessageSource, Session } from './session-state.ts';

type Handler = Parameters<MessageSource['attach']>[0];

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

it('a session confirms a message to its source once the inferlet has read it, or when the session stops', async () => {
  const handlers: Handler[] = [];
  const attach = (handler: Handler) => {
    handlers.push(handler);
    return () => void events.push('detached');
  };
  const events: string[] = [];
  const session = new Session({ pendingBytes: 0, add: () => undefined, flushed: async () => true }, { attach });
  const first = session.receive();
  const message = (val: string): Message => ({ tag: 'text', val });
  const send = (text: string) => handlers[0]?.message(message(text)).then(() => events.push(text));
  void send('a');
  assert.deepEqual(value(await first), message('a'));
  await setImmediate();
  assert.deepEqual(events, []);
  session.read();
  await setImmediate();
  void send('b');
  assert.deepEqual(value(await session.receive()), message('b'));
  await setImmediate();
  assert.deepEqual(events, ['a']);
  session.stop(handlerError('terminated', 'the end'));
  await setImmediate();
  assert.deepEqual(events, ['a', 'detached', 'b'], 'the session detaches from the source before it confirms `b`');
});

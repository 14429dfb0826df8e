import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { InvocationEvent } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { collectOutcome } from './respond.ts';

async function* eventsOf(
  ...events: [event: InvocationEvent['event'], data: unknown][]
): AsyncGenerator<InvocationEvent> {
  for (const [index, [event, data]] of events.entries()) {
    yield { seq: index + 1, epoch: 1, event, data: JSON.stringify(data) };
  }
}

function roomFor(bytes: number) {
  let taken = 0;
  return {
    take: (more: number) => {
      if (taken + more > bytes) return false;
      taken += more;
      return true;
    },
    give: (less: number) => {
      taken -= less;
    },
  };
}

// The messages in these tests have 100 characters of JSON each, for which the collector takes 400 bytes.
it('an outcome omits the messages that exceed the room, and reports the omission', async () => {
  const message = { text: 'x'.repeat(89) };
  const events = () => eventsOf(['start', {}], ['message', message], ['message', message], ['result', { output: 1 }]);
  const collect = (maxCharacters: number, roomBytes: number) =>
    collectOutcome(events(), 'inv_1', maxCharacters, roomFor(roomBytes));
  const whole = { id: 'inv_1', status: 'succeeded', output: 1, messages: [message, message] };
  assert.deepEqual(await collect(200, 800), whole);
  assert.deepEqual(await collect(200, 799), { ...whole, messages: [message], messagesTruncated: true });
  assert.deepEqual(await collect(199, 800), { ...whole, messages: [message], messagesTruncated: true });
});

it('the error of a failed invocation omits the messages that exceed the room, and reports the omission', async () => {
  const message = { text: 'x'.repeat(89) };
  const events = () =>
    eventsOf(
      ['start', {}],
      ['message', message],
      ['message', message],
      ['error', { code: 'internal', message: 'It broke.' }],
    );
  const membersOf = async (roomBytes: number) => {
    const error = await collectOutcome(events(), 'inv_1', 200, roomFor(roomBytes)).catch((caught: unknown) => caught);
    assert.ok(error instanceof GatewayError);
    return error.members;
  };
  assert.deepEqual(await membersOf(800), { messages: [message, message] });
  assert.deepEqual(await membersOf(799), { messages: [message], messagesTruncated: true });
});

it('the messages of an earlier attempt take no room', async () => {
  const message = { text: 'x'.repeat(89) };
  const events = eventsOf(['start', {}], ['message', message], ['start', {}], ['message', message], ['result', {}]);
  assert.deepEqual((await collectOutcome(events, 'inv_1', 200, roomFor(400))).messages, [message]);
});

it('the messages before a question stay when the attempt after the question is lost', async () => {
  const message = { text: 'x'.repeat(89) };
  const asked = eventsOf(['start', {}], ['message', message], ['question', {}]);
  const lost = eventsOf(['start', {}], ['message', message], ['start', {}], ['message', message], ['result', {}]);
  const both = (async function* () {
    yield* asked;
    yield* lost;
  })();
  const { messages, messagesTruncated } = await collectOutcome(both, 'inv_1', 200, roomFor(800));
  assert.deepEqual([messages, messagesTruncated], [[message, message], undefined]);
});

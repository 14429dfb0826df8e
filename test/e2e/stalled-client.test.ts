import assert from 'node:assert/strict';
import http from 'node:http';
import { test } from 'node:test';
import type { InvocationState } from '#gateway/app/control.ts';
import { deployWith } from '#test/harness/deploy.ts';
import { invoke, numberOf, readEvents, type StreamEvent, terminal } from '#test/harness/events.ts';
import { functionsPlatform } from '#test/harness/functions.ts';
import { type Platform, until } from '#test/harness/platform.ts';

/** 12 MB of messages. While the client reads nothing, the sockets of gateway and client hold less: 4 MB and 0.1 MB. */
const LARGE = { messages: 200, size: 60_000 };

const numbers = Array.from({ length: LARGE.messages }, (_, i) => i);

/** Requests an invocation's events and reads nothing of the answer until the caller does. */
function open(platform: Platform, id: string): Promise<http.IncomingMessage> {
  return new Promise((resolve, reject) => {
    http
      .get(`${platform.url}/v1/invocations/${id}/events`, { headers: { authorization: `Bearer ${platform.apiKey}` } })
      .once('response', resolve)
      .once('error', reject);
  });
}

/** The number at the beginning of each message. */
const numbersOf = (events: readonly StreamEvent[]) =>
  events.filter(({ event }) => event === 'message').map(({ data }) => Number.parseInt(data.text, 10));

/** Events of the invocation, without the event by which a gateway ends a stream early and asks the client to resume. */
const ofInvocation = (events: readonly StreamEvent[]) => events.filter(({ data }) => data.resumable !== true);

test('a client that stops reading delays no invocation and reads every event later', async () => {
  const platform = await functionsPlatform();
  await deployWith(platform, 'large.ts', { name: 'large' });
  const response = await platform.fetch('/v1/functions/large/invocations', {
    method: 'POST',
    headers: { 'content-type': 'application/json', prefer: 'respond-async' },
    body: JSON.stringify(LARGE),
  });
  assert.equal(response.status, 202, await response.clone().text());
  const { id } = (await response.json()) as { id: string };
  const stalled = await open(platform, id);
  const others = await Promise.all([invoke(platform, 'large', LARGE), invoke(platform, 'large', LARGE)]);
  for (const events of others) {
    assert.equal(terminal(events)?.event, 'result', JSON.stringify(terminal(events)?.data));
    assert.deepEqual(numbersOf(events), numbers);
  }
  await until('the invocation of the stalled client ends', async () => {
    const state = (await (await platform.fetch(`/v1/invocations/${id}`)).json()) as InvocationState;
    return state.status === 'succeeded';
  });
  assert.ok(!stalled.complete, 'the answer does not fit the sockets');

  const events: StreamEvent[] = [];
  await readEvents(new Response(ReadableStream.from(stalled)), (event) => events.push(event)).catch(() => undefined);
  // The gateway may have ended the stream. This client then resumes the stream, as any client does.
  while (terminal(ofInvocation(events)) === undefined) {
    const { length } = ofInvocation(events);
    const headers = { 'last-event-id': ofInvocation(events).at(-1)?.id ?? '0' };
    await readEvents(await platform.fetch(`/v1/invocations/${id}/events`, { headers }), (event) => events.push(event));
    assert.ok(ofInvocation(events).length > length, 'the resumed stream has events');
  }
  assert.deepEqual(numbersOf(ofInvocation(events)), numbers);
  assert.deepEqual(
    ofInvocation(events).map(numberOf),
    ofInvocation(events).map((_, i) => i + 1),
  );
  assert.equal(terminal(ofInvocation(events))?.event, 'result');
});

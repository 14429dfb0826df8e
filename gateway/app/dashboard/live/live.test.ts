import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { InvocationEvent } from '../../control.ts';
import { GatewayError } from '../../errors/gateway-error.ts';
import { html } from '../html/parts.ts';
import { Changes, EventBuffer } from './follow.ts';
import { frameText } from './frames.ts';

const neverAborted = new AbortController().signal;

describe('the live updates of a page', () => {
  it('contain only the fragments that changed', async () => {
    const changes = new Changes();
    const fragments = (count: number) => [
      { id: 'still', render: () => html`<p>always</p>` },
      { id: 'moving', render: async () => html`<p>${count}</p>` },
    ];
    assert.equal((await changes.since(fragments(1))).length, 2);
    assert.deepEqual(await changes.since(fragments(1)), []);
    assert.deepEqual(await changes.since(fragments(2)), [
      { event: 'fragment', data: { id: 'moving', html: '<p>2</p>' } },
    ]);
  });

  it('encode an event with line breaks as a single frame', () => {
    // Five pieces: the lines id, event and data, and two empty pieces, because the frame ends with two line breaks.
    const text = frameText({ event: 'events', id: '1-7', data: { text: 'a\n\nevent: end\ndata: x', rows: '\r\n' } });
    assert.equal(text.split('\n').length, 5);
    assert.ok(text.startsWith('id: 1-7\nevent: events\ndata: {'));
  });
});

describe('EventBuffer', () => {
  const event = (seq: number): InvocationEvent => ({ seq, epoch: 1, event: 'message', data: '{}' });

  it("returns the buffered events in order, and throws the source's error on the next call", async () => {
    const buffer = new EventBuffer(
      (async function* () {
        yield event(1);
        yield event(2);
        throw new GatewayError('store-unavailable', 'gone');
      })(),
    );
    const events = await buffer.take(5000, 10, neverAborted);
    assert.deepEqual(
      events.map(({ seq }) => seq),
      [1, 2],
    );
    await assert.rejects(buffer.take(5000, 0, neverAborted), /gone/);
    assert.equal(buffer.isOver, true);
  });

  it('stops reading its source at its bound of events or characters, and ends the source on close', async () => {
    // Two events of 150,000 characters reach the bound of 200,000.
    let largeYielded = 0;
    const largeEventBuffer = new EventBuffer(
      (async function* () {
        for (;;) yield { ...event(++largeYielded), data: 'x'.repeat(150_000) };
      })(),
    );
    await new Promise(setImmediate);
    assert.equal(largeYielded, 2);
    assert.equal((await largeEventBuffer.take(5000, 0, neverAborted)).length, 2);
    largeEventBuffer.close();
    let yielded = 0;
    let ended = false;
    const buffer = new EventBuffer(
      (async function* () {
        try {
          for (;;) yield event(++yielded);
        } finally {
          ended = true;
        }
      })(),
    );
    const turn = () => new Promise(setImmediate);
    await turn();
    const yieldedAtBound = yielded;
    await turn();
    assert.equal(yielded, yieldedAtBound, 'the source waits');
    assert.equal((await buffer.take(5000, 0, neverAborted)).length, yieldedAtBound);
    await turn();
    assert.equal(yielded, 2 * yieldedAtBound, 'the source goes on');
    buffer.close();
    while (!ended) await turn();
  });
});

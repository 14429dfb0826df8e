import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { EventName } from '../control.ts';
import { openAiErrorFrame } from './errors.ts';
import { OpenAiFrames } from './frames.ts';

/** The texts of the frames of an invocation with these events, and the code of its failure. */
function streamed(...events: [event: EventName, data: object][]) {
  const waiting = events.map(([event, data], i) => ({ seq: i + 1, epoch: 1, event, data: JSON.stringify(data) }));
  const open = () => ({ take: () => waiting.splice(0, 1), close: () => undefined });
  const frames = new OpenAiFrames(open, { events: 'data', done: true, errorFrame: openAiErrorFrame });
  const texts: string[] = [];
  try {
    for (let last = false; !last; )
      for (const frame of frames.take() ?? []) {
        texts.push(frame.text);
        last = frame.last;
      }
    return { texts };
  } catch (error) {
    return { texts, code: (error as { code?: unknown }).code };
  }
}

const say = (text: string): [EventName, object] => ['message', { text }];
const start: [EventName, object] = ['start', {}];
const question: [EventName, object] = ['question', {}];
const result: [EventName, object] = ['result', {}];
const DONE = 'data: [DONE]\n\n';

test('a new attempt ends a stream only if the stream has text of an earlier attempt', () => {
  const whole = { texts: ['data: a\n\n', DONE] };
  assert.deepEqual(streamed(start, say('a'), result), whole);
  assert.deepEqual(streamed(start, start, say('a'), result), whole);
  assert.deepEqual(streamed(start, say('a'), start, say('a'), result), {
    texts: ['data: a\n\n'],
    code: 'runtime-lost',
  });
});

test('the text before a question to a person stays valid', () => {
  const resumed = streamed(start, say('a'), question, start, say('b'), result);
  assert.deepEqual(resumed, { texts: ['data: a\n\n', 'data: b\n\n', DONE] });
  const lost = streamed(start, say('a'), question, start, say('b'), start, say('b'), result);
  assert.deepEqual(lost, { texts: ['data: a\n\n', 'data: b\n\n'], code: 'runtime-lost' });
});

test('a stream whose events have expired fails before its first frame', () => {
  assert.deepEqual(streamed(result), { texts: [], code: 'unknown-invocation' });
  assert.deepEqual(streamed(start, result), { texts: [DONE] });
});

test('headers that the function asks for after those of the answer become a comment of the stream', () => {
  const dropped = say('{"x_pie_dropped_constraints":["weather#/properties/a, b/pattern","look#"]}');
  const text = 'weather#/properties/a%2C%20b/pattern, look#';
  for (const isLate of [false, true]) {
    const waiting = isLate ? [start] : [start, dropped];
    const events = () =>
      waiting.splice(0, 1).map(([event, data]) => ({ seq: 1, epoch: 1, event, data: JSON.stringify(data) }));
    let arrived: () => void = () => undefined;
    const frames = new OpenAiFrames(
      (ready) => {
        arrived = ready;
        return { take: events, close: () => undefined };
      },
      { events: 'data', done: true, errorFrame: openAiErrorFrame },
    );
    assert.deepEqual(frames.takeHeaders(), isLate ? {} : { 'x-pie-dropped-constraints': text });
    waiting.push(...(isLate ? [dropped] : []), say('a'), result);
    arrived();
    const texts: string[] = [];
    for (let last = false; !last; )
      for (const frame of frames.take() ?? []) {
        texts.push(frame.text);
        last = frame.last;
      }
    assert.deepEqual(texts, [...(isLate ? [`: x-pie-dropped-constraints: ${text}\n\n`] : []), 'data: a\n\n', DONE]);
  }
});

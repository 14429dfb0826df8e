import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { FrameParser, readFrames } from './event-source.ts';

describe('FrameParser', () => {
  it('reads frames from pieces of any size, with any line end', () => {
    const line = fc
      .string({ maxLength: 20, size: 'max', unit: 'grapheme' })
      .map((text) => text.replaceAll(/[\r\n\0]/g, ''));
    const frame = fc.record({
      id: fc.nat(),
      event: fc.constantFrom('message', 'result'),
      data: fc.array(line, { minLength: 1, maxLength: 3 }),
    });
    fc.assert(
      fc.property(
        fc.array(frame, { maxLength: 6 }),
        fc.constantFrom('\n', '\r\n', '\r'),
        fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1 }),
        (frames, end, sizes) => {
          const text = frames
            .map(({ id, event, data }) =>
              [`id: ${id}`, ': comment', `event:${event}`, ...data.map((part) => `data: ${part}`), '', ''].join(end),
            )
            .join('');
          const parser = new FrameParser();
          const parsed = [];
          for (let at = 0, i = 0; at < text.length; i++) {
            const size = sizes[i % sizes.length]!;
            parsed.push(...parser.push(text.slice(at, at + size)));
            at += size;
          }
          // The parser holds back a final carriage return, which may be half of a CRLF, until it gets more text.
          if (end === '\r') parsed.push(...parser.push(': more'));
          assert.deepEqual(
            parsed,
            frames.map(({ id, event, data }) => ({ id: String(id), hasId: true, event, data: data.join('\n') })),
          );
        },
      ),
      { seed: 3, numRuns: 300 },
    );
  });

  it('keeps the last id, and reports whether a frame has its own id', () => {
    const frames = new FrameParser().push('id: 4\ndata: a\n\nevent: error\ndata: b\n\n: nothing\n\n');
    assert.deepEqual(frames, [
      { id: '4', hasId: true, event: 'message', data: 'a' },
      { id: '4', hasId: false, event: 'error', data: 'b' },
    ]);
  });

  it('refuses a frame that never ends', () => {
    const parser = new FrameParser();
    assert.throws(() => {
      for (;;) parser.push('data: '.padEnd(1_000_000, 'x'));
    }, RangeError);
    // An empty `data` line counts as one character, and the limit is 16 Mi characters.
    const emptyLines = 'data\n'.repeat(1 << 20);
    const parserOfEmptyLines = new FrameParser();
    assert.throws(() => {
      for (let i = 0; i <= 16; i++) parserOfEmptyLines.push(emptyLines);
    }, RangeError);
  });
});

describe('readFrames', () => {
  it('fails when the stream stays silent, and closes it', async () => {
    let cancelled = false;
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(new TextEncoder().encode('data: 1\n\n')),
      cancel: () => {
        cancelled = true;
      },
    });
    const frames: string[] = [];
    await assert.rejects(
      async () => {
        for await (const frame of readFrames(body, { idleTimeoutMs: 20 })) frames.push(frame.data);
      },
      { name: 'TimeoutError' },
    );
    assert.deepEqual(frames, ['1']);
    assert.equal(cancelled, true);
  });

  it('does not count the pause of a slow reader as silence, but fails when the stream stays silent after it', async () => {
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        for (const data of ['1', '2']) controller.enqueue(new TextEncoder().encode(`data: ${data}\n\n`));
      },
    });
    const frames = readFrames(body, { idleTimeoutMs: 20 });
    assert.equal((await frames.next()).value?.data, '1');
    await sleep(60);
    assert.equal((await frames.next()).value?.data, '2');
    await sleep(60);
    await assert.rejects(frames.next(), { name: 'TimeoutError' });
  });

  it('rejects with the reason of its abort signal even if the connection stays open', {
    timeout: 240_000,
  }, async () => {
    let cancelled = false;
    const body = new ReadableStream<Uint8Array>({
      cancel: () => {
        cancelled = true;
      },
    });
    const stop = new AbortController();
    const next = readFrames(body, { idleTimeoutMs: 60_000, signal: stop.signal }).next();
    stop.abort(new Error('enough'));
    await assert.rejects(next, { message: 'enough' });
    assert.equal(cancelled, true);
  });
});

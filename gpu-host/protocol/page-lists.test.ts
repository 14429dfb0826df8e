import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { PageLists } from './fields.ts';
import { FrameReader, FrameWriter } from './frames.ts';
import { type DecodedCall, decodeCalls, encodeCall, type Operation } from './operations.ts';
import { MAX_ADDRESSES } from './wire.ts';

type List = Uint32Array<ArrayBuffer>;

function forward(inPages: List, outPages: List, inEmbeds: List = new Uint32Array()): Operation {
  return {
    op: 'forward',
    inPages,
    inEmbeds,
    outPages,
    outEmbeds: new Uint32Array(),
    mask: undefined,
    adapter: undefined,
  };
}

/** Both ends of a stream. */
class Stream {
  readonly received: DecodedCall[] = [];
  readonly #writer = new FrameWriter();
  readonly #reader = new FrameReader();
  readonly #sent = new PageLists();
  readonly #read = new PageLists();

  /** Returns the words of the call; undefined when it was refused. */
  send(queue: number, operation: Operation): number | undefined {
    const fits = encodeCall(this.#writer, this.#sent, { inferlet: 1, queue, id: 0 }, operation);
    const words = this.#writer.entryWords;
    if (!fits) return undefined;
    this.#reader.push(this.#writer.take(), (_, reader, end) =>
      decodeCalls(reader, end, this.#read, (call) => this.received.push(call)),
    );
    return words;
  }

  get last(): { inPages: List; outPages: List } {
    return this.received.at(-1) as unknown as { inPages: List; outPages: List };
  }
}

const pages = (count: number, first = 1): List => Uint32Array.from({ length: count }, (_, i) => first + i);

test('a decode loop sends no more words for a long context than for a short one', () => {
  const stream = new Stream();
  const loop = (count: number): (number | undefined)[] => {
    const context = pages(count);
    const sent = [stream.send(1, forward(context, context.subarray(-1)))];
    for (let more = 0; more < 3; more++)
      sent.push(stream.send(1, forward(pages(count + more), pages(1, count + more))));
    assert.deepEqual(stream.last.inPages, pages(count + 2));
    return sent.slice(1);
  };
  assert.deepEqual(loop(2000), loop(3));
});

test('a repeated list is one object at the reader, and stays valid after later frames', () => {
  const stream = new Stream();
  for (const count of [5, 5, 6, 2]) stream.send(1, forward(pages(count), pages(count)));
  const lists = stream.received.map((call) => (call as unknown as { inPages: List }).inPages);
  assert.equal(lists[0], lists[1]);
  assert.deepEqual(
    lists.map(({ length }) => length),
    [5, 5, 6, 2],
  );
  assert.deepEqual(lists[0], pages(5));
});

test('the reader gets the lists that were sent, also with queues that share a slot, refused calls and lists too long to keep', () => {
  const context = fc.record({
    // Queues 1024 apart share a slot.
    queue: fc.constantFrom(1, 2, 1025),
    keep: fc.integer({ min: 0, max: 3000 }),
    add: fc.integer({ min: 0, max: 12 }),
    spoil: fc.option(fc.nat()),
    out: fc.constantFrom('same', 'last', 'other'),
    refused: fc.integer({ min: 0, max: 9 }).map((n) => n === 0),
  });
  fc.assert(
    fc.property(fc.array(context, { maxLength: 40, size: 'max' }), (calls) => {
      const stream = new Stream();
      const before = new Map<number, List>();
      for (const [i, { queue, keep, add, spoil, out, refused }] of calls.entries()) {
        const inPages = Uint32Array.from([
          ...(before.get(queue) ?? pages(2500)).subarray(0, keep),
          ...pages(add, i * 100),
        ]);
        if (spoil !== null && inPages.length > 0) inPages[spoil % inPages.length] = 77;
        const outPages = { same: inPages, last: inPages.slice(-1), other: pages(3, 500) }[out];
        before.set(queue, inPages);
        const tooMany = new Uint32Array(refused ? MAX_ADDRESSES + 1 : 0);
        assert.equal(stream.send(queue, forward(inPages, outPages, tooMany)) === undefined, refused);
        if (!refused) assert.deepEqual([stream.last.inPages, stream.last.outPages], [inPages, outPages]);
      }
    }),
    { seed: 6, numRuns: 300 },
  );
});

test('the limit of a list counts the pages that the list repeats from an earlier one', () => {
  const stream = new Stream();
  assert.ok(stream.send(1, forward(pages(MAX_ADDRESSES), new Uint32Array())));
  assert.ok(stream.send(1, forward(pages(MAX_ADDRESSES), pages(MAX_ADDRESSES))));
  assert.equal(stream.send(1, forward(pages(MAX_ADDRESSES + 1), new Uint32Array())), undefined);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { must, Oracle, startTestHost, tagOf } from '../../testing/host.ts';
import { encodeMask } from '../../testing/mask.ts';
import { PROMPT, same, Workbench } from '../../testing/workbench.ts';
import { wrapBackend } from '../../testing/wrapped-backend.ts';
import { isChunkable } from './plan.ts';
import { type Context, visibility } from './visibility.ts';

const SEED = 41;
const NO_OUT_PAGES = 0;
const ONE_OUT_PAGE = 1;
console.log(`chunkable: seed ${SEED}`);

/**
 * True when no input sees a later input. `matrix` (the result of `visibility`) has a row for each input. A row has a column for each slot of the
 * context, then a column for each input.
 */
function noneSeesLater(matrix: Uint8Array | 'causal', inputs: number, context: number): boolean {
  if (matrix === 'causal') return true;
  const width = context + inputs;
  for (let i = 0; i < inputs; i++) {
    for (let later = i + 1; later < inputs; later++) if (matrix[i * width + context + later]) return false;
  }
  return true;
}

/** A context of `count` slots at the positions 0, 1, 2, …, none of them masked. */
function contextOf(count: number): Context {
  const numbers = Uint32Array.from({ length: count }, (_, i) => i);
  return { slots: numbers, count, positions: numbers, columns: numbers, filled: count };
}

test('a call with out-pages and without an explicit mask is chunkable if and only if no input sees a later input', () => {
  const anyOrder = fc.array(fc.nat({ max: 9 }), { minLength: 1, maxLength: 6 });
  // Long lists in random order hardly ever give a chunkable call, so half of the lists are sorted.
  const positionLists = fc.oneof(
    anyOrder,
    anyOrder.map((list) => list.sort((a, b) => a - b)),
  );
  fc.assert(
    fc.property(positionLists, fc.nat({ max: 5 }), (positionList, context) => {
      const positions = Uint32Array.from(positionList);
      const matrix = visibility(positions, contextOf(context), undefined);
      assert.equal(isChunkable(ONE_OUT_PAGE, positions, undefined), noneSeesLater(matrix, positions.length, context));
    }),
    { seed: SEED, numRuns: 2000 },
  );
});

test('a call with an explicit mask is chunkable if and only if it has out-pages and no input sees a later input', () => {
  const shape = fc.record({
    inputs: fc.integer({ min: 1, max: 5 }),
    context: fc.nat({ max: 5 }),
    hidesLater: fc.boolean(),
  });
  fc.assert(
    fc.property(shape, fc.infiniteStream(fc.boolean()), ({ inputs, context, hidesLater }, bits) => {
      const rows = Array.from({ length: inputs }, (_, input) =>
        Array.from({ length: context + inputs }, (_, column) => {
          const bit = bits.next().value as boolean;
          const ownColumn = context + input;
          // Each input sees itself, because a row must not hide every key.
          if (column === ownColumn) return true;
          return bit && !(hidesLater && column > ownColumn);
        }),
      );
      const mask = encodeMask(rows);
      // With an explicit mask, the positions have no effect on visibility.
      const positions = new Uint32Array(inputs);
      const matrix = visibility(positions, contextOf(context), mask);
      assert.equal(isChunkable(ONE_OUT_PAGE, positions, mask), noneSeesLater(matrix, inputs, context));
      const message = 'without out-pages, the keys of a part are not kept for the next part';
      assert.equal(isChunkable(NO_OUT_PAGES, positions, mask), false, message);
    }),
    { seed: SEED, numRuns: 2000 },
  );
});

test('isChunkable does not throw for a malformed mask', () => {
  // The mask has three rows for two inputs, and each row claims nine of the two runs.
  const mask = { runs: Uint32Array.of(3, 4), rowLengths: Uint32Array.of(9, 9, 9) };
  assert.equal(typeof isChunkable(ONE_OUT_PAGE, Uint32Array.of(0, 1), mask), 'boolean');
});

test('when the second part of a call fails on the device, the first part fills nothing either', async () => {
  /** Number of steps that the device computes before it fails. */
  let stepsLeft = Number.POSITIVE_INFINITY;
  await using host = await startTestHost({
    model: { maxBatchTokens: 8 },
    wrap: (inner) =>
      wrapBackend(inner, {
        forward: (batch) => {
          stepsLeft--;
          return stepsLeft >= 0 ? inner.forward(batch) : Promise.reject(new Error('bus error'));
        },
      }),
  });
  const bench = new Workbench(host, await Oracle.of(host.model), await host.connect(), 'x');
  const pages = bench.pages(3);
  must(await bench.fill(pages, PROMPT.slice(0, 3)));
  stepsLeft = 1;
  // The call has 13 inputs: a part of 8 (`maxBatchTokens`), which the device computes, and a part of 5, which fails.
  assert.equal(tagOf(await bench.fill(pages, [...PROMPT, 90, 91], 3)), 'internal');
  assert.equal(stepsLeft, -1, 'one part was computed, and one failed');
  stepsLeft = Number.POSITIVE_INFINITY;
  await bench.inferlet.synchronize(bench.queue);
  must(await bench.fill(pages, PROMPT.slice(3), 3));
  const lastToken = 7;
  const text = [...PROMPT, lastToken];
  const expected = await bench.oracle.top(text, [...text.keys()], 1, 5);
  same(await bench.probe(pages, lastToken, PROMPT.length), expected, 'the pages have exactly the prompt');
});

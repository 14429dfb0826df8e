import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { must, Oracle, startTestHost, tagOf } from '../testing/host.ts';
import { encodeMask } from '../testing/mask.ts';
import { PROMPT, same, Workbench } from '../testing/workbench.ts';
import { wrapBackend } from '../testing/wrapped-backend.ts';
import { isChunkable } from './chunkable.ts';
import { type Context, visibility } from './visibility.ts';

const SEED = 41;
console.log(`chunkable: seed ${SEED}`);

/** Applies the definition to the finished matrix: no input sees a later one. */
function isLowerTriangular(matrix: Uint8Array | 'causal', inputs: number, context: number): boolean {
  if (matrix === 'causal') return true;
  const width = context + inputs;
  for (let i = 0; i < inputs; i++) {
    for (let j = i + 1; j < inputs; j++) if (matrix[i * width + context + j]) return false;
  }
  return true;
}

function contextOf(count: number): Context {
  const numbers = Uint32Array.from({ length: count }, (_, i) => i);
  return { slots: numbers, count, positions: numbers, columns: numbers, filled: count };
}

test('an inferred mask may be cut exactly when no input sees a later one', () => {
  const positions = fc.oneof(
    fc.array(fc.nat({ max: 9 }), { minLength: 1, maxLength: 6 }),
    fc.array(fc.nat({ max: 9 }), { minLength: 1, maxLength: 6 }).map((list) => list.sort((a, b) => a - b)),
  );
  fc.assert(
    fc.property(positions, fc.nat({ max: 5 }), (given, context) => {
      const inputs = Uint32Array.from(given);
      const matrix = visibility(inputs, contextOf(context), undefined);
      assert.equal(isChunkable(1, inputs, undefined), isLowerTriangular(matrix, inputs.length, context));
    }),
    { seed: SEED, numRuns: 2000 },
  );
});

test('an explicit mask may be cut exactly when no input sees a later one', () => {
  const shape = fc.record({ inputs: fc.integer({ min: 1, max: 5 }), context: fc.nat({ max: 5 }), lower: fc.boolean() });
  fc.assert(
    fc.property(shape, fc.infiniteStream(fc.boolean()), ({ inputs, context, lower }, bits) => {
      const rows = Array.from({ length: inputs }, (_, i) =>
        Array.from({ length: context + inputs }, (_, k) => {
          const bit = bits.next().value as boolean;
          return k === context + i || (bit && !(lower && k > context + i));
        }),
      );
      const mask = encodeMask(rows);
      const positions = new Uint32Array(inputs);
      const matrix = visibility(positions, contextOf(context), mask);
      assert.equal(isChunkable(1, positions, mask), isLowerTriangular(matrix, inputs, context));
      assert.equal(isChunkable(0, positions, mask), false, 'keys that are not kept cannot be seen by the next part');
    }),
    { seed: SEED, numRuns: 2000 },
  );
});

test('isChunkable does not throw for a malformed mask', () => {
  const mask = { runs: Uint32Array.of(3, 4), rowLengths: Uint32Array.of(9, 9, 9) };
  assert.equal(typeof isChunkable(1, Uint32Array.of(0, 1), mask), 'boolean');
});

test('a call whose second part the device refuses has filled nothing', async () => {
  let stepsLeft = Number.POSITIVE_INFINITY;
  await using host = await startTestHost({
    model: { maxBatchTokens: 8 },
    wrap: (inner) =>
      wrapBackend(inner, {
        forward: (batch) => (stepsLeft-- > 0 ? inner.forward(batch) : Promise.reject(new Error('bus error'))),
      }),
  });
  const b = new Workbench(host, await Oracle.of(host.model), await host.connect(), 'x');
  const pages = b.pages(3);
  must(await b.fill(pages, PROMPT.slice(0, 3)));
  stepsLeft = 1;
  assert.equal(tagOf(await b.fill(pages, [...PROMPT, 90, 91], 3)), 'internal');
  assert.equal(stepsLeft, -1, 'one part was computed, and one was refused');
  stepsLeft = Number.POSITIVE_INFINITY;
  await b.inferlet.synchronize(b.queue);
  must(await b.fill(pages, PROMPT.slice(3), 3));
  const text = [...PROMPT, 7];
  const expected = await b.oracle.top(text, [...text.keys()], 1, 5);
  same(await b.probe(pages, 7, PROMPT.length), expected, 'only the inputs of the later call are there');
});

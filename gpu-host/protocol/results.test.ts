import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { HANDLER_ERROR_CASES } from '#wit/generated/host.ts';
import { FrameReader, FrameWriter } from './frames.ts';
import {
  type DecodedResult,
  decodeHeld,
  decodeResults,
  decodeTerminated,
  decodeUsage,
  encodeBytes,
  encodeDistribution,
  encodeDone,
  encodeError,
  encodeFloats,
  encodeHeld,
  encodeImported,
  encodeRunTokens,
  encodeStepResult,
  encodeTerminated,
  encodeText,
  encodeUsage,
} from './results.ts';
import { f32, list, record, text, u32 } from './testing/arbitrary.ts';
import { FRAME, MAX_JSON_BYTES } from './wire.ts';

const distribution = fc.array(fc.tuple(u32, f32), { maxLength: 20, size: 'max' }).map((pairs) => ({
  tokens: Uint32Array.from(pairs, ([token]) => token),
  logProbabilities: Float32Array.from(pairs, ([, value]) => value),
}));

test('every result is decoded as it was encoded', () => {
  const result: fc.Arbitrary<{ result: DecodedResult; encode: (writer: FrameWriter, id: number) => boolean }> =
    fc.oneof(
      fc.constant({ result: { kind: 'done' as const }, encode: encodeDone }),
      distribution.map((value) => ({
        result: { kind: 'distribution' as const, value },
        encode: (w: FrameWriter, id: number) => encodeDistribution(w, id, value),
      })),
      record({ tokens: list, distributions: fc.array(distribution, { maxLength: 4 }), cachedTokens: u32 }).map(
        (value) => ({
          result: { kind: 'step' as const, value },
          encode: (w: FrameWriter, id: number) => encodeStepResult(w, id, value),
        }),
      ),
      record({
        tokens: list,
        finished: fc.constantFrom(undefined, 'stop-token' as const, 'max-tokens' as const, 'stopped' as const),
      }).map((value) => ({
        result: { kind: 'run' as const, value },
        encode: (w: FrameWriter, id: number) => encodeRunTokens(w, id, value.tokens, value.finished),
      })),
      fc.uint8Array({ maxLength: 40, size: 'max' }).map((bytes) => ({
        result: { kind: 'bytes' as const, bytes },
        encode: (w: FrameWriter, id: number) => encodeBytes(w, id, bytes),
      })),
      fc.array(f32, { maxLength: 40, size: 'max' }).map((values) => ({
        result: { kind: 'floats' as const, values: Float32Array.from(values) },
        encode: (w: FrameWriter, id: number) => encodeFloats(w, id, Float32Array.from(values)),
      })),
      record({ pages: u32, tokens: u32, nextPosition: u32 }).map((counts) => ({
        result: { kind: 'imported' as const, ...counts },
        encode: (w: FrameWriter, id: number) => encodeImported(w, id, counts),
      })),
      fc.string({ unit: 'grapheme', maxLength: 9000, size: 'max' }).map((json) => ({
        result: { kind: 'text' as const, text: json },
        encode: (w: FrameWriter, id: number) => encodeText(w, id, json),
      })),
      record({ tag: fc.constantFrom(...HANDLER_ERROR_CASES), val: fc.string({ unit: 'grapheme' }) }).map((error) => ({
        result: { kind: 'error' as const, error },
        encode: (w: FrameWriter, id: number) => encodeError(w, id, error),
      })),
    );
  fc.assert(
    fc.property(fc.array(fc.tuple(u32, result), { maxLength: 30, size: 'max' }), (results) => {
      const writer = new FrameWriter();
      for (const [id, one] of results) assert.equal(one.encode(writer, id), true);
      const seen: [number, DecodedResult][] = [];
      new FrameReader().push(writer.take(), (_, reader, end) =>
        decodeResults(reader, end, (id, one) => seen.push([id, one])),
      );
      assert.deepEqual(
        seen,
        results.map(([id, one]) => [id, one.result]),
      );
    }),
    { seed: 2, numRuns: 300 },
  );
});

const withSortedEntries = (values: readonly object[]): unknown => values.map((value) => Object.entries(value).sort());

test('usage frames are decoded as they were encoded', () => {
  const wide = fc.maxSafeNat();
  fc.assert(
    fc.property(
      fc.array(fc.record({ inferlet: u32, gpuUs: wide, pageMs: wide, encodedTokens: wide }), {
        maxLength: 20,
        size: 'max',
      }),
      (sentUsages) => {
        const [writer, received] = [new FrameWriter(), new FrameReader()];
        for (const { inferlet, ...usage } of sentUsages) assert.equal(encodeUsage(writer, inferlet, usage), true);
        const seen: object[] = [];
        received.push(writer.take(), (kind, reader, end) => {
          assert.equal(kind, FRAME.usage);
          decodeUsage(reader, end, (inferlet, usage) => seen.push({ inferlet, ...usage }));
        });
        assert.deepEqual(withSortedEntries(seen), withSortedEntries(sentUsages));
      },
    ),
    { seed: 6, numRuns: 100 },
  );
});

test('held frames are decoded as they were encoded', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(u32, fc.boolean()), { maxLength: 20, size: 'max' }), (sentStates) => {
      const writer = new FrameWriter();
      for (const [inferlet, isHeld] of sentStates) assert.equal(encodeHeld(writer, inferlet, isHeld), true);
      const seen: [number, boolean][] = [];
      new FrameReader().push(writer.take(), (kind, reader, end) => {
        assert.equal(kind, FRAME.held);
        decodeHeld(reader, end, (inferlet, isHeld) => seen.push([inferlet, isHeld]));
      });
      assert.deepEqual(seen, sentStates);
    }),
    { seed: 7, numRuns: 100 },
  );
});

test('terminated frames are decoded as they were encoded', () => {
  fc.assert(
    fc.property(
      fc.array(fc.record({ inferlet: u32, cause: text, retryAfterMs: u32 }), { maxLength: 20, size: 'max' }),
      (ended) => {
        const writer = new FrameWriter();
        for (const { inferlet, ...why } of ended) assert.equal(encodeTerminated(writer, inferlet, why), true);
        const seen: object[] = [];
        new FrameReader().push(writer.take(), (kind, reader, end) => {
          assert.equal(kind, FRAME.terminated);
          decodeTerminated(reader, end, (inferlet, why) => seen.push({ inferlet, ...why }));
        });
        assert.deepEqual(withSortedEntries(seen), withSortedEntries(ended));
      },
    ),
    { seed: 5, numRuns: 100 },
  );
});

test('a JSON text of more than `MAX_JSON_BYTES` bytes is refused', () => {
  const writer = new FrameWriter();
  // The letter has two bytes in UTF-8.
  assert.equal(encodeText(writer, 1, 'é'.repeat(MAX_JSON_BYTES / 2)), true);
  assert.equal(encodeText(writer, 1, 'é'.repeat(MAX_JSON_BYTES / 2 + 1)), false);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { FILE_RIGHTS } from './calls.ts';
import { decodeCalls } from './decode-calls.ts';
import {
  encodeBare,
  encodeCopySlots,
  encodeEmbedImage,
  encodeExportPages,
  encodeFileOpen,
  encodeFileSave,
  encodeForward,
  encodeForwardWithAdapter,
  encodeImageFailed,
  encodeImagePixels,
  encodeImportPages,
  encodeLists,
  encodeLogProbabilities,
  encodeOpenInferlet,
  encodeRun,
  encodeSetTenantLimit,
  encodeSharePages,
  encodeStep,
  encodeTexts,
  encodeWords,
} from './encode-calls.ts';
import { HANDLER_ERROR_TAGS, ProtocolFault, type ProtocolFaultCode } from './errors.ts';
import { FrameReader } from './frames.ts';
import type { DecodedCall } from './operations.ts';
import { f32, i32, list, record, text, u32 } from './testing/arbitrary.ts';
import { FRAME, MAX_FRAME_BYTES, MAX_FRAME_WORDS, MAX_LIST, OP, PROTOCOL_VERSION } from './wire.ts';
import { FrameWriter } from './words.ts';

const mask = fc.option(record({ runs: list, rowLengths: list }), { nil: undefined });
const sampler = record({ temperature: f32, topK: u32, topP: f32, minP: f32, seed: u32 });
const output = fc.oneof(
  fc.constant({ tag: 'none' as const }),
  record({ tag: fc.constant('sample' as const), val: sampler }),
  record({ tag: fc.constant('distributions' as const), val: u32 }),
);
const allowed = fc.option(
  list.filter(({ length }) => length > 0),
  { nil: undefined },
);
const step = record({ tokens: list, positions: list, inPages: list, outPages: list, mask, rows: u32, output, allowed });
const rights = fc.constantFrom(...FILE_RIGHTS);
const run = record({ token: u32, position: u32, pages: list, maxTokens: u32, sampler, stopTokens: list });
const limit = record({ pages: fc.option(fc.nat({ max: 0xffff_fffe })), readAt: fc.maxSafeNat() });
const header = record({ inferlet: u32, queue: u32, id: u32 });

type Encode = (writer: FrameWriter) => boolean;
interface Made {
  readonly call: DecodedCall;
  readonly encode: Encode;
}

/** Every operation, with its encoder. */
const made: fc.Arbitrary<Made> = header.chain(({ inferlet, queue, id }) => {
  const plain = { inferlet, queue, id: 0 };
  const all: fc.Arbitrary<Made>[] = [
    record({
      ...{
        maxPages: u32,
        maxPriority: u32,
        arrival: fc.maxSafeNat(),
        name: text,
        epoch: fc.maxSafeNat(),
        tenant: text,
      },
      ...{ family: text, familyEpoch: fc.maxSafeNat(), familyPages: u32, tenantPages: limit },
      ...{ functionName: text, traceparent: text },
    }).map((fields) => ({
      call: { op: 'open-inferlet', inferlet, queue: 0, id: 0, ...fields },
      encode: (w) => encodeOpenInferlet(w, inferlet, fields),
    })),
    limit.map((tenantPages) => ({
      call: { op: 'set-tenant-limit', inferlet, queue: 0, id: 0, tenantPages },
      encode: (w) => encodeSetTenantLimit(w, inferlet, tenantPages),
    })),
    fc.constantFrom(
      ...(
        [
          ['close-inferlet', OP.closeInferlet],
          ['close-queue', OP.closeQueue],
          ['synchronize', OP.synchronize],
          ['run-stop', OP.runStop],
          ['list-exports', OP.listExports],
          ['list-adapters', OP.listAdapters],
        ] as const
      ).map(
        ([op, code]): Made => ({
          call: { op, inferlet, queue, id },
          encode: (w) => encodeBare(w, code, inferlet, queue, id),
        }),
      ),
    ),
    u32.map((model) => ({
      call: { op: 'create-queue', inferlet, queue, id, model },
      encode: (w) => encodeWords(w, OP.createQueue, inferlet, queue, id, model),
    })),
    i32.map((priority) => ({
      call: { op: 'set-priority', inferlet, queue, id, priority },
      encode: (w) => encodeWords(w, OP.setPriority, inferlet, queue, id, priority),
    })),
    u32.map((tokens) => ({
      call: { op: 'run-consumed', inferlet, queue, id, tokens },
      encode: (w) => encodeWords(w, OP.runConsumed, inferlet, queue, id, tokens),
    })),
    fc.tuple(u32, u32, fc.boolean()).map(([first, count, pages]) => ({
      call: { op: pages ? 'allocate-pages' : 'allocate-embeds', inferlet, queue, id, first, count },
      encode: (w) => encodeWords(w, pages ? OP.allocatePages : OP.allocateEmbeds, inferlet, queue, id, first, count),
    })),
    list.map((pages) => ({
      call: { op: 'free-pages', ...plain, pages },
      encode: (w) => encodeLists(w, OP.freePages, inferlet, queue, [pages]),
    })),
    list.map((embeds) => ({
      call: { op: 'free-embeds', ...plain, embeds },
      encode: (w) => encodeLists(w, OP.freeEmbeds, inferlet, queue, [embeds]),
    })),
    fc.tuple(list, u32).map(([pages, first]) => ({
      call: { op: 'share-pages', ...plain, first, pages },
      encode: (w) => encodeSharePages(w, inferlet, queue, pages, first),
    })),
    record({ source: u32, sourceOffset: u32, destination: u32, destinationOffset: u32, count: u32, shift: i32 }).map(
      (fields) => ({
        call: { op: 'copy-slots', ...plain, ...fields },
        encode: (w) => encodeCopySlots(w, inferlet, queue, Object.values(fields)),
      }),
    ),
    fc.tuple(list, list, list, list).map(([sources, indices, destinations, positions]) => ({
      call: { op: 'copy-tokens', ...plain, sources, indices, destinations, positions },
      encode: (w) => encodeLists(w, OP.copyTokens, inferlet, queue, [sources, indices, destinations, positions]),
    })),
    fc.tuple(list, list).map(([sources, destinations]) => ({
      call: { op: 'copy-embeds', ...plain, sources, destinations },
      encode: (w) => encodeLists(w, OP.copyEmbeds, inferlet, queue, [sources, destinations]),
    })),
    fc.tuple(list, list, list).map(([tokens, positions, embeds]) => ({
      call: { op: 'embed-text', ...plain, tokens, positions, embeds },
      encode: (w) => encodeLists(w, OP.embedText, inferlet, queue, [tokens, positions, embeds]),
    })),
    fc.tuple(list, list).map(([positions, embeds]) => ({
      call: { op: 'embed-image', inferlet, queue, id, positions, embeds },
      encode: (w) => encodeEmbedImage(w, inferlet, queue, id, positions, embeds),
    })),
    fc.uint8Array({ maxLength: 40 }).map((pixels) => ({
      call: { op: 'image-pixels', inferlet, queue: 0, id, pixels },
      encode: (w) => encodeImagePixels(w, inferlet, id, pixels),
    })),
    record({ tag: fc.constantFrom(...HANDLER_ERROR_TAGS), val: text }).map((why) => ({
      call: { op: 'image-failed', inferlet, queue: 0, id, why },
      encode: (w) => encodeImageFailed(w, inferlet, id, why),
    })),
    fc.tuple(list, list, list, list, mask).map(([inPages, inEmbeds, outPages, outEmbeds, explicit]) => ({
      call: { op: 'forward', ...plain, inPages, inEmbeds, outPages, outEmbeds, mask: explicit },
      encode: (w) => encodeForward(w, inferlet, queue, inPages, inEmbeds, outPages, outEmbeds, explicit),
    })),
    fc.tuple(list, list, mask, u32.filter(Boolean)).map(([pages, embeds, explicit, scores]) => ({
      call: {
        op: 'forward-scores',
        inferlet,
        queue,
        id: scores,
        inPages: pages,
        inEmbeds: embeds,
        outPages: pages,
        outEmbeds: embeds,
        mask: explicit,
      },
      encode: (w) => encodeForward(w, inferlet, queue, pages, embeds, pages, embeds, explicit, scores),
    })),
    fc
      .tuple(u32, fc.constantFrom(['entropy', OP.entropy] as const, ['read-embed', OP.readEmbed] as const))
      .map(([embed, [op, code]]) => ({
        call: { op, inferlet, queue, id, embed },
        encode: (w) => encodeWords(w, code, inferlet, queue, id, embed),
      })),
    fc.tuple(u32, list).map(([embed, tokens]) => ({
      call: { op: 'log-probabilities', inferlet, queue, id, embed, tokens },
      encode: (w) => encodeLogProbabilities(w, inferlet, queue, id, embed, tokens),
    })),
    fc.boolean().map((waiting) => ({
      call: { op: 'set-waiting', inferlet, queue, id, waiting },
      encode: (w) => encodeWords(w, OP.setWaiting, inferlet, queue, id, waiting ? 1 : 0),
    })),
    fc.tuple(u32, u32).map(([high, low]) => ({
      call: { op: 'set-span', inferlet, queue, id, high, low },
      encode: (w) => encodeWords(w, OP.setSpan, inferlet, queue, id, high, low),
    })),
    record({ persistent: fc.boolean(), name: text, pages: list }).map((fields) => ({
      call: { op: 'export-pages', inferlet, queue, id, ...fields },
      encode: (w) => encodeExportPages(w, inferlet, queue, id, fields.pages, fields.name, fields.persistent),
    })),
    fc.tuple(u32, text).map(([first, name]) => ({
      call: { op: 'import-pages', inferlet, queue, id, first, name },
      encode: (w) => encodeImportPages(w, inferlet, queue, id, first, name),
    })),
    fc
      .tuple(
        text,
        fc.constantFrom(
          ['unexport', OP.unexport] as const,
          ['file-unlock', OP.fileUnlock] as const,
          ['load-adapter', OP.loadAdapter] as const,
        ),
      )
      .map(([name, [op, code]]) => ({
        call: { op, inferlet, queue, id, name },
        encode: (w) => encodeTexts(w, code, inferlet, queue, id, name),
      })),
    fc.tuple(text, text).map(([name, functionName]) => ({
      call: { op: 'file-remove', inferlet, queue, id, name, functionName },
      encode: (w) => encodeTexts(w, OP.fileRemove, inferlet, queue, id, name, functionName),
    })),
    fc.tuple(text, text).map(([prefix, functionName]) => ({
      call: { op: 'file-list', inferlet, queue, id, prefix, functionName },
      encode: (w) => encodeTexts(w, OP.fileList, inferlet, queue, id, prefix, functionName),
    })),
    record({ first: u32, name: text, write: fc.boolean(), functionName: text }).map((f) => ({
      call: { op: 'file-open', inferlet, queue, id, ...f },
      encode: (w) => encodeFileOpen(w, inferlet, queue, id, f.first, f.name, f.write, f.functionName),
    })),
    record({ name: text, persistent: fc.boolean(), rights, functionName: text, pages: list }).map((f) => ({
      call: { op: 'file-save', inferlet, queue, id, ...f },
      encode: (w) => encodeFileSave(w, inferlet, queue, id, f.name, f.pages, f),
    })),
    fc.tuple(u32, u32).map(([page, slots]) => ({
      call: { op: 'mask-page', inferlet, queue, id, page, slots },
      encode: (w) => encodeWords(w, OP.maskPage, inferlet, queue, id, page, slots),
    })),
    fc.tuple(u32, u32).map(([embed, topK]) => ({
      call: { op: 'next-distribution', inferlet, queue, id, embed, topK },
      encode: (w) => encodeWords(w, OP.nextDistribution, inferlet, queue, id, embed, topK),
    })),
    fc.tuple(text, list, list, list, mask).map(([adapter, inPages, inEmbeds, outEmbeds, explicit]) => ({
      call: { op: 'forward', ...plain, adapter, inPages, inEmbeds, outPages: inPages, outEmbeds, mask: explicit },
      encode: (w) =>
        encodeForwardWithAdapter(w, inferlet, queue, adapter, inPages, inEmbeds, inPages, outEmbeds, explicit),
    })),
    fc.tuple(step, fc.option(text)).map(([plainStep, adapter]) => {
      const request = adapter === null ? plainStep : { ...plainStep, adapter };
      return {
        call: { op: 'step', inferlet, queue, id, request },
        encode: (w) => encodeStep(w, inferlet, queue, id, request),
      };
    }),
    run.map((request) => ({
      call: { op: 'run', inferlet, queue, id, request },
      encode: (w) => encodeRun(w, inferlet, queue, id, request),
    })),
  ];
  return fc.oneof(...all);
});

/** Feeds `bytes` in pieces of the given sizes, over and over. */
function feed(
  reader: FrameReader,
  bytes: Uint8Array,
  sizes: readonly number[],
  handle: Parameters<FrameReader['push']>[1],
): void {
  for (let at = 0, i = 0; at < bytes.length; i++) {
    const size = sizes[i % sizes.length] ?? bytes.length;
    reader.push(bytes.subarray(at, at + size), handle);
    at += size;
  }
}

function decodeAll(bytes: Uint8Array, sizes: readonly number[] = [bytes.length]): DecodedCall[] {
  const calls: DecodedCall[] = [];
  feed(new FrameReader(), bytes, sizes, (kind, reader, end) => {
    assert.equal(kind, FRAME.calls);
    decodeCalls(reader, end, (call) => calls.push(call));
  });
  return calls;
}

function codeOf(action: () => void): ProtocolFaultCode | 'none' {
  try {
    action();
  } catch (error) {
    if (error instanceof ProtocolFault) return error.code;
    throw error;
  }
  return 'none';
}

test('every call comes out as it went in, however the stream is cut', () => {
  fc.assert(
    fc.property(
      fc.array(made, { maxLength: 30 }),
      fc.array(fc.integer({ min: 1, max: 300 }), { minLength: 1, maxLength: 5 }),
      (calls, sizes) => {
        const writer = new FrameWriter();
        for (const { encode } of calls) assert.equal(encode(writer), true);
        assert.deepEqual(
          decodeAll(writer.take(), sizes),
          calls.map(({ call }) => call),
        );
        assert.equal(writer.length, 0);
      },
    ),
    { seed: 1, numRuns: 300 },
  );
});

test('many calls become several frames, and one larger than a frame or with too long a list is refused without a trace', () => {
  const writer = new FrameWriter();
  const longest = new Uint32Array(MAX_LIST);
  for (let i = 0; i < 7; i++) assert.equal(encodeLists(writer, OP.freePages, 1, i, [longest]), true);
  const tooMany = Array.from({ length: Math.ceil(MAX_FRAME_WORDS / MAX_LIST) }, () => longest);
  assert.equal(encodeLists(writer, OP.freePages, 1, 98, tooMany), false);
  assert.equal(encodeLists(writer, OP.freePages, 1, 99, [new Uint32Array(MAX_LIST + 1)]), false);
  assert.equal(encodeBare(writer, OP.synchronize, 1, 7, 1), true);
  const bytes = writer.take();
  let frames = 0;
  const queues: number[] = [];
  feed(new FrameReader(), bytes, [64 * 1024], (_, reader, end) => {
    frames++;
    decodeCalls(reader, end, (call) => queues.push(call.queue));
  });
  assert.ok(frames >= 3, `${frames} frames`);
  assert.deepEqual(queues, [0, 1, 2, 3, 4, 5, 6, 7]);
});

function words(...values: number[]): Uint8Array {
  return new Uint8Array(Uint32Array.from(values).buffer);
}

const CALLS = (PROTOCOL_VERSION << 16) | FRAME.calls;

test('a bad frame is named for what it is', () => {
  const push = (bytes: Uint8Array) => codeOf(() => decodeAll(bytes));
  assert.equal(push(words(MAX_FRAME_WORDS + 1, CALLS)), 'oversized');
  assert.equal(push(words(0xffffffff, CALLS)), 'oversized');
  assert.equal(push(words(2, ((PROTOCOL_VERSION + 1) << 16) | FRAME.calls)), 'version');
  assert.equal(push(new TextEncoder().encode('GET / HTTP/1.1\r\n\r\n')), 'version');
  assert.equal(push(words(2, (PROTOCOL_VERSION << 16) | 77)), 'malformed');
  assert.equal(push(words(1, CALLS)), 'malformed');
  assert.equal(push(words(0, CALLS)), 'malformed');
  assert.equal(push(words(2, CALLS)), 'none');
  // Entries: longer than the frame, of no length, of an unknown operation, with fields missing, with words left over, a list past its end.
  assert.equal(push(words(3, CALLS, 9)), 'truncated');
  assert.equal(push(words(3, CALLS, 0)), 'truncated');
  assert.equal(push(words(7, CALLS, 5, 999, 1, 1, 0)), 'malformed');
  assert.equal(push(words(6, CALLS, 4, OP.synchronize, 1, 1)), 'truncated');
  assert.equal(push(words(8, CALLS, 6, OP.synchronize, 1, 1, 5, 5)), 'malformed');
  assert.equal(push(words(8, CALLS, 6, OP.freePages, 1, 1, 0, 0xffffffff)), 'truncated');
  assert.equal(push(words(12, CALLS, 10, OP.openInferlet, 1, 0, 0, 4, 0, 0, 0, 0xffffffff)), 'malformed');
  // Flags and rights that do not exist.
  assert.equal(push(words(8, CALLS, 6, OP.setWaiting, 1, 0, 0, 2)), 'malformed');
  assert.equal(push(words(12, CALLS, 10, OP.fileSave, 1, 1, 1, 0, 0, 3, 0, 0)), 'malformed');
});

test('random bytes are refused or waited for, never more', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 400 }), fc.boolean(), (bytes, framed) => {
      const input = framed
        ? Buffer.concat([words(2 + (bytes.length >> 2), CALLS), bytes.subarray(0, bytes.length & ~3)])
        : bytes;
      codeOf(() => decodeAll(input, [7, 1, 50]));
    }),
    { seed: 3, numRuns: 3000 },
  );
});

test('flipped words in good frames are refused or read as other calls, never more', () => {
  fc.assert(
    fc.property(fc.array(made, { minLength: 1, maxLength: 5 }), fc.nat(), u32, (calls, at, value) => {
      const writer = new FrameWriter();
      for (const { encode } of calls) encode(writer);
      const bytes = writer.take();
      const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
      view.setUint32((at % (bytes.length / 4)) * 4, value, true);
      codeOf(() => decodeAll(bytes));
    }),
    { seed: 4, numRuns: 2000 },
  );
});

test('a header announces at most one frame of memory', () => {
  const reader = new FrameReader();
  reader.push(words(MAX_FRAME_WORDS, CALLS), () => assert.fail('not whole'));
  let whole = 0;
  reader.push(new Uint8Array(MAX_FRAME_BYTES - 8), (_, body, end) => {
    whole++;
    assert.equal(
      codeOf(() => decodeCalls(body, end, () => {})),
      'truncated',
    );
  });
  assert.equal(whole, 1);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { HANDLER_ERROR_CASES, RIGHTS_CASES, TIER_CASES } from '#wit/generated/host.ts';
import { world } from '#wit/generated/world.ts';
import { ProtocolFault, type ProtocolFaultCode } from './errors.ts';
import * as fields from './fields.ts';
import { PageLists } from './fields.ts';
import { FrameReader, FrameWriter } from './frames.ts';
import {
  type DecodedCall,
  decodeCalls,
  encodeCall,
  exceededLimit,
  OPERATIONS,
  type Operation,
  type OperationName,
} from './operations.ts';
import { f32, i32, list, record, text, u32 } from './testing/arbitrary.ts';
import { FRAME, HELLO_VERSION, MAX_ADDRESSES, MAX_FRAME_BYTES, MAX_FRAME_WORDS, MAX_LIST } from './wire.ts';

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
const adapter = fc.option(text, { nil: undefined });
const request = {
  tokens: list,
  positions: list,
  inPages: list,
  outPages: list,
  mask,
  rows: u32,
  output,
  allowed,
  adapter,
};

/** The arbitrary that generates the values of each field. */
const VALUES = new Map<fields.Field<unknown>, fc.Arbitrary<unknown>>([
  [fields.u32, u32],
  [fields.count, u32],
  [fields.i32, i32],
  [fields.wide, fc.maxSafeNat()],
  [fields.text, text],
  [fields.optionalText, adapter],
  [fields.list, list],
  [fields.addresses, list],
  [fields.contextPages, list],
  [fields.pagesOfContext, list],
  [fields.pixels, fc.uint8Array({ maxLength: 40, size: 'max' })],
  [fields.piece, fc.uint8Array({ maxLength: 40, size: 'max' })],
  [fields.flag, fc.boolean()],
  [fields.mask, mask],
  [fields.rights, fc.constantFrom(...RIGHTS_CASES)],
  [fields.tier, fc.constantFrom(...TIER_CASES)],
  [fields.tenantLimit, record({ pages: fc.option(fc.nat({ max: 0xffff_fffe })), readAt: fc.maxSafeNat() })],
  [fields.handlerErrorField, record({ tag: fc.constantFrom(...HANDLER_ERROR_CASES), val: text })],
  [fields.stepRequest, record(request)],
  [
    fields.logitChanges,
    record({
      frequency: f32,
      presence: f32,
      biasTokens: list,
      chosen: list,
      biasValues: fc.float32Array({ maxLength: 40, size: 'max' }),
    }),
  ],
  [fields.runRequest, record({ token: u32, position: u32, pages: list, maxTokens: u32, sampler, stopTokens: list })],
]);

/** The fields that may hold each kind of number in WIT. */
const NUMBERS = new Map<string, readonly fields.Field<unknown>[]>([
  ['u32', [fields.u32, fields.count]],
  ['s32', [fields.i32]],
]);

/** Any call of any operation. */
const anyCall: fc.Arbitrary<DecodedCall> = fc.oneof(
  ...Object.entries(OPERATIONS).map(([op, { entries }]) => {
    const values = entries.map(([name, field]) => [name, VALUES.get(field) ?? assert.fail(`${op}: ${name}`)]);
    const header = { op: fc.constant(op), inferlet: u32, queue: u32, id: u32 };
    return record<DecodedCall>({ ...header, ...Object.fromEntries(values) });
  }),
);
const encode = (writer: FrameWriter, call: DecodedCall, lists = new PageLists()): boolean =>
  encodeCall(writer, lists, call, call);
const codeOfOperation = (op: OperationName): number => OPERATIONS[op].code;

/** Feeds all of `bytes` in pieces; the sizes of the pieces repeat `sizes`. */
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
  const lists = new PageLists();
  feed(new FrameReader(), bytes, sizes, (kind, reader, end) => {
    assert.equal(kind, FRAME.calls);
    decodeCalls(reader, end, lists, (call) => calls.push(call));
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

test('each number field of an operation has the kind of number of its parameter in WIT', () => {
  const rows = new Map<string, (typeof OPERATIONS)[OperationName]>(Object.entries(OPERATIONS));
  let checkedCount = 0;
  for (const { name, params } of world.imports.flatMap(({ functions }) => functions)) {
    if (params[0]?.js !== 'queue') continue;
    for (const [field, form] of rows.get(name)?.entries ?? []) {
      const kind = params.find(({ js }) => js === field)?.type.kind ?? '';
      const forms = NUMBERS.get(kind);
      if (!forms) continue;
      checkedCount++;
      assert.ok(forms.includes(form), `${name}: ${field} is ${kind} in WIT`);
    }
  }
  assert.ok(checkedCount > 0);
});

test('every call is decoded as it was encoded, however the stream is cut', () => {
  fc.assert(
    fc.property(
      fc.array(anyCall, { maxLength: 30, size: 'max' }),
      fc.array(fc.integer({ min: 1, max: 300 }), { minLength: 1, maxLength: 5 }),
      (calls, sizes) => {
        const writer = new FrameWriter();
        const lists = new PageLists();
        for (const call of calls) assert.equal(encode(writer, call, lists), true);
        assert.deepEqual(decodeAll(writer.take(), sizes), calls);
        assert.equal(writer.length, 0);
      },
    ),
    { seed: 1, numRuns: 300 },
  );
});

test('calls are laid out as the README says', () => {
  const wordsOf = (operation: Operation): number[] => {
    const writer = new FrameWriter();
    assert.equal(encodeCall(writer, new PageLists(), { inferlet: 7, queue: 8, id: 9 }, operation), true);
    const bytes = writer.take();
    return [...new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4)].slice(2);
  };
  const one = Uint32Array.of(1);
  const two = Uint32Array.of(2, 3);
  const ab = Buffer.from('ab\0\0').readUInt32LE();
  const half = 0x3f00_0000;
  const seen = { runs: two, rowLengths: one };
  const lists = { inPages: one, inEmbeds: two, outPages: one, outEmbeds: two };
  // Each entry begins with its length in words, the operation's code, inferlet 7, queue 8 and id 9.
  assert.deepEqual(wordsOf({ op: 'set-priority', priority: -1 }), [6, 5, 7, 8, 9, 0xffff_ffff]);
  const inPages = [0, 1, 1];
  const inEmbeds = [2, 2, 3];
  // The one out-page equals the first in-page.
  const outPages = [1, 0];
  const outEmbeds = [2, 2, 3];
  const maskWords = [1, 2, 2, 3, 1, 1];
  const adapterWords = [1, 2, ab];
  assert.deepEqual(
    wordsOf({ op: 'forward', ...lists, mask: seen, adapter: 'ab' }),
    [25, 14, 7, 8, 9].concat(inPages, inEmbeds, outPages, outEmbeds, maskWords, adapterWords),
  );
  const sampler = { temperature: 0.5, topK: 4, topP: 0.5, minP: 0.5, seed: 5 };
  assert.deepEqual(
    wordsOf({ op: 'run', request: { token: 1, position: 2, pages: two, maxTokens: 6, sampler, stopTokens: one } }),
    [18, 18, 7, 8, 9, 1, 2, 2, 2, 3, 6, half, 4, half, half, 5, 1, 1],
  );
  const plain = { tokens: one, positions: two, inPages: one, outPages: one, mask: undefined, rows: 3 };
  assert.deepEqual(
    wordsOf({ op: 'step', request: { ...plain, output: { tag: 'distributions', val: 4 } } }),
    [21, 17, 7, 8, 9, 1, 1, 2, 2, 3, 0, 1, 1, 1, 0, 0, 3, 2, 4, 0, 0],
  );
  assert.deepEqual(
    wordsOf({ op: 'file-save', name: 'ab', persistent: true, rights: 'writable', functionName: '', pages: one }),
    [12, 33, 7, 8, 9, 2, ab, 1, 2, 0, 1, 1],
  );
  assert.deepEqual(
    wordsOf({ op: 'set-tenant-limit', tenantPages: { pages: null, readAt: 2 ** 32 + 5 } }),
    [8, 45, 7, 8, 9, 0xffff_ffff, 5, 1],
  );
});

test('many calls fill several frames; a call that is larger than a frame or has too long a list is refused and not sent', () => {
  const writer = new FrameWriter();
  const longest = new Uint32Array(MAX_LIST);
  const lists = new PageLists();
  const put = (queue: number, operation: Operation) =>
    encodeCall(writer, lists, { inferlet: 1, queue, id: 1 }, operation);
  for (let i = 0; i < 7; i++) assert.equal(put(i, { op: 'log-probabilities', embed: 1, tokens: longest }), true);
  assert.equal(put(98, { op: 'image-pixels', pixels: new Uint8Array(MAX_FRAME_BYTES) }), false);
  assert.equal(put(99, { op: 'log-probabilities', embed: 1, tokens: new Uint32Array(MAX_LIST + 1) }), false);
  assert.equal(put(99, { op: 'free-pages', pages: new Uint32Array(MAX_ADDRESSES) }), true);
  assert.equal(put(99, { op: 'free-pages', pages: new Uint32Array(MAX_ADDRESSES + 1) }), false);
  assert.equal(put(7, { op: 'synchronize' }), true);
  const bytes = writer.take();
  let frames = 0;
  const queues: number[] = [];
  feed(new FrameReader(), bytes, [64 * 1024], (_, reader, end) => {
    frames++;
    decodeCalls(reader, end, new PageLists(), (call) => queues.push(call.queue));
  });
  assert.ok(frames >= 2, `${frames} frames`);
  assert.deepEqual(queues, [0, 1, 2, 3, 4, 5, 6, 99, 7]);
});

const TOO_LONG = { words: new Uint32Array(MAX_LIST + 1), floats: new Float32Array(MAX_LIST + 1) };

/** Copies of the values, each with one of their lists too long. */
function* withTooLong<T extends object>(values: T): Generator<T> {
  for (const [name, value] of Object.entries(values)) {
    if (value instanceof Uint32Array) yield { ...values, [name]: TOO_LONG.words };
    else if (value instanceof Float32Array) yield { ...values, [name]: TOO_LONG.floats };
    else if (typeof value === 'object' && value !== null && !ArrayBuffer.isView(value))
      for (const tooLong of withTooLong(value)) yield { ...values, [name]: tooLong };
  }
}

test('a call is above its limit when any one of its lists is too long', () => {
  fc.assert(
    fc.property(anyCall, (call) => {
      if (!('count' in call)) assert.equal(exceededLimit(call), undefined);
      for (const tooLong of withTooLong(call))
        assert.ok(exceededLimit(tooLong) !== undefined, `a list of "${call.op}" may have any length`);
    }),
    { seed: 5, numRuns: 2000 },
  );
  assert.equal(exceededLimit({ op: 'allocate-pages', first: 1, count: MAX_ADDRESSES }), undefined);
  assert.equal(exceededLimit({ op: 'allocate-pages', first: 1, count: MAX_ADDRESSES + 1 }), MAX_ADDRESSES);
});

function words(...values: number[]): Uint8Array {
  return new Uint8Array(Uint32Array.from(values).buffer);
}

const CALLS = (HELLO_VERSION << 16) | FRAME.calls;

test('each kind of bad frame gets its own error code', () => {
  const push = (bytes: Uint8Array) => codeOf(() => decodeAll(bytes));
  assert.equal(push(words(MAX_FRAME_WORDS + 1, CALLS)), 'oversized');
  assert.equal(push(words(0xffffffff, CALLS)), 'oversized');
  assert.equal(push(words(2, ((HELLO_VERSION + 1) << 16) | FRAME.calls)), 'version');
  assert.equal(push(new TextEncoder().encode('GET / HTTP/1.1\r\n\r\n')), 'version');
  assert.equal(push(words(2, (HELLO_VERSION << 16) | 77)), 'malformed');
  assert.equal(push(words(1, CALLS)), 'malformed');
  assert.equal(push(words(0, CALLS)), 'malformed');
  assert.equal(push(words(2, CALLS)), 'none');
  // An entry longer than its frame, and one of no length.
  assert.equal(push(words(3, CALLS, 9)), 'truncated');
  assert.equal(push(words(3, CALLS, 0)), 'truncated');
  // An unknown operation.
  assert.equal(push(words(7, CALLS, 5, 999, 1, 1, 0)), 'malformed');
  // A field is missing; a word is left over.
  assert.equal(push(words(6, CALLS, 4, codeOfOperation('synchronize'), 1, 1)), 'truncated');
  assert.equal(push(words(8, CALLS, 6, codeOfOperation('synchronize'), 1, 1, 5, 5)), 'malformed');
  // A list past the end of its entry.
  assert.equal(push(words(8, CALLS, 6, codeOfOperation('free-pages'), 1, 1, 0, 0xffffffff)), 'truncated');
  // A text above the limit.
  assert.equal(
    push(words(14, CALLS, 12, codeOfOperation('open-inferlet'), 1, 0, 0, 4, 0, 0, 0, 0, 0, 0xffffffff)),
    'malformed',
  );
  // Flags and rights that do not exist.
  assert.equal(push(words(8, CALLS, 6, codeOfOperation('set-waiting'), 1, 0, 0, 2)), 'malformed');
  assert.equal(push(words(12, CALLS, 10, codeOfOperation('file-save'), 1, 1, 1, 0, 0, 3, 0, 0)), 'malformed');
});

test('random bytes are refused with a protocol fault, or wait for the rest of a frame', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 400, size: 'max' }), fc.boolean(), (bytes, framed) => {
      const input = framed
        ? Buffer.concat([words(2 + (bytes.length >> 2), CALLS), bytes.subarray(0, bytes.length & ~3)])
        : bytes;
      codeOf(() => decodeAll(input, [7, 1, 50]));
    }),
    { seed: 3, numRuns: 3000 },
  );
});

test('frames with one changed word are refused with a protocol fault, or read as other calls', () => {
  fc.assert(
    fc.property(fc.array(anyCall, { minLength: 1, maxLength: 5 }), fc.nat(), u32, (calls, at, value) => {
      const writer = new FrameWriter();
      for (const call of calls) encode(writer, call);
      const bytes = writer.take();
      const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
      view.setUint32((at % (bytes.length / 4)) * 4, value, true);
      codeOf(() => decodeAll(bytes));
    }),
    { seed: 4, numRuns: 2000 },
  );
});

test('a frame of the largest size is handled once it is whole', () => {
  const reader = new FrameReader();
  reader.push(words(MAX_FRAME_WORDS, CALLS), () => assert.fail('not whole'));
  let whole = 0;
  reader.push(new Uint8Array(MAX_FRAME_BYTES - 8), (_, body, end) => {
    whole++;
    assert.equal(
      codeOf(() => decodeCalls(body, end, new PageLists(), () => {})),
      'truncated',
    );
  });
  assert.equal(whole, 1);
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { codecName } from '#wit/generate/channel-values.ts';
import { type NamedType, parts, type WitType } from '#wit/generate/model.ts';
import * as codec from '#wit/generated/channel.ts';
import { CHANNEL_CALLS } from '#wit/generated/channel.ts';
import { world } from '#wit/generated/world.ts';
import { MessageReader, MessageWriter } from './codec.ts';
import { ChannelFault, MAX_ITEMS, MAX_MESSAGE_BYTES } from './limits.ts';
import { arbitraryOf } from './testing/arbitrary.ts';

const SEED = 23;

type Write = (w: MessageWriter, value: unknown) => void;
type Read = (r: MessageReader) => unknown;

const functions = codec as unknown as Record<string, Write & Read>;

/** Handles that accept any number. In these tests a resource is represented by its number. */
const HANDLES = { get: (_: number, number: number) => number, take: (_: number, number: number) => number };

const writer = () => new MessageWriter((_, value) => Number(value));

function namedTypes(): NamedType[] {
  const found = new Set<NamedType>();
  const visit = (type: WitType | null): void => {
    if (!type) return;
    for (const part of parts(type)) visit(part);
    if ('name' in type) found.add(type);
  };
  for (const { types } of world.imports) types.forEach(visit);
  return [...found];
}

/** For each named type, and for the arguments and the result of each call: random values, and the functions that write and read them. */
const CODECS = [
  ...namedTypes().map((type) => {
    const name = codecName(type);
    return {
      name,
      values: arbitraryOf(type),
      write: functions[`write${name}`] as Write,
      read: functions[`read${name}`] as Read,
    };
  }),
  ...CHANNEL_CALLS.flatMap((call) => {
    const contract = world.imports.find((entry) => entry.name === call.interface);
    if (!contract) return [];
    const allFunctions = [...contract.resources.flatMap((resource) => resource.functions), ...contract.functions];
    const fn = allFunctions.find(({ coreName }) => coreName === call.name);
    if (!fn) return [];
    const self: WitType[] = fn.kind === 'method' ? [{ kind: 'borrow', interface: call.interface, resource: '' }] : [];
    const result = fn.result?.kind === 'future' ? fn.result.value : fn.result;
    const answered = call.answering === 'future' || call.answering === 'waits';
    return [
      {
        name: `arguments of ${call.interface} ${call.name}`,
        values: fc.tuple(...[...self, ...fn.params.map(({ type }) => type)].map(arbitraryOf)) as fc.Arbitrary<unknown>,
        write: ((w, value) => call.writeArguments(w, value as unknown[])) as Write,
        read: ((r) => call.readArguments(r)) as Read,
      },
      ...(answered && result
        ? [
            {
              name: `result of ${call.interface} ${call.name}`,
              values: arbitraryOf(result),
              write: ((w, value) => call.writeResult(w, value)) as Write,
              read: ((r) => call.readResult(r)) as Read,
            },
          ]
        : []),
    ];
  }),
];

/** Damages the bytes at random: perhaps cuts off their end, and overwrites up to three of them. */
function damage(bytes: Buffer, next: () => number): Buffer {
  const damaged = next() % 3 === 0 ? bytes.subarray(0, next() % (bytes.length + 1)) : bytes;
  const overwrites = next() % 4;
  for (let i = 0; i < overwrites && damaged.length > 0; i++) damaged[next() % damaged.length] = next() & 255;
  return damaged;
}

function decode(read: Read, bytes: Buffer): unknown {
  const reader = new MessageReader(bytes, HANDLES);
  const value = read(reader);
  reader.end();
  return value;
}

describe("the channel's codec", () => {
  it('carries random values of every type and call of the contract', () => {
    assert.ok(CODECS.length > 80, `${CODECS.length} codecs`);
    for (const { name, values, write, read } of CODECS) {
      fc.assert(
        fc.property(values, (value) => {
          const w = writer();
          write(w, value);
          assert.deepEqual(decode(read, w.take()), value, name);
        }),
        { seed: SEED, numRuns: 30 },
      );
    }
  });

  it('rejects damaged bytes with a typed fault, or reads a value of the type', () => {
    for (const { name, values, write, read } of CODECS) {
      fc.assert(
        fc.property(values, fc.infiniteStream(fc.nat()), (value, choices) => {
          const w = writer();
          write(w, value);
          const damaged = damage(w.take(), () => choices.next().value as number);
          let readValue: unknown;
          try {
            readValue = decode(read, damaged);
          } catch (error) {
            assert.ok(error instanceof ChannelFault, `${name}: ${error}`);
            assert.ok(['bad-value', 'too-large'].includes(error.code), error.code);
            return;
          }
          // Every value that can be read can also be written.
          const again = writer();
          write(again, readValue);
          assert.deepEqual(decode(read, again.take()), readValue, name);
        }),
        { seed: SEED, numRuns: 60 },
      );
    }
  });

  it('writes every number correctly after its buffer has just grown', () => {
    // The buffer begins with 4,096 bytes, so the numbers behind `before` bytes lie across its first end or behind it.
    for (let before = 4080; before <= 4096; before++) {
      const w = new MessageWriter();
      // A list of bytes begins with its length, which takes four bytes.
      w.numbers(new Uint8Array(before - 4));
      w.u16(0x1234);
      w.u32(0x1234_5678);
      w.s32(-5);
      w.u64(0x1234_5678_9abc_def0n);
      w.s64(-7n);
      w.f32(1.5);
      w.f64(-2.25);
      const r = new MessageReader(w.take());
      assert.equal(r.u8List().length, before - 4);
      const read = [r.u16(), r.u32(), r.s32(), r.u64(), r.s64(), r.f32(), r.f64()];
      assert.deepEqual(read, [0x1234, 0x1234_5678, -5, 0x1234_5678_9abc_def0n, -7n, 1.5, -2.25], `${before}`);
      r.end();
    }
  });

  it('checks a count against the remaining bytes before it makes a list', () => {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32LE(0xffff_ffff);
    for (const list of ['u8List', 'u32List', 'f64List', 'string'] as const) {
      assert.throws(() => new MessageReader(bytes)[list](), { code: 'bad-value' }, list);
    }
    assert.throws(() => new MessageReader(bytes).list(1, () => 0), { code: 'bad-value' });
  });

  it('bounds the number of values that are read from one message, and the bytes that are written to one', () => {
    const texts = (count: number) => {
      const bytes = Buffer.alloc(4 + 4 * count);
      bytes.writeUInt32LE(count);
      const reader = new MessageReader(bytes);
      return reader.list(4, () => reader.string());
    };
    // The reader counts each text twice: as an element of the list and as a text.
    assert.equal(texts(MAX_ITEMS / 2).length, MAX_ITEMS / 2);
    assert.throws(() => texts(MAX_ITEMS / 2 + 1), { code: 'too-large' });
    const w = new MessageWriter();
    assert.throws(() => w.numbers(new Uint8Array(MAX_MESSAGE_BYTES)), { code: 'too-large' });
  });

  it('rejects texts that are not UTF-8, unknown cases, surrogates as characters, and trailing bytes', () => {
    assert.throws(() => new MessageReader(Buffer.from([1, 0, 0, 0, 0xff])).string(), { code: 'bad-value' });
    assert.throws(() => new MessageReader(Buffer.from([2])).bool(), { code: 'bad-value' });
    assert.throws(() => new MessageReader(Buffer.from([0, 0xd8, 0, 0])).char(), { code: 'bad-value' });
    assert.throws(() => new MessageReader(Buffer.from([2])).end(), { code: 'bad-value' });
  });
});

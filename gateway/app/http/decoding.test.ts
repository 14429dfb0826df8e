import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { brotliCompressSync, constants, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import fc from 'fast-check';
import { nodeDecoders } from '../../node/http/server.ts';
import { Bodies, Body, type BodyLimits, codingOf, webDecoders } from './bodies.ts';

const MIB = 2 ** 20;
const LIMITS: BodyLimits = { heldBodyBytes: 8 * MIB, bodyGraceMs: 60_000, bodyBytesPerSecond: 64 * MIB };
/** Brotli at a quality that does not dominate the time of the tests. */
const brotli = (bytes: Uint8Array) => brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 4 } });
const CODERS = {
  gzip: gzipSync,
  'x-gzip': gzipSync,
  deflate: deflateSync,
  br: brotli,
  zstd: zstdCompressSync,
};
type Coding = keyof typeof CODERS;
const CODINGS = Object.keys(CODERS) as Coding[];

/** A body whose pieces are taken from `pieces`; `taken` counts them. */
function arriving(coding: string, pieces: readonly Uint8Array[], cause?: Error, bodies = new Bodies(LIMITS)) {
  const waiting = [...pieces];
  const taken = { count: 0 };
  const stream = new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        const piece = waiting.shift();
        if (piece !== undefined) {
          taken.count += 1;
          controller.enqueue(piece);
        } else if (cause === undefined) controller.close();
        else controller.error(cause);
      },
    },
    { highWaterMark: 0 },
  );
  const headers = { 'content-encoding': coding };
  const request = new Request('http://gateway/', { method: 'POST', body: stream, headers, duplex: 'half' });
  return { body: new Body(request, bodies, () => 'a', nodeDecoders()), bodies, taken };
}

function split(bytes: Uint8Array, at: readonly number[]): Uint8Array[] {
  const cuts = [0, ...at.map((part) => Math.floor(part * bytes.length)), bytes.length].sort((a, b) => a - b);
  return cuts.slice(1).map((end, i) => bytes.subarray(cuts[i], end));
}

const fraction = fc.double({ min: 0, max: 1, noNaN: true });

describe('a compressed body', () => {
  it('is decoded, however its bytes arrive', async () => {
    const text = fc
      .tuple(fc.uint8Array({ maxLength: 100, size: 'max' }), fc.nat(2000))
      .map(([part, times]) => Buffer.concat(Array.from({ length: times }, () => part)));
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...CODINGS),
        text,
        fc.array(fraction, { maxLength: 5 }),
        async (coding, plain, at) => {
          const { body, bodies } = arriving(coding, split(CODERS[coding](plain), at));
          assert.deepEqual(Buffer.from(await body.read(plain.length)), Buffer.from(plain));
          assert.ok(bodies.heldBytes >= plain.length, 'the decoded bytes count as held');
          body.release();
          assert.equal(bodies.heldBytes, 0);
        },
      ),
      { seed: 3, numRuns: 60 },
    );
  });

  it('is refused as soon as it decodes to more than the limit, and the rest is not decoded', async () => {
    const zeros = Buffer.alloc(64 * MIB);
    for (const coding of CODINGS) {
      const { body, bodies } = arriving(coding, split(CODERS[coding](zeros), [0.25, 0.5, 0.75]));
      const before = process.memoryUsage().arrayBuffers;
      await assert.rejects(body.read(MIB), { code: 'body-too-large' });
      assert.ok(process.memoryUsage().arrayBuffers - before < 16 * MIB, coding);
      assert.ok(bodies.heldBytes <= MIB + LIMITS.heldBodyBytes / 4 + 16 * 1024, 'the body and its decoder');
      await body.discard();
      body.release();
      assert.equal(bodies.heldBytes, 0);
    }
  });

  it('is refused when its data is damaged, incomplete or not compressed', async () => {
    const plain = Buffer.from(JSON.stringify(Array.from({ length: 1000 }, (_, i) => i)));
    for (const coding of CODINGS) {
      const whole = CODERS[coding](plain);
      const damaged = Buffer.from(whole);
      damaged.fill(0xff, 20, 40);
      for (const bytes of [plain, whole.subarray(0, -5), whole.subarray(0, 1), damaged, Buffer.from('{}')]) {
        const { body } = arriving(coding, [bytes]);
        await assert.rejects(body.read(MIB), { code: 'malformed-request', field: 'content-encoding' }, coding);
        await body.discard();
        body.release();
      }
    }
  });

  it('counts its decoder until the end, so that many bodies with large windows take no more than the memory of all', async () => {
    const bodies = new Bodies({ ...LIMITS, heldBodyBytes: 70 * MIB });
    const plain = Buffer.from('{}');
    const begin = async () => {
      const { body } = arriving('br', [...split(brotli(plain), [0.5])], undefined, bodies);
      const next = body.pieces();
      await next();
      return { body, next };
    };
    const [first, second] = [await begin(), await begin()];
    assert.ok(bodies.heldBytes >= 34 * MIB);
    await assert.rejects(begin(), { code: 'too-many-requests' });
    assert.equal(await first.next(), undefined);
    assert.ok(bodies.heldBytes < 18 * MIB, 'only the decoded bytes of the first body, and the decoder of the second');
    const third = await begin();
    for (const { body } of [first, second, third]) body.release();
    assert.equal(bodies.heldBytes, 0);
  });

  it('keeps the errors of its connection', async () => {
    const cause = new Error('socket hang up');
    const { body } = arriving('gzip', [gzipSync('a'.repeat(100)).subarray(0, 20)], cause);
    await assert.rejects(body.read(MIB), { code: 'malformed-request', cause, message: /connection broke/ });
    await body.discard();
    body.release();
  });

  it('may end with its client while it is decoded', async () => {
    const { body, bodies, taken } = arriving('gzip', split(gzipSync(Buffer.alloc(MIB)), [0.1, 0.2, 0.3]));
    const next = body.pieces();
    await next();
    body.release();
    await body.discard();
    assert.equal(bodies.heldBytes, 0);
    assert.equal(taken.count, 4, 'the rest was taken from the connection');
  });
});

it('a coding without a decoder, and several of them, are refused with those that there are', () => {
  const decoders = webDecoders();
  const of = (coding: string) => codingOf(new Headers({ 'content-encoding': coding }), decoders);
  for (const coding of ['', ' ', 'identity', 'Identity, identity']) assert.equal(of(coding), null);
  for (const coding of ['gzip', 'GZIP', 'x-gzip', 'identity, gzip']) assert.equal(of(coding), 'gzip');
  for (const coding of ['compress', 'gzip, gzip', 'br, gzip', 'zstd', 'aes128gcm', 'x'.repeat(5000)])
    assert.throws(() => of(coding), {
      code: 'unsupported-media-type',
      headers: { 'accept-encoding': 'gzip, deflate, br' },
      message: /^.{0,120}$/,
    });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import fc from 'fast-check';
import { Bodies, Body, type BodyLimits, ByteBuffer } from './bodies.ts';

const KIB = 1024;
const LIMITS: BodyLimits = { heldBodyBytes: 256 * KIB, bodyGraceMs: 60_000, bodyBytesPerSecond: 1024 * KIB };

/** A body that the test sends piece by piece. */
function sending(headers: Record<string, string> = {}) {
  let controller!: ReadableStreamDefaultController<Uint8Array>;
  let cancelled = false;
  const stream = new ReadableStream<Uint8Array>({
    start: (streamController) => {
      controller = streamController;
    },
    cancel: () => {
      cancelled = true;
    },
  });
  const request = new Request('http://gateway/', { method: 'POST', body: stream, headers, duplex: 'half' });
  return {
    request,
    send: (bytes: number) => controller.enqueue(new Uint8Array(bytes)),
    end: () => controller.close(),
    /** Breaks the connection. */
    fail: (cause: Error) => controller.error(cause),
    cancelled: () => cancelled,
  };
}

describe('bodies', () => {
  it('count as held from arrival to release', async () => {
    const bodies = new Bodies(LIMITS);
    const { request, send, end } = sending();
    const body = new Body(request, bodies, () => 'a');
    const next = body.pieces();
    send(40 * KIB);
    assert.equal((await next())?.byteLength, 40 * KIB);
    assert.equal(bodies.heldBytes, 48 * KIB, 'held bytes are counted in whole blocks');
    send(10 * KIB);
    await next();
    assert.equal(bodies.heldBytes, 64 * KIB);
    end();
    assert.equal(await next(), undefined);
    body.release();
    body.release();
    assert.equal(bodies.heldBytes, 0);
  });

  it('with a small declared size count as held before they arrive', async () => {
    const bodies = new Bodies(LIMITS);
    const { request, send, end } = sending({ 'content-length': '10' });
    const body = new Body(request, bodies, () => 'a');
    const reading = body.read(10);
    assert.equal(bodies.heldBytes, 16 * KIB);
    send(10);
    end();
    assert.equal((await reading).byteLength, 10);
    body.release();
    assert.equal(bodies.heldBytes, 0);
  });

  it('count no piece that arrives after release', async () => {
    const bodies = new Bodies(LIMITS);
    const { request, send, end } = sending();
    const body = new Body(request, bodies, () => 'a');
    const arriving = body.pieces()();
    body.release();
    send(40 * KIB);
    assert.equal((await arriving)?.byteLength, 40 * KIB);
    end();
    assert.deepEqual([bodies.heldBytes, bodies.paces.tenants], [0, 0]);
  });

  it('are refused to a tenant that has used up its share, while other tenants still have room', async () => {
    // The first tenant may hold half of the 256 KiB, and each later one a quarter.
    const bodies = new Bodies(LIMITS);
    const read = async (tenant: string, bytes: number) => {
      const { request, send, end } = sending();
      const body = new Body(request, bodies, () => tenant);
      send(bytes);
      end();
      try {
        await body.read(1000 * KIB);
        return body;
      } catch (error) {
        await body.discard();
        body.release();
        throw error;
      }
    };
    const first = await read('a', 128 * KIB);
    await assert.rejects(read('a', 16 * KIB), { code: 'too-many-requests', headers: { 'retry-after': '1' } });
    const other = await read('b', 64 * KIB);
    await assert.rejects(read('b', 16 * KIB), { code: 'too-many-requests' });
    const third = await read('c', 64 * KIB);
    await assert.rejects(read('d', 1), { code: 'gateway-busy', headers: { 'retry-after': '1' } });
    for (const body of [first, other, third]) body.release();
    assert.equal(bodies.heldBytes, 0, 'refused bodies hold nothing');
    (await read('a', 128 * KIB)).release();
  });

  it('are refused by their declared size before the first read', async () => {
    const bodies = new Bodies(LIMITS);
    const { request } = sending({ 'content-length': String(100 * KIB) });
    await assert.rejects(new Body(request, bodies).read(99 * KIB), { code: 'body-too-large' });
    assert.equal(bodies.heldBytes, 0);
  });

  it('are refused by their actual size when they declare none, and their rest is discarded', async () => {
    const bodies = new Bodies(LIMITS);
    const { request, send, end } = sending();
    const body = new Body(request, bodies);
    const fitting = sending();
    fitting.send(10 * KIB);
    fitting.end();
    const fittingBody = new Body(fitting.request, bodies);
    assert.equal((await fittingBody.read(10 * KIB)).byteLength, 10 * KIB);
    fittingBody.release();
    send(10 * KIB);
    send(1);
    await assert.rejects(body.read(10 * KIB), { code: 'body-too-large' });
    const discarded = body.discard();
    send(1000 * KIB);
    end();
    await discarded;
    body.release();
    assert.equal(bodies.heldBytes, 0);
  });

  it('are refused when one body exceeds the share of a tenant', async () => {
    const bodies = new Bodies(LIMITS);
    const { request, send } = sending();
    const body = new Body(request, bodies);
    send(129 * KIB);
    await assert.rejects(body.read(1000 * KIB), { code: 'body-too-large', message: /131072 bytes.*this gateway/ });
  });

  it('are cancelled when more bytes arrive than may be discarded', async () => {
    const { request, send, cancelled } = sending();
    const body = new Body(request, new Bodies(LIMITS));
    send(100);
    await body.pieces()();
    send(99);
    const discarded = body.discard(99);
    await setImmediate();
    assert.equal(cancelled(), false);
    send(1);
    await discarded;
    assert.equal(cancelled(), true);
  });

  it('are read at a limited pace for each tenant while another tenant has requests', async () => {
    const bodies = new Bodies({ ...LIMITS, heldBodyBytes: 8192 * KIB });
    const read = async () => {
      const [{ request, send, end }, begunAt] = [sending(), performance.now()];
      // A megabyte in 16 pieces.
      for (let i = 0; i < 16; i++) send(64 * KIB);
      end();
      const body = new Body(request, bodies, () => 'a');
      await body.read(2048 * KIB).catch(() => undefined);
      body.release();
      return performance.now() - begunAt;
    };
    const other = bodies.paces.enter('b');
    // At a megabyte a second, the body would take a second. But the tenant may spend a quarter of a second's bytes at once, and the test allows some
    // tolerance.
    assert.ok((await read()) > 600);
    other[Symbol.dispose]();
  });

  it('are read without a pace when their request has no key', async () => {
    const bodies = new Bodies(LIMITS);
    const { request, send, end } = sending();
    send(100 * KIB);
    end();
    await new Body(request, bodies).discard();
    assert.equal(bodies.paces.tenants, 0);
  });

  it('use the pace of their tenant from their second block until release', async () => {
    const bodies = new Bodies(LIMITS);
    const { request, send } = sending();
    const body = new Body(request, bodies, () => 'a');
    const next = body.pieces();
    send(16 * KIB);
    await next();
    assert.equal(bodies.paces.tenants, 0);
    send(1);
    await next();
    assert.equal(bodies.paces.tenants, 1);
    body.release();
    bodies.paces.enter('b');
    assert.equal(bodies.paces.tenants, 1, 'only the new tenant');
  });

  it('are refused when they average less than 16 KiB a second after their grace period', async (t) => {
    const { request, send } = sending();
    const next = new Body(request, new Bodies(LIMITS)).pieces();
    t.mock.timers.enable({ apis: ['setTimeout'] });
    send(64 * KIB);
    await next();
    let isRefused = false;
    const onRefused = () => {
      isRefused = true;
    };
    assert.rejects(next(), { code: 'body-timeout' }).then(onRefused);
    await setImmediate();
    // At 16 KiB a second, 64 KiB may take four seconds more than the grace period.
    t.mock.timers.tick(LIMITS.bodyGraceMs);
    await setImmediate();
    assert.equal(isRefused, false);
    t.mock.timers.tick(4000);
    await setImmediate();
    assert.equal(isRefused, true);
  });

  it('are refused when no more bytes arrive', async () => {
    const bodies = new Bodies({ ...LIMITS, bodyGraceMs: 20 });
    const declared: Record<string, string>[] = [{}, { 'content-length': '10' }];
    for (const headers of declared) {
      const { request, send } = sending(headers);
      const body = new Body(request, bodies);
      send(1);
      await assert.rejects(body.read(100 * KIB), { code: 'body-timeout', headers: { connection: 'close' } });
      // Discard must not wait for the rest, which may never come.
      await body.discard();
      body.release();
    }
    assert.equal(bodies.heldBytes, 0);
  });

  it('are refused as malformed when their connection breaks, however much of them has arrived', async () => {
    const bodies = new Bodies(LIMITS);
    // `Body` reads the body that declares a small size in one step, and the other one in pieces.
    const declared: Record<string, string>[] = [{}, { 'content-length': '10' }];
    for (const headers of declared) {
      for (const arrivedBytes of [0, 9]) {
        const { request, send, fail } = sending(headers);
        const body = new Body(request, bodies);
        const reading = body.read(100 * KIB);
        if (arrivedBytes > 0) send(arrivedBytes);
        await setImmediate();
        const cause = new Error('socket hang up');
        fail(cause);
        await assert.rejects(reading, {
          code: 'malformed-request',
          message: 'The connection broke before the end of the body.',
          hint: 'Send the request again.',
          cause,
        });
        await body.discard();
        body.release();
      }
    }
    assert.equal(bodies.heldBytes, 0);
  });
});

describe('the room of a tenant', () => {
  it('counts towards the same share as the bodies and other rooms of the tenant', () => {
    const bodies = new Bodies(LIMITS);
    const room = bodies.roomFor('a');
    assert.equal(room.take(100 * KIB), true);
    bodies.take('a', 20 * KIB);
    const second = bodies.roomFor('a');
    second.hold(8 * KIB);
    // A tenant alone may hold half of the 256 KiB.
    assert.equal(bodies.heldBytes, 128 * KIB);
    const refusal = { code: 'too-many-requests', headers: { 'retry-after': '1' } };
    assert.equal(second.take(1), false);
    assert.throws(() => second.hold(1), refusal);
    assert.throws(() => second.resize(8 * KIB + 1), refusal);
    assert.throws(() => bodies.take('a', 1), refusal);
    assert.equal(bodies.heldBytes, 128 * KIB, 'a refusal takes nothing');
    second.resize(2 * KIB);
    second.give(KIB);
    assert.equal(bodies.heldBytes, 121 * KIB);
    room.free();
    second.free();
    assert.equal(bodies.heldBytes, 20 * KIB, 'each room frees its own bytes');
  });

  it('leaves the shares of other tenants alone', () => {
    const bodies = new Bodies(LIMITS);
    const rooms = ['a', 'b', 'c', 'd'].map((tenant) => bodies.roomFor(tenant));
    // The first tenant may hold half of the 256 KiB, and each later one a quarter.
    const taken = [128, 64, 64].map((kib, i) => rooms[i]?.take(kib * KIB));
    assert.deepEqual(taken, [true, true, true]);
    assert.equal(rooms[3]?.take(1), false, 'all tenants together fill the memory');
    assert.throws(() => rooms[3]?.hold(1), { code: 'gateway-busy' });
    rooms[0]?.free();
    assert.equal(rooms[1]?.take(1), false, 'the memory that the first tenant gave back is not for the second one');
    assert.equal(rooms[3]?.take(64 * KIB), true);
    for (const room of rooms) room.free();
    assert.equal(bodies.heldBytes, 0);
  });
});

it('ByteBuffer holds the appended bytes in order', () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 50, size: 'max' })), (pieces) => {
      const buffer = new ByteBuffer();
      for (const piece of pieces) buffer.append(piece);
      assert.deepEqual(Buffer.from(buffer.bytes()), Buffer.concat(pieces));
    }),
    { seed: 7 },
  );
});

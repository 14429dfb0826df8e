import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { DEFAULT_LIMITS } from '../context.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { Bodies, Body } from './bodies.ts';
import { readMultipart } from './multipart.ts';

const options = {
  limits: { manifest: 1000, component: 10_000 },
  tooLarge: (name: string) => new GatewayError('component-too-large', name),
};

/** A request whose body arrives in pieces of the given sizes, and the number of bytes read from it. */
function inPieces(bytes: Uint8Array, contentType: string, sizes: readonly number[]) {
  let at = 0;
  let piece = 0;
  const stream = new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        if (at >= bytes.byteLength) return controller.close();
        const size = sizes[piece++ % sizes.length] ?? 1;
        controller.enqueue(bytes.subarray(at, at + size));
        at += size;
      },
    },
    { highWaterMark: 0 },
  );
  const request = new Request('http://gateway/', {
    method: 'PUT',
    body: stream,
    headers: { 'content-type': contentType },
    duplex: 'half',
  });
  return { body: new Body(request, new Bodies(DEFAULT_LIMITS)), taken: () => Math.min(at, bytes.byteLength) };
}

async function encoded(form: FormData) {
  const response = new Response(form);
  return {
    bytes: new Uint8Array(await response.arrayBuffer()),
    contentType: response.headers.get('content-type') ?? '',
  };
}

describe('readMultipart', () => {
  it('reads the body of a platform FormData in pieces of any size', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.uint8Array({ maxLength: 3000, size: 'max' }),
        fc.string({ maxLength: 200, size: 'max' }),
        fc.array(fc.integer({ min: 1, max: 700 }), { minLength: 1, maxLength: 8 }),
        async (component, manifest, sizes) => {
          const form = new FormData();
          form.set('manifest', new Blob([manifest]), 'pie.json');
          form.set('component', new Blob([component]), 'a.wasm');
          const { bytes, contentType } = await encoded(form);
          const parts = await readMultipart(inPieces(bytes, contentType, sizes).body, options);
          assert.deepEqual([...parts.keys()], ['manifest', 'component']);
          assert.equal(
            new TextDecoder().decode(parts.get('manifest')),
            new TextDecoder().decode(new TextEncoder().encode(manifest)),
          );
          assert.deepEqual(Buffer.from(parts.get('component')!), Buffer.from(component));
        },
      ),
      { seed: 7, numRuns: 150 },
    );
  });

  it('keeps a part that contains most of the boundary', async () => {
    const body =
      '--xyz\r\nContent-Disposition: form-data; name="component"\r\n\r\n\r\n--xy\r\n--xyy--xyz\r\n\r\n--xyz--\r\n';
    for (const sizes of [[1], [2], [3], [1000]]) {
      const parts = await readMultipart(
        inPieces(Buffer.from(body), 'multipart/form-data; boundary=xyz', sizes).body,
        options,
      );
      assert.equal(Buffer.from(parts.get('component')!).toString(), '\r\n--xy\r\n--xyy--xyz\r\n');
    }
  });

  it('refuses an oversized part without reading the rest', async () => {
    const form = new FormData();
    form.set('component', new Blob([new Uint8Array(5_000_000)]), 'a.wasm');
    const { bytes, contentType } = await encoded(form);
    const { body, taken } = inPieces(bytes, contentType, [1000]);
    await assert.rejects(readMultipart(body, options), { code: 'component-too-large' });
    assert.ok(taken() < 20_000, `${taken()} bytes were read`);
  });

  const cases: [name: string, body: string, code: string][] = [
    ['an empty body', '', 'malformed-request'],
    ['a body without boundary', 'hello', 'malformed-request'],
    ['a missing end', '--b\r\nContent-Disposition: form-data; name="manifest"\r\n\r\n{}', 'malformed-request'],
    ['an unknown part', '--b\r\nContent-Disposition: form-data; name="other"\r\n\r\n{}\r\n--b--', 'malformed-request'],
    [
      'an inherited name',
      '--b\r\nContent-Disposition: form-data; name="constructor"\r\n\r\n{}\r\n--b--',
      'malformed-request',
    ],
    ['a part without a name', '--b\r\nContent-Type: text/plain\r\n\r\n{}\r\n--b--', 'malformed-request'],
    ['a part without headers', '--b\r\n\r\n{}\r\n--b--', 'malformed-request'],
    [
      'a part that comes twice',
      '--b\r\nContent-Disposition: form-data; name="manifest"\r\n\r\n{}\r\n--b\r\nContent-Disposition: form-data; name="manifest"\r\n\r\n{}\r\n--b--',
      'malformed-request',
    ],
    ['headers without end', `--b\r\nContent-Disposition: form-data; ${'x'.repeat(20_000)}`, 'malformed-request'],
  ];
  for (const [name, body, code] of cases) {
    it(`refuses ${name}`, async () => {
      const { body: sent } = inPieces(Buffer.from(body), 'multipart/form-data; boundary=b', [100]);
      await assert.rejects(readMultipart(sent, options), { code });
    });
  }

  it('refuses other content types and a missing boundary', async () => {
    await assert.rejects(readMultipart(inPieces(Buffer.from('{}'), 'application/json', [10]).body, options), {
      code: 'unsupported-media-type',
    });
    await assert.rejects(
      readMultipart(inPieces(Buffer.from('{}'), 'multipart/form-data; charset=x', [10]).body, options),
      {
        code: 'malformed-request',
      },
    );
  });
});

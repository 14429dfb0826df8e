import assert from 'node:assert/strict';
import http from 'node:http';
import { after, before, describe, it } from 'node:test';
import { componentBytes, GatewayPlatform } from '../testing/platform.ts';

const MEBIBYTE = 2 ** 20;

describe('a large upload', () => {
  let platform: GatewayPlatform;
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  before(async () => {
    // While Redis takes 64 MiB, its other calls wait, on a busy machine for seconds. Their deadline must be longer.
    platform = await GatewayPlatform.start({ deadlineMs: 60_000 });
  });
  after(async () => {
    agent.destroy();
    await platform.stop();
  });

  /** Sends over the agent's only connection. */
  function send(method: string, path: string, body: Buffer[], headers: Record<string, string> = {}) {
    return new Promise<{ status: number; code: string }>((resolve, reject) => {
      const { hostname, port } = new URL(platform.url);
      const authorization = `Bearer ${platform.apiKey}`;
      const request = http.request({ agent, hostname, port, method, path, headers: { authorization, ...headers } });
      request.on('error', reject).on('response', (response) => {
        let text = '';
        response.on('data', (chunk) => {
          text += chunk;
        });
        response.on('end', () => resolve({ status: response.statusCode ?? 0, code: JSON.parse(text).code }));
      });
      for (const piece of body) request.write(piece);
      request.end();
    });
  }
  const part = (name: string, content: Buffer) => [
    Buffer.from(`--b\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n`),
    content,
    Buffer.from('\r\n'),
  ];
  const deployment = (component: Buffer) => [
    ...part('manifest', Buffer.from('{"name":"big"}')),
    ...part('component', component),
    Buffer.from('--b--'),
  ];
  const multipart = { 'content-type': 'multipart/form-data; boundary=b' };
  const json = { 'content-type': 'application/json' };

  it('a large upload beyond the limit is refused, and its connection stays usable', async () => {
    // The limits are 64 MiB for a component and 4 MiB for an input.
    const tooLarge = Buffer.alloc(66 * MEBIBYTE);
    const assertUsable = async () => assert.equal((await send('GET', '/v1/functions', [])).status, 200);
    assert.deepEqual(await send('PUT', '/v1/functions/big', deployment(tooLarge), multipart), {
      status: 413,
      code: 'component-too-large',
    });
    await assertUsable();
    const input = await send('POST', '/v1/functions/big/invocations', [tooLarge.subarray(0, 6 * MEBIBYTE)], json);
    assert.deepEqual(input, { status: 413, code: 'body-too-large' });
    const stranger = { ...multipart, authorization: 'Bearer x' };
    const wrongKey = await send('PUT', '/v1/functions/big', [tooLarge.subarray(0, 16 * MEBIBYTE)], stranger);
    assert.deepEqual(wrongKey, { status: 401, code: 'unauthorized' });
    await assertUsable();
  });

  it('a component of exactly the maximum size is accepted', async () => {
    const component = Buffer.alloc(64 * MEBIBYTE);
    component.set(componentBytes('big'));
    assert.equal((await send('PUT', '/v1/functions/big', deployment(component), multipart)).status, 201);
    assert.equal((await platform.client().function('big')).componentBytes, 64 * MEBIBYTE);
  });
});

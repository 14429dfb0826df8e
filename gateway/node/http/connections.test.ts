import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { Server } from 'node:http';
import net from 'node:net';
import { after, before, describe, it } from 'node:test';
import { GatewayPlatform } from '../../testing/platform.ts';
import { Connections, connectionsWithin, streamsWithin } from './connections.ts';

const MAX = 32;
/** Requests with a key that one tenant may have beside those of others: a quarter of the three quarters of `MAX` that such requests may take. */
const TENANT_SHARE = 6;
const HALF_A_HEAD = 'GET /healthz HTTP/1.1\r\nhost: x\r\nx: ';

/** Connections that also count how many the gateway has accepted. */
class Counted extends Connections {
  accepted = 0;

  override watch(server: Server): void {
    super.watch(server);
    server.on('connection', () => {
      this.accepted += 1;
    });
  }
}

describe('a gateway with a bound on its connections', { timeout: 240_000 }, () => {
  let platform: GatewayPlatform;
  let connections: Counted;
  const sockets = new Set<net.Socket>();
  before(async () => {
    connections = new Counted(MAX);
    platform = await GatewayPlatform.start({ serve: { connections } });
    await platform.register({ name: 'echo' });
  });
  after(async () => {
    for (const socket of sockets) socket.destroy();
    await platform.stop();
  });

  const open = async (text: string, localAddress = '127.0.0.1') => {
    const { port } = new URL(platform.url);
    const socket = net.connect({ host: '127.0.0.1', port: Number(port), localAddress });
    sockets.add(socket);
    socket.on('error', () => undefined).once('close', () => sockets.delete(socket));
    const { accepted } = connections;
    await once(socket, 'connect');
    if (text !== '') socket.write(text);
    // The kernel accepts for the gateway; the next connection must not overtake this one.
    while (connections.accepted === accepted) await new Promise(setImmediate);
    return socket;
  };
  const closeAll = async () => {
    for (const socket of sockets) socket.destroy();
    while (connections.open > 0) await new Promise(setImmediate);
  };
  /** Reads until the text matches; rejects when the connection ends before. */
  const read = async (socket: net.Socket, pattern: RegExp): Promise<string> => {
    let text = '';
    for await (const piece of socket.iterator({ destroyOnReturn: false })) {
      text += piece;
      if (pattern.test(text)) return text;
    }
    throw new Error(`the connection ended after ${JSON.stringify(text)}`);
  };
  const stream = async (key: string) => {
    const body = '{}';
    const head = `POST /v1/functions/echo/invocations HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\naccept: text/event-stream\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`;
    const socket = await open(head + body);
    return { socket, head: await read(socket, /\r\n\r\n/) };
  };

  it('drops the oldest half-sent head for a newcomer, and serves clients meanwhile', async () => {
    const flood: net.Socket[] = [];
    for (let i = 0; i < MAX; i++) flood.push(await open(HALF_A_HEAD));
    assert.deepEqual([connections.open, connections.dropped], [MAX, 0]);
    for (let i = 0; i < 3; i++) {
      const closed = once(flood[i]!, 'close');
      assert.equal(
        (
          await fetch(`${platform.url}/v1/functions`, {
            headers: { authorization: `Bearer ${platform.apiKey}`, connection: 'close' },
          })
        ).status,
        200,
      );
      await closed;
      flood.push(await open(HALF_A_HEAD));
    }
    assert.ok(connections.open <= MAX);
    assert.deepEqual(
      flood.slice(3, 6).map(({ closed }) => closed),
      [false, false, false],
      'younger ones stay',
    );
    await closeAll();
  });

  it('keeps a stream of a client with a key while a flood passes, and counts its connection as young after the stream', async () => {
    const { socket: victim, head } = await stream(platform.apiKey);
    assert.match(head, /^HTTP\/1\.1 200 /);
    const dropped = connections.dropped;
    for (let i = 0; i < 3 * MAX; i++) await open(HALF_A_HEAD);
    assert.equal(connections.dropped - dropped, 2 * MAX + 1);
    const id = await platform.submitted('echo');
    const attempt = await platform.attempt(id);
    const ended = read(victim, /event: result/);
    await attempt.succeed('1');
    await ended;
    victim.write(`GET /v1/functions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${platform.apiKey}\r\n\r\n`);
    assert.match(await read(victim, /\r\n\r\n/), /HTTP\/1\.1 200 /);
    await closeAll();
  });

  it('drops connections of a crowded address first', async () => {
    const idle = await open('GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n', '127.0.0.2');
    await read(idle, /\r\n\r\n/);
    for (let i = 0; i < 2 * MAX; i++) await open(HALF_A_HEAD, '127.0.0.3');
    idle.write('GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n');
    assert.match(await read(idle, /HTTP\/1\.1 200 /), /200/);
    await closeAll();
  });

  it('leaves room for newcomers and other tenants beside a tenant that holds requests', async () => {
    const hoarder = await platform.key(['invoke'], 'hoarder');
    const neighbour = await platform.key(['invoke'], 'neighbour');
    await platform.register({ name: 'echo' }, 'hoarder');
    await platform.register({ name: 'echo' }, 'neighbour');
    const answers: string[] = [];
    for (let i = 0; i < MAX; i++) answers.push((await stream(hoarder)).head);
    const accepted = answers.filter((answer) => answer.startsWith('HTTP/1.1 200 '));
    assert.equal(accepted.length, 2 * TENANT_SHARE, 'a tenant alone may have half of the requests');
    for (const answer of answers.slice(accepted.length)) assert.match(answer, /^HTTP\/1\.1 429 .*/);
    for (let i = 0; i < TENANT_SHARE; i++) assert.match((await stream(neighbour)).head, /^HTTP\/1\.1 200 /);
    assert.equal((await fetch(`${platform.url}/healthz`, { headers: { connection: 'close' } })).status, 200);
    await closeAll();
    assert.match((await stream(hoarder)).head, /^HTTP\/1\.1 200 /, 'ended requests no longer count');
    await closeAll();
  });
});

it('the bound on connections stays below the limit on open files', () => {
  assert.equal(connectionsWithin(32_768, 65_536), 32_768);
  assert.equal(connectionsWithin(32_768, 20_000), 17_500);
  assert.equal(connectionsWithin(32_768, 1024), 896);
  assert.equal(connectionsWithin(32_768, 256), 128);
  assert.equal(connectionsWithin(100, Number.POSITIVE_INFINITY), 100);
  assert.equal(streamsWithin(16_384, 32_768), 16_384);
  assert.equal(streamsWithin(16_384, 896), 448);
});

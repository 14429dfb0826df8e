import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { affinityKey } from '#scheduler/policies/placement.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { freePort } from '../local/platform.ts';
import { serve } from '../node/http/server.ts';
import { startCuttingProxy } from '../testing/cutting-proxy.ts';
import { ECHO_SCHEMA } from '../testing/http/harness.ts';
import { componentBytes, GatewayPlatform } from '../testing/platform.ts';
import { PieClient } from './client.ts';
import type { PieError } from './errors.ts';
import type { PieEvent } from './invocation-stream.ts';

describe('PieClient', () => {
  let platform: GatewayPlatform;
  let client: PieClient;
  before(async () => {
    platform = await GatewayPlatform.start();
    client = platform.client();
    await platform.register({ name: 'echo', input: ECHO_SCHEMA });
  });
  after(() => platform.stop());

  it('deploys, lists, inspects and removes', async () => {
    const deployed = await client.deploy({ name: 'story' }, componentBytes('story'));
    assert.equal(deployed.created, true);
    assert.equal((await client.deploy({ name: 'story' }, componentBytes('story'))).created, false);
    assert.deepEqual(
      (await client.functions()).map(({ name }) => name),
      ['echo', 'story'],
    );
    assert.equal((await client.function(`story@${deployed.version}`)).componentHash, deployed.componentHash);
    assert.deepEqual(
      (await client.versions('story')).map(({ version }) => version),
      [deployed.version],
    );
    assert.deepEqual((await client.operations.invocations({ status: [] })).invocations, []);
    await client.removeFunction('story');
    await assert.rejects(client.function('story'), { name: 'PieError', code: 'unknown-function', status: 404 });
  });

  it('throws a problem document as a PieError with code, status, field, request id and hint', async () => {
    await assert.rejects(client.invoke('echo', { prompt: 1 }, { requestId: 'mine' }), (error: PieError) => {
      assert.deepEqual(
        [error.name, error.code, error.status, error.field, error.requestId, error.retryable],
        ['PieError', 'invalid-input', 422, '/prompt', 'mine', false],
      );
      assert.match(error.hint ?? '', /schema/);
      return true;
    });
  });

  it('distinguishes an unreachable gateway from a server that is not a gateway', async () => {
    const unreachable = new PieClient({ url: 'http://127.0.0.1:9', apiKey: 'x', reconnectMs: 0 });
    await assert.rejects(unreachable.functions(), { code: 'connection-failed', status: 0 });
    await assert.rejects(unreachable.invoke('echo', {}), { code: 'connection-failed' });
    const other = createServer((socket) => {
      socket.on('error', () => undefined);
      socket.end('HTTP/1.1 502 Bad Gateway\r\nContent-Length: 5\r\n\r\nhello');
    });
    other.listen(0, '127.0.0.1');
    await once(other, 'listening');
    const wrong = new PieClient({ url: `http://127.0.0.1:${(other.address() as AddressInfo).port}`, apiKey: 'x' });
    await assert.rejects(wrong.functions(), { code: 'bad-response', status: 502 });
    other.close();
  });

  it('streams, waits, submits, sends messages and cancels', async () => {
    const story = await client.invoke('echo', { prompt: 'a' });
    const attempt = await platform.attempt(story.id);
    await client.send(story.id, 'hello');
    await client.send(story.id, new Uint8Array([1, 2]));
    await client.closeSession(story.id);
    await assert.rejects(client.send(story.id, 'late'), { code: 'conflict' });
    await attempt.say('On', 'ce');
    await attempt.succeed('done');
    const pieces: string[] = [];
    for await (const piece of story.text()) pieces.push(piece);
    assert.deepEqual(pieces, ['On', 'ce']);
    assert.equal((await client.invocation(story.id)).output, 'done');

    const failing = await client.submit('echo', { prompt: 'a' });
    await (await platform.attempt(failing.id)).fail('trap', 'unreachable');
    await assert.rejects(client.events(failing.id).text().next(), {
      code: 'trap',
      message: 'unreachable',
      invocation: failing.id,
    });
    const events: PieEvent[] = [];
    for await (const event of client.events(failing.id)) events.push(event);
    assert.equal(events[0]?.event === 'error' && events[0].data.code, 'trap');

    const cancelled = await client.submit('echo', { prompt: 'a' });
    assert.equal((await client.cancel(cancelled.id)).status, 'cancelled');
    assert.deepEqual(
      (await client.models()).map(({ name }) => name),
      ['tiny'],
    );
    assert.equal((await client.ready()).ready, true);
  });

  it('closeSession repeats its request when the gateway cannot be reached at first', async () => {
    const { id } = await client.submit('echo', { prompt: 'a' });
    let tries = 0;
    const testClient = new PieClient({
      url: platform.url,
      apiKey: platform.apiKey,
      fetch: (url, init) => fetch(tries++ === 0 ? 'http://127.0.0.1:9' : url, init),
    });
    await testClient.closeSession(id);
    assert.equal(tries, 2);
    await assert.rejects(client.send(id, 'late'), { code: 'conflict' });
  });

  it('invokeAndWait rejects with the failure of the invocation, even after large messages', async () => {
    const known = new Set((await platform.scheduler.invocations.recent('default', 'echo', 1000)).map(({ id }) => id));
    const asked = client.invokeAndWait('echo', { prompt: 'a' });
    const id = await platform.submitted('echo', known);
    const attempt = await platform.attempt(id);
    await attempt.say('x'.repeat(100_000));
    await Promise.all([
      assert.rejects(asked, { code: 'trap', status: 422, message: 'unreachable', invocation: id }),
      attempt.fail('trap', 'unreachable'),
    ]);
  });

  it('receives every event once and in order over a connection that is cut repeatedly', async () => {
    // Cuts each connection after another number of bytes, from 700 to 3199.
    let cutAfter = 700;
    const proxy = await startCuttingProxy(new URL(platform.url), () => (cutAfter = 700 + ((cutAfter * 7919) % 2500)));
    try {
      const testClient = new PieClient({ url: proxy.url, apiKey: platform.apiKey });
      const stream = await testClient.invoke('echo', { prompt: 'a' });
      const attempt = await platform.attempt(stream.id);
      const writing = (async () => {
        for (let i = 1; i <= 120; i++) {
          await attempt.say(`${i} ${'x'.repeat(i % 40)}`);
          if (i % 10 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
        }
        await attempt.succeed(null);
      })();
      const seen: number[] = [];
      for await (const { id } of stream) seen.push(Number(id.replace(`${attempt.epoch}-`, '')));
      await writing;
      assert.deepEqual(
        seen,
        Array.from({ length: 121 }, (_, i) => i + 1),
      );
      assert.ok(proxy.cuts() > 3, `the wire was cut ${proxy.cuts()} times`);
    } finally {
      await proxy.stop();
    }
  });

  it('continues a stream at the next gateway when the first one stops', async () => {
    const port = await freePort();
    const first = await serve(platform.control, { log: silentLog, host: '127.0.0.1', port });
    const stream = await platform.client(platform.apiKey, first.url).invoke('echo', { prompt: 'a' });
    const attempt = await platform.attempt(stream.id);
    const iterator = stream[Symbol.asyncIterator]();
    await attempt.say('one');
    assert.equal((await iterator.next()).value?.id, `${attempt.epoch}-1`);
    await first.close(0);
    const second = await serve(platform.control, { log: silentLog, host: '127.0.0.1', port });
    await attempt.say('two');
    assert.equal((await iterator.next()).value?.id, `${attempt.epoch}-2`);
    await attempt.succeed(1);
    assert.equal((await iterator.next()).value?.event, 'result');
    assert.equal((await iterator.next()).done, true);
    await second.close(0);
  });

  it('gives up on a gateway that stays away and names the invocation', async () => {
    const gateway = await serve(platform.control, { log: silentLog, host: '127.0.0.1', port: 0 });
    const testClient = new PieClient({ url: gateway.url, apiKey: platform.apiKey, reconnectMs: 200 });
    const stream = await testClient.invoke('echo', { prompt: 'a' });
    await gateway.close(0);
    await assert.rejects(stream[Symbol.asyncIterator]().next(), { name: 'PieError', invocation: stream.id });
  });

  it('has the whole `reconnectMs` at each break, even when no event came since the break before', async () => {
    const proxy = await startCuttingProxy(new URL(platform.url), () => Number.POSITIVE_INFINITY);
    try {
      const testClient = new PieClient({ url: proxy.url, apiKey: platform.apiKey, reconnectMs: 2000 });
      const stream = await testClient.invoke('echo', { prompt: 'a' });
      const attempt = await platform.attempt(stream.id);
      const seen = Array.fromAsync(stream, ({ event }) => event);
      proxy.cut();
      // Longer than `reconnectMs`.
      await sleep(2500);
      proxy.cut();
      await attempt.succeed(1);
      assert.deepEqual(await seen, ['result']);
    } finally {
      await proxy.stop();
    }
  });

  it('rejects with the reason of its abort signal', async () => {
    const stop = new AbortController();
    const stream = await client.invoke('echo', { prompt: 'a' }, { signal: stop.signal });
    const next = stream[Symbol.asyncIterator]().next();
    stop.abort(new Error('enough'));
    await assert.rejects(next, { message: 'enough' });
    await assert.rejects(client.functions({ signal: stop.signal }), { message: 'enough' });
  });

  it('aborts in the middle of an answer, also after garbage collections', { timeout: 240_000 }, async () => {
    let onClose: () => void = () => undefined;
    const closed = new Promise<void>((resolve) => {
      onClose = resolve;
    });
    const slow = createServer((socket) => {
      socket.on('error', () => undefined).on('close', onClose);
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello');
    });
    slow.listen(0, '127.0.0.1');
    await once(slow, 'listening');
    const testClient = new PieClient({ url: `http://127.0.0.1:${(slow.address() as AddressInfo).port}`, apiKey: 'x' });
    const stop = new AbortController();
    const file = testClient.file('inv', 'a', { signal: stop.signal });
    const ended = assert.rejects(file, { name: 'AbortError' });
    await once(slow, 'connection');
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    // Several collections, because the objects that the answer depends on may become garbage only some turns after the answer has begun.
    for (let i = 0; i < 10; i++) {
      await new Promise((resolve) => setTimeout(resolve, 10));
      collect();
    }
    stop.abort();
    await ended;
    await closed;
    slow.close();
  });

  it('gives up an answer that falls silent, but waits for one that comes slowly', { timeout: 240_000 }, async () => {
    const server = createServer((socket) => {
      socket.on('error', () => undefined);
      socket.once('data', async (head) => {
        socket.write('HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 8\r\n\r\n');
        for (const letter of String(head).includes('/slow ') ? 'by piece' : 'by') {
          await sleep(300);
          socket.write(letter);
        }
      });
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const hasty = new PieClient({ url, apiKey: 'x', timeoutMs: 2000 });
    assert.equal(new TextDecoder().decode((await hasty.file('inv', 'slow')).content), 'by piece');
    const silenceError = { name: 'PieError', code: 'connection-failed', message: /no byte came for 2000 ms/ };
    await assert.rejects(hasty.file('inv', 'stalled'), silenceError);
    await assert.rejects(hasty.invocation('inv'), silenceError);
    server.close();
    // The server closes only when the client has closed the connections of the silent answers.
    await once(server, 'close');
  });

  it('attaches to the invocation that its own request began when the answer was lost', async () => {
    for (const method of ['invoke', 'invokeAndWait', 'submit'] as const) {
      let isFirst = true;
      // The proxy cuts the first answer after 20 bytes, within its headers.
      const proxy = await startCuttingProxy(new URL(platform.url), () => {
        if (!isFirst) return Number.POSITIVE_INFINITY;
        isFirst = false;
        return 20;
      });
      try {
        const testClient = new PieClient({ url: proxy.url, apiKey: platform.apiKey });
        const known = new Set(
          (await platform.scheduler.invocations.recent('default', 'echo', 1000)).map(({ id }) => id),
        );
        const asked = testClient[method]('echo', { prompt: method });
        const id = await platform.submitted('echo', known);
        // `invokeAndWait` gets its answer only at the invocation's end.
        if (method !== 'invokeAndWait') assert.equal(((await asked) as { id: string }).id, id);
        const attempt = await platform.attempt(id);
        await attempt.say('a');
        if (method === 'invokeAndWait') proxy.cut();
        await attempt.succeed(7);
        const outcome = await asked;
        if (method === 'invokeAndWait') {
          const { output, messages } = outcome as { output: unknown; messages: unknown };
          assert.deepEqual([output, messages], [7, [{ text: 'a' }]]);
        }
        const now = await platform.scheduler.invocations.recent('default', 'echo', 1000);
        assert.equal(now.filter((each) => !known.has(each.id)).length, 1, 'exactly one invocation was made');
      } finally {
        await proxy.stop();
      }
    }
    const key = { idempotencyKey: crypto.randomUUID() };
    const { id } = await client.submit('echo', { prompt: 'a' }, key);
    await assert.rejects(client.submit('echo', { prompt: 'a' }, key), {
      code: 'idempotency-in-flight',
      invocation: id,
    });
  });

  it('attaches to its invocation even when the connection broke after a wait longer than `reconnectMs`', async () => {
    const proxy = await startCuttingProxy(new URL(platform.url), () => Number.POSITIVE_INFINITY);
    try {
      const testClient = new PieClient({ url: proxy.url, apiKey: platform.apiKey, reconnectMs: 100 });
      const known = new Set((await platform.scheduler.invocations.recent('default', 'echo', 1000)).map(({ id }) => id));
      const asked = testClient.invokeAndWait('echo', { prompt: 'a' });
      const attempt = await platform.attempt(await platform.submitted('echo', known));
      await sleep(200);
      proxy.cut();
      const [outcome] = await Promise.all([asked, attempt.succeed(7)]);
      assert.equal(outcome.output, 7);
    } finally {
      await proxy.stop();
    }
  });

  it('rejects a file or a state whose answer breaks off; `invokeAndWait` asks for its outcome again', async () => {
    let bytes = 100_000;
    const proxy = await startCuttingProxy(new URL(platform.url), () => bytes);
    try {
      const testClient = new PieClient({ url: proxy.url, apiKey: platform.apiKey });
      const { id } = await client.submit('echo', { prompt: 'a' });
      const attempt = await platform.attempt(id);
      await client.putFile(id, 'large', new Uint8Array(300_000));
      await assert.rejects(testClient.file(id, 'large'), { name: 'PieError', code: 'connection-failed' });
      await attempt.succeed('x'.repeat(300_000));
      await assert.rejects(testClient.invocation(id), { name: 'PieError', code: 'connection-failed' });
      const earlier = await platform.scheduler.invocations.recent('default', 'echo', 1000);
      const known = new Set(earlier.map((each) => each.id));
      const asked = testClient.invokeAndWait('echo', { prompt: 'a' });
      const waiting = await platform.attempt(await platform.submitted('echo', known));
      bytes = Number.POSITIVE_INFINITY;
      const [{ output }] = await Promise.all([asked, waiting.succeed('y'.repeat(300_000))]);
      assert.equal(String(output).length, 300_000);
      assert.equal(proxy.cuts(), 3);
    } finally {
      await proxy.stop();
    }
  });

  it('`invokeAndWait` asks again when the answer that reports a failure breaks off', async () => {
    let bytes = 100_000;
    const proxy = await startCuttingProxy(new URL(platform.url), () => bytes);
    try {
      const testClient = new PieClient({ url: proxy.url, apiKey: platform.apiKey });
      const known = new Set((await platform.scheduler.invocations.recent('default', 'echo', 1000)).map(({ id }) => id));
      const asked = testClient.invokeAndWait('echo', { prompt: 'a' });
      const failing = await platform.attempt(await platform.submitted('echo', known));
      bytes = Number.POSITIVE_INFINITY;
      await failing.say('x'.repeat(300_000));
      await Promise.all([
        assert.rejects(asked, { name: 'PieError', code: 'trap' }),
        failing.fail('trap', 'unreachable'),
      ]);
      assert.equal(proxy.cuts(), 1);
    } finally {
      await proxy.stop();
    }
  });

  it('sends the affinity of an invocation', async () => {
    const { id } = await client.submit('echo', { prompt: 'a' }, { affinity: 'talk' });
    const { redis, keys } = platform.scheduler.store;
    assert.equal(await redis.hget(keys.invocation(id), 'affinity'), affinityKey('default', 'talk'));
  });

  it('reads and follows logs', async () => {
    await platform.register({ name: 'logger' });
    const { id } = await client.submit('logger', {});
    const attempt = await platform.attempt(id);
    await attempt.append({ event: 'log', data: { level: 'info', message: 'past' } });
    const [past] = await client.logs('logger');
    assert.equal(past?.message, 'past');
    const stop = new AbortController();
    const seen: string[] = [];
    await assert.rejects(
      async () => {
        for await (const { message } of client.followLogs('logger', { signal: stop.signal })) {
          seen.push(message);
          if (message === 'past') await attempt.append({ event: 'log', data: { level: 'info', message: 'live' } });
          else stop.abort(new Error('enough'));
        }
      },
      { message: 'enough' },
    );
    assert.deepEqual(seen, ['past', 'live']);
  });

  it('follows logs over a broken connection without a gap, however many lines come meanwhile', async () => {
    await platform.register({ name: 'chatty' });
    const { id } = await client.submit('chatty', {});
    const attempt = await platform.attempt(id);
    const write = (...messages: number[]) =>
      attempt.append(...messages.map((message) => ({ event: 'log' as const, data: { level: 'info', message } })));
    const numbers = Array.from({ length: 301 }, (_, i) => i);
    await write(0);
    const proxy = await startCuttingProxy(new URL(platform.url), () => Number.POSITIVE_INFINITY);
    const seen: number[] = [];
    try {
      const follower = new PieClient({ url: proxy.url, apiKey: platform.apiKey });
      for await (const { message } of follower.followLogs('chatty', { limit: 1 })) {
        seen.push(Number(message));
        if (message === '300') break;
        if (message !== '0') continue;
        proxy.cut();
        await write(...numbers.slice(1));
      }
    } finally {
      await proxy.stop();
    }
    assert.deepEqual(seen, numbers);
  });

  it('followLogs resumes after the last line that it saw, without the `since` of the first request', async () => {
    await platform.register({ name: 'dated' });
    const { id } = await client.submit('dated', {});
    const attempt = await platform.attempt(id);
    const write = (message: string) => attempt.append({ event: 'log', data: { level: 'info', message } });
    await write('first');
    const proxy = await startCuttingProxy(new URL(platform.url), () => Number.POSITIVE_INFINITY);
    const queries: URLSearchParams[] = [];
    try {
      const follower = new PieClient({
        url: proxy.url,
        apiKey: platform.apiKey,
        fetch: (url, init) => {
          queries.push(new URL(url).searchParams);
          return fetch(url, init);
        },
      });
      for await (const { message } of follower.followLogs('dated', { since: '10m' })) {
        if (message === 'second') break;
        proxy.cut();
        await write('second');
      }
    } finally {
      await proxy.stop();
    }
    const [first, ...resumed] = queries.map((query) => [query.get('since'), query.has('after')]);
    assert.deepEqual(first, ['10m', false]);
    assert.ok(resumed.length > 0);
    for (const query of resumed) assert.deepEqual(query, [null, true]);
  });
});

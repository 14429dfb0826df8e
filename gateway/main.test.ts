import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, it } from 'node:test';
import { parseReadyLine } from '#infra/lifeline.ts';
import { PieClient } from './client/client.ts';
import type { InvocationStream, PieEvent } from './client/invocation-stream.ts';
import { freePort } from './local/platform.ts';
import { ECHO_SCHEMA } from './testing/http/harness.ts';
import { GatewayPlatform } from './testing/platform.ts';

const MAIN = new URL('main.ts', import.meta.url).pathname;

describe('the gateway process', () => {
  let platform: GatewayPlatform;
  let home: string;
  const children = new Set<ChildProcess>();

  before(async () => {
    platform = await GatewayPlatform.start();
    home = await mkdtemp(path.join(tmpdir(), 'pie-gw-'));
    await platform.register({ name: 'echo', input: ECHO_SCHEMA });
  });
  after(async () => {
    for (const child of children) child.kill('SIGKILL');
    await platform.stop();
    await rm(home, { recursive: true, force: true });
  });

  async function start(env: Record<string, string> = {}): Promise<{ child: ChildProcess; url: string }> {
    const child = spawn(process.execPath, [MAIN], {
      env: { ...process.env, PIE_HOME: home, PIE_PORT: '0', REDIS_URL: `unix://${platform.redis.socket}`, ...env },
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    children.add(child);
    child.once('exit', () => children.delete(child));
    for await (const line of createInterface({ input: child.stdout })) {
      const ready = parseReadyLine(line);
      if (ready !== null) return { child, url: ready.address ?? '' };
    }
    throw new Error('the gateway ended before it was ready');
  }
  const credentials = async () => JSON.parse(await readFile(path.join(home, 'credentials.json'), 'utf8'));
  const endWith = async (child: ChildProcess, signal: NodeJS.Signals) => {
    const exited = once(child, 'exit');
    child.kill(signal);
    return (await exited)[0];
  };
  const nextEvent = async (events: AsyncIterator<PieEvent>) => (await events.next()).value as PieEvent;

  it('makes a key on its first start, keeps it, and makes another when Redis or the file has lost it', async () => {
    const first = await start();
    const firstCredentials = await credentials();
    assert.equal(firstCredentials.url, first.url);
    assert.match(firstCredentials.apiKey, /^pie_[0-9A-Za-z]{32}$/);
    assert.equal((await stat(path.join(home, 'credentials.json'))).mode & 0o777, 0o600);
    const self = await new PieClient(firstCredentials).self();
    assert.deepEqual([self.tenant, self.scopes], ['default', ['invoke', 'deploy', 'admin', 'operator']]);
    const stored = await platform.scheduler.store.call((redis) => redis.keys('pie:key:*'));
    assert.ok(stored.length > 0 && stored.every((key) => !key.includes(firstCredentials.apiKey)));
    assert.equal(await endWith(first.child, 'SIGTERM'), 0);

    const second = await start();
    assert.deepEqual(await credentials(), { url: second.url, apiKey: firstCredentials.apiKey });
    await endWith(second.child, 'SIGTERM');

    assert.equal(await platform.scheduler.apiKeys.remove('default', self.keyId), 'removed');
    const third = await start();
    const renewed = await credentials();
    assert.notEqual(renewed.apiKey, firstCredentials.apiKey);
    assert.equal((await new PieClient(renewed).functions()).length, 1);
    await endWith(third.child, 'SIGTERM');

    await writeFile(path.join(home, 'credentials.json'), '{"broken');
    await endWith((await start()).child, 'SIGTERM');
    assert.match((await credentials()).apiKey, /^pie_/);
  });

  it('a client continues its stream at the successor of a killed gateway', async () => {
    const PIE_PORT = String(await freePort());
    const first = await start({ PIE_PORT });
    const { apiKey, url } = await credentials();
    const stream: InvocationStream = await new PieClient({ url, apiKey }).invoke('echo', { prompt: 'a' });
    const attempt = await platform.attempt(stream.id);
    const events = stream[Symbol.asyncIterator]();
    await attempt.say('one');
    assert.equal((await nextEvent(events)).id, `${attempt.epoch}-1`);
    await endWith(first.child, 'SIGKILL');
    await attempt.say('two');
    const second = await start({ PIE_PORT });
    assert.equal((await nextEvent(events)).id, `${attempt.epoch}-2`);
    await attempt.succeed(1);
    assert.equal((await nextEvent(events)).event, 'result');
    // Read the stream to its end: an open stream would keep this process alive until the idle timeout.
    assert.equal((await events.next()).done, true);
    await endWith(second.child, 'SIGTERM');
  });

  it('finishes a running stream after it is told to stop', async () => {
    const { child } = await start();
    const { apiKey, url } = await credentials();
    const stream = await new PieClient({ url, apiKey }).invoke('echo', { prompt: 'a' });
    const attempt = await platform.attempt(stream.id);
    const exit = endWith(child, 'SIGTERM');
    await attempt.say('last words');
    await attempt.succeed(1);
    const events: string[] = [];
    for await (const { event } of stream) events.push(event);
    assert.deepEqual(events, ['message', 'result']);
    assert.equal(await exit, 0);
  });

  it('ends when its standard input closes, as when its supervisor dies', async () => {
    const { child } = await start({ PIE_LIFELINE: 'stdin' });
    const exited = once(child, 'exit');
    child.stdin?.end();
    await exited;
  });
});

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { runPie } from '../testing/pie.ts';
import { GatewayPlatform } from '../testing/platform.ts';
import { EXIT } from './failure.ts';

const BIN = fileURLToPath(new URL('bin.js', import.meta.url));

describe('pie replay and pie schedule', () => {
  let platform: GatewayPlatform;
  before(async () => {
    platform = await GatewayPlatform.start();
  });
  after(() => platform.stop());

  const pie = (...args: string[]) => runPie(platform, args);

  /** Runs the command with a text as its standard input. */
  function pieReading(
    input: string,
    ...args: string[]
  ): Promise<{ code: number | null; stdout: string; stderr: string }> {
    const env = { ...process.env, PIE_URL: platform.url, PIE_API_KEY: platform.apiKey };
    const child = spawn(process.execPath, [BIN, ...args], { env, stdio: 'pipe', timeout: 240_000 });
    child.stdin.on('error', () => undefined).end(input);
    let [stdout, stderr] = ['', ''];
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    return new Promise((resolve) => child.once('close', (code) => resolve({ code, stdout, stderr })));
  }

  it('replay runs an invocation again in the same version, with the same input or another', async () => {
    const client = platform.client();
    const version = await platform.register({ name: 'story', description: 'first' });
    const { id } = await client.submit('story', { prompt: 'Hé' });
    await (await platform.attempt(id)).succeed('first');
    const knownIds = new Set([id]);
    const newer = await platform.register({ name: 'story', description: 'second' });
    assert.notEqual(newer, version);
    const again = pie('replay', id);
    const repeated = await platform.submitted('story', knownIds);
    knownIds.add(repeated);
    assert.equal((await client.invocation(repeated)).version, version);
    assert.deepEqual(await client.input(repeated), { prompt: 'Hé' });
    await (await platform.attempt(repeated)).succeed('second');
    const { code, stdout, stderr } = await again;
    assert.deepEqual([code, stdout], [EXIT.ok, '"second"\n'], stderr);
    assert.match(stderr, new RegExp(`story@${version} runs as ${repeated}`));

    const other = await pie('replay', id, '--input', '{"prompt":"other"}', '--async', '--json');
    const { id: third, version: replayedVersion } = JSON.parse(other.stdout);
    assert.equal(replayedVersion, version);
    assert.deepEqual(await client.input(third), { prompt: 'other' });
    assert.equal((await pie('replay', 'inv_nothing')).code, EXIT.refused);
    assert.equal((await pie('replay', id, '--input', '{')).code, EXIT.usage);
  });

  it('invoke and replay pass on an integer beyond 2^53 without rounding', async () => {
    const client = platform.client();
    await platform.register({ name: 'story' });
    const input = '{"id":9007199254740993}';
    const first = (await pie('invoke', 'story', '--input', input, '--async')).stdout.trim();
    assert.equal(await client.inputText(first), input);
    const second = (await pie('replay', first, '--async')).stdout.trim();
    assert.equal(await client.inputText(second), input);
  });

  it('invoke waits for its debounce delay, and names the invocation that replaces its own', async () => {
    const client = platform.client();
    await platform.register({ name: 'story' });
    const knownIds = new Set((await platform.scheduler.invocations.recent('default', 'story')).map(({ id }) => id));
    const waiting = pie('invoke', 'story', '--debounce-key', 'k', '--debounce-delay', '1h', '--debounce-max', '2h');
    const id = await platform.submitted('story', knownIds);
    const debounce = { key: 'k', delayMs: 60_000 };
    const { id: successor } = await client.submit('story', {}, { debounce });
    const status = (await pie('status', successor)).stdout;
    assert.match(status, /story@\w+ +queued for (1 min|[\d.]+ s) more /);
    assert.match(status, /^waits for the delay of its debounce key until 20/m);
    const { code, stderr } = await waiting;
    assert.equal(code, EXIT.failed);
    assert.ok(stderr.includes(successor), stderr);
    const events = [];
    for await (const event of client.events(id)) events.push(event);
    assert.deepEqual(
      events.map(({ event, data }) => [event, 'successor' in data ? data.successor : '']),
      [['error', successor]],
    );
    assert.equal((await client.invocation(id)).successor, successor);
    await client.cancel(successor);
    assert.equal((await pie('invoke', 'story', '--debounce-key', 'k')).code, EXIT.usage);
    assert.equal((await pie('invoke', 'story', '--concurrency-limit', '2')).code, EXIT.usage);
  });

  it('invoke --interactive sends every line, also when the inbox of the invocation is full', async (t) => {
    await platform.register({ name: 'story' });
    const knownIds = new Set((await platform.scheduler.invocations.recent('default', 'story')).map(({ id }) => id));
    const lines = Array.from({ length: 600 }, (_, i) => `line ${i}`);
    const { inbox } = platform.scheduler;
    const push = t.mock.method(inbox, 'push');
    const talking = pieReading(`${lines.join('\r\n')}\r\n`, 'invoke', 'story', '--interactive', '--json');
    const id = await platform.submitted('story', knownIds);
    const outcomes = () => Promise.all(push.mock.calls.map(({ result }) => result));
    // The inbox holds fewer messages than there are lines, so a push must find it full.
    while (!(await outcomes()).includes('full')) await sleep(5);
    const attempt = await platform.attempt(id);
    const heard: unknown[] = [];
    await new Promise<void>((resolve) => {
      inbox.attach(id, { message: (message) => void heard.push(message), closed: resolve });
    });
    await attempt.succeed(null);
    const { code, stderr } = await talking;
    assert.equal(code, EXIT.ok, stderr);
    assert.deepEqual(
      heard,
      lines.map((text) => ({ text })),
    );
  });

  it('pie schedule creates, lists and removes schedules', async () => {
    await platform.register({ name: 'story' });
    const times = ['--cron', '0 3 * * *', '--timezone', 'Europe/Berlin'];
    const created = await pie('schedule', 'create', 'nightly', 'story', ...times, '--input', '{"prompt":"x"}');
    assert.match(created.stdout, /^nightly: story at 0 3 \* \* \* Europe\/Berlin; next at .*T0[12]:00/);
    assert.equal((await pie('schedule', 'create', 'often', 'story', '--every', '6h')).code, EXIT.ok);
    const { schedules } = platform.scheduler;
    const put = schedules.put.bind(schedules);
    // Simulates a change that was interrupted before the next time was stored.
    schedules.put = async (...args) => {
      const schedule = await put(...args);
      return schedule && { ...schedule, nextAt: null };
    };
    assert.match(
      (await pie('schedule', 'create', 'often', 'story', '--every', '6h')).stdout,
      /^often: story every 6 h; next time unknown until a gateway starts\n$/,
    );
    schedules.put = put;
    const table = (await pie('schedule')).stdout;
    assert.match(table, /^NAME +FUNCTION +TIMES +NEXT +LAST\n/);
    assert.match(table, /^often +story +every 6 h +\S+ +–$/m);
    const [first] = JSON.parse((await pie('schedule', 'list', '--json')).stdout);
    assert.deepEqual([first.name, first.input], ['nightly', { prompt: 'x' }]);
    assert.equal((await pie('schedule', 'create', 'both', 'story', '--every', '6h', ...times)).code, EXIT.usage);
    const zoned = await pie('schedule', 'create', 'zoned', 'story', '--every', '6h', '--timezone', 'UTC');
    assert.equal(zoned.code, EXIT.usage);
    assert.match(zoned.stderr, /--timezone/);
    assert.equal((await pie('schedule', 'create', 'fast', 'story', '--every', '5s')).code, EXIT.usage);
    assert.equal((await pie('schedule', 'remove', 'nightly')).stdout, 'Removed nightly.\n');
    assert.equal((await pie('schedule', 'remove', 'nightly')).code, EXIT.refused);
  });
});

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import type { FunctionLogs } from '#scheduler/invocations/log.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { DEFAULT_LIMITS } from '../app/context.ts';
import type { LogOptions } from '../app/control.ts';
import { Bodies } from '../app/http/bodies.ts';
import { GatewayPlatform } from '../testing/platform.ts';
import { type LogSource, readLogs } from './logs.ts';

const LINES = 700;

describe('logs of invocations filtered by status', () => {
  let platform: GatewayPlatform;
  let lookups: string[][] = [];
  let source: LogSource;
  const neverAborted = new AbortController().signal;
  const failedIds: string[] = [];
  before(async () => {
    platform = await GatewayPlatform.start();
    await platform.register({ name: 'f' });
    const { store, logs, invocations } = platform.scheduler;
    for (let i = 0; i < 2; i++) {
      const { id } = await platform.client().submit('f', {});
      await (await platform.attempt(id)).fail('trap', `t${i}`);
      failedIds.push(id);
    }
    // Lines of invocations that the store does not have (`gone-…`), and in their middle a line of a failed invocation.
    const key = store.keys.logs('default', 'f');
    // The fields of a stored line are: invocation, event number, time, event name, data.
    const line = (invocation: string, message: string) => ({
      i: invocation,
      s: '1',
      t: String(Date.now()),
      e: 'log',
      d: JSON.stringify({ level: 'info', message }),
    });
    await store.call(async (redis) => {
      for (let i = 0; i < LINES; i++) {
        const invocationId = i === LINES / 2 ? (failedIds[0] ?? '') : `gone-${i}`;
        await redis.xadd(key, '*', ...Object.entries(line(invocationId, `m${i}`)).flat());
      }
    });
    source = {
      logs,
      tenant: 'default',
      names: async () => ['f'],
      statuses: (ids) => {
        lookups.push([...ids]);
        return invocations.statuses(ids);
      },
    };
  });
  after(() => platform.stop());

  async function read(options: Partial<LogOptions>, signal = neverAborted): Promise<string[]> {
    lookups = [];
    const messages: string[] = [];
    const allOptions = { cursor: null, follow: false, limit: 100, level: 'debug', ...options } as const;
    for await (const { message } of readLogs(source, allOptions, signal)) messages.push(message);
    return messages;
  }

  it('a search looks up each invocation once, in few round trips, and returns the newest lines within the limit', async () => {
    const failedMessages = ['trap: t0', 'trap: t1', `m${LINES / 2}`];
    assert.deepEqual(await read({ status: 'failed' }), failedMessages);
    // Invocations: LINES - 1 forgotten ones, and the two that failed.
    const ids = lookups.flat();
    assert.deepEqual([ids.length, new Set(ids).size], [LINES + 1, LINES + 1]);
    assert.ok(lookups.length <= 5, `${lookups.length} round trips`);
    assert.deepEqual(await read({ status: 'failed', limit: 2 }), failedMessages.slice(1));
    assert.deepEqual(await read({ status: 'succeeded' }), []);
    await read({ limit: 5 });
    assert.deepEqual(lookups, []);
  });

  it('a reader that reconnects continues after its `Last-Event-ID`, even if `after` in its URL is earlier', async () => {
    const logs = async (query: string, headers = {}): Promise<{ message: string; cursor: string }[]> => {
      const authorization = `Bearer ${platform.apiKey}`;
      const url = `${platform.url}/v1/functions/f/logs?status=failed${query}`;
      const response = await fetch(url, { headers: { authorization, ...headers } });
      return ((await response.json()) as { logs: [] }).logs;
    };
    const [first, second, third] = await logs('');
    assert.ok(first && second && third);
    assert.deepEqual(await logs(`&after=${first.cursor}`), [second, third]);
    assert.deepEqual(await logs(`&after=${first.cursor}`, { 'last-event-id': second.cursor }), [third]);
  });

  it('a search ends after its reader leaves', async () => {
    const leave = new AbortController();
    const { statuses } = source;
    source = {
      ...source,
      statuses: (ids) => {
        leave.abort();
        return statuses(ids);
      },
    };
    await read({ status: 'failed' }, leave.signal);
    assert.equal(lookups.length, 1);
  });

  it('a refused search of several logs holds no memory, whichever read was refused', async () => {
    const { store, logs } = platform.scheduler;
    const names = ['a', 'b', 'c', 'd', 'e', 'g', 'h'];
    const entry = (message: string) => ({
      i: 'gone',
      s: '1',
      t: '1',
      e: 'log',
      d: JSON.stringify({ level: 'info', message }),
    });
    await store.call(async (redis) => {
      for (const [i, name] of names.entries()) {
        // The page of the first log exceeds the memory bound; the pages of some other logs would fit.
        const fields = Object.entries(entry('m'.repeat(i === 0 ? 16_000 : 8000))).flat();
        for (let line = 0; line < 20; line++) await redis.xadd(store.keys.logs('default', name), '*', ...fields);
      }
    });
    const bodies = new Bodies({ ...DEFAULT_LIMITS, heldBodyBytes: 1_200_000 });
    const following = { cursor: null, follow: true, limit: 100, level: 'debug' } as const;
    const reads: Promise<unknown>[] = [];
    const newest: FunctionLogs['newest'] = (tenant, name, range) => {
      const read = logs.newest(tenant, name, range).then(async (lines) => {
        // The read of the first log, which is refused, ends before the others.
        if (name !== names[0]) await sleep(50);
        return lines;
      });
      reads.push(read);
      return read;
    };
    const searched = { ...source, logs: { newest } as FunctionLogs, names: async () => names };
    const lines = readLogs(searched, following, neverAborted, bodies.roomFor('t'));
    await assert.rejects(Array.fromAsync(lines), /too many bytes at once/);
    await Promise.all(reads);
    await nextTurn();
    assert.equal(reads.length, names.length);
    assert.equal(bodies.heldBytes, 0);
  });

  it('a search of a thousand logs reads few cursors per line, and lets other requests run meanwhile', async () => {
    const [functions, page] = [1000, 20];
    const names = Array.from({ length: functions }, (_, i) => `many-${i}`);
    let cursorReads = 0;
    const line = (name: string, i: number) => ({
      function: name,
      invocation: 'gone',
      seq: 1,
      at: 1,
      event: 'log' as const,
      data: JSON.stringify({ level: 'info', message: 'm' }),
      get cursor() {
        cursorReads += 1;
        return `${functions - i}-0`;
      },
    });
    // The pages are there at once, so that no read waits for a turn of the event loop.
    const logs = {
      newest: async (_tenant: string, name: string, { before }: { readonly before?: string }) =>
        before === undefined ? Array.from({ length: page }, (_, i) => line(name, i)) : [],
    } as unknown as FunctionLogs;
    let turns = 0;
    const countTurns = () => {
      turns += 1;
      nextCount = setImmediate(countTurns);
    };
    let nextCount: NodeJS.Immediate = setImmediate(countTurns);
    try {
      const options = { cursor: null, follow: false, limit: 100, level: 'debug', search: 'no such text' } as const;
      const lines = readLogs({ ...source, logs, names: async () => names }, options, neverAborted);
      assert.deepEqual(await Array.fromAsync(lines), []);
    } finally {
      clearImmediate(nextCount);
    }
    assert.ok(turns > 0, 'other requests could run');
    // If the search read the cursors of all logs for each line, there would be a thousand reads per line.
    assert.ok(cursorReads <= 3 * functions * page, `${cursorReads} reads of cursors for ${functions * page} lines`);
  });

  it('a stream takes memory for each log that it follows, until it ends', async () => {
    const names = Array.from({ length: 100 }, (_, i) => `quiet-${i}`);
    const bodies = new Bodies({ ...DEFAULT_LIMITS, heldBodyBytes: 200_000 });
    const following = { cursor: null, follow: true, limit: 100, level: 'debug' } as const;
    const follow = (signal: AbortSignal) =>
      Array.fromAsync(readLogs({ ...source, names: async () => names }, following, signal, bodies.roomFor('t')));
    const leave = new AbortController();
    const first = follow(leave.signal);
    await eventually(() => bodies.heldBytes >= 50_000, 'the first stream follows its logs');
    await assert.rejects(follow(neverAborted), /too many bytes at once/);
    leave.abort();
    assert.deepEqual(await first, []);
    assert.equal(bodies.heldBytes, 0);
  });
});

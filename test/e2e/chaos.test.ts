import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import type { PlatformLoad } from '#gateway/app/control.ts';
import { deployWith, modelStats } from '#test/harness/deploy.ts';
import { invoke, readEvents, type StreamEvent, say, terminal, text } from '#test/harness/events.ts';
import { isAlive, Platform, until } from '#test/harness/platform.ts';

const LONG = { prompt: '', maxTokens: 240, temperature: 0 };
/** Input with which `counted` runs longer than any of these tests, unless the test ends it. */
const ENDLESS = { mark: 'endless', tokens: 200, pauseMs: 200 };
/** Longer than a gateway waits for Redis (`MAX_OUTAGE_MS` of the event log). */
const OUTAGE_MS = 8000;
/** Error codes of an invocation when Redis was away longer than the gateway waits for it, or longer than the runtime's lease. */
const OUTAGE_CODES: readonly string[] = ['store-unavailable', 'runtime-lost'];

let platform: Platform;
before(async () => {
  platform = await Platform.start({ functions: ['text-completion'] });
  await deployWith(platform, 'counted', {});
  await deployWith(platform, 'limits', {});
});
after(() => platform?.[Symbol.asyncDispose]());

/** Invokes a long function, calls `act` at its first message, and returns its events. */
async function during(name: string, input: object, act: () => unknown): Promise<StreamEvent[]> {
  let hasActed = false;
  const events = await invoke(platform, name, input, {
    onEvent: ({ event }) => {
      if (event !== 'message' || hasActed) return;
      hasActed = true;
      act();
    },
  });
  assert.ok(hasActed, 'the stream had begun');
  return events;
}

/** Waits until `count` runtimes have running invocations, and returns their names. */
async function busyRuntimes(count: number): Promise<string[]> {
  let busy: string[] = [];
  await until(`${count} runtimes are busy`, async () => {
    const { runtimes } = (await (await platform.fetch('/v1/load')).json()) as PlatformLoad;
    busy = runtimes.filter(({ alive, running }) => alive && running > 0).map(({ name }) => name);
    return busy.length === count;
  });
  return busy;
}

/** Process id of redis-server. The supervisor's child is a shell, which holds the lifeline and has started redis-server. */
function redisServer(): number {
  const shell = platform.pid('redis');
  const children = readFileSync(`/proc/${shell}/task/${shell}/children`, 'utf8').trim().split(' ').map(Number);
  const server = children.find((pid) => readFileSync(`/proc/${pid}/comm`, 'utf8').trim() === 'redis-server');
  assert.ok(server, 'redis-server runs');
  return server;
}

async function untilNextWorks(): Promise<void> {
  await until('the next invocation works', async () => {
    const events = await invoke(platform, 'text-completion', { ...LONG, maxTokens: 8 }).catch(() => []);
    return terminal(events)?.event === 'result';
  });
}

test('after a SIGKILL of the GPU host, an invocation ends as device-lost unless it catches the error, and the next one works', async () => {
  const runs = [
    ['counted', ENDLESS],
    ['limits', { what: 'model', catches: false }],
    ['limits', { what: 'model', catches: true }],
  ] as const;
  const restarted = platform.restarted('gpu-host-1');
  let running = 0;
  const killWhenAllRun = () => {
    running++;
    if (running === runs.length) process.kill(platform.pid('gpu-host-1'), 'SIGKILL');
  };
  const streams = await Promise.all(runs.map(([name, input]) => during(name, input, killWhenAllRun)));
  const ends = streams.map(terminal);
  // The last run catches the error of its call.
  const caught = ends.pop();
  assert.equal(caught?.data.output?.caught, 'unavailable', JSON.stringify(caught));
  for (const end of ends) assert.deepEqual([end?.event, end?.data.code], ['error', 'device-lost']);
  await restarted;
  await untilNextWorks();
});

test('after a SIGKILL of the runtime, the invocation ends as runtime-lost, its pages are freed, the next works', async () => {
  await busyRuntimes(0);
  let restarted: Promise<unknown> | undefined;
  const events = await during('counted', ENDLESS, () => {
    restarted = busyRuntimes(1).then(([name = '']) => {
      const again = platform.restarted(name);
      process.kill(platform.pid(name), 'SIGKILL');
      return again;
    });
  });
  assert.equal(terminal(events)?.event, 'error');
  assert.equal(terminal(events)?.data.code, 'runtime-lost');
  await restarted;
  await untilNextWorks();
  await until('the pages of the runtime are free', async () => (await modelStats(platform)).pages.owned === 0);
});

test('after a SIGKILL of Redis, a stream is complete or ends with a known error code, and the next invocation works', async () => {
  const server = redisServer();
  const restarted = platform.restarted('redis');
  const events = await during('text-completion', LONG, () => process.kill(server, 'SIGKILL'));
  const end = terminal(events);
  assert.ok(end, 'one terminal event');
  await restarted;
  if (end.event === 'error') assert.ok(OUTAGE_CODES.includes(end.data.code), end.data.code);
  else
    assert.equal(
      text(events),
      text(await invoke(platform, 'text-completion', LONG)),
      'the text has no gap and no repetition',
    );
  await untilNextWorks();
});

test('when Redis stays away for longer than the gateway waits, a stream ends with a known code, and the next invocation works', async () => {
  const server = redisServer();
  const restarted = platform.restarted('redis');
  const events = await during('counted', ENDLESS, () => {
    // While the supervisor is stopped, it does not start Redis again.
    process.kill(platform.supervisorPid, 'SIGSTOP');
    process.kill(server, 'SIGKILL');
    setTimeout(() => process.kill(platform.supervisorPid, 'SIGCONT'), OUTAGE_MS);
  });
  const end = terminal(events);
  assert.equal(end?.event, 'error');
  assert.ok(OUTAGE_CODES.includes(end.data.code), end.data.code);
  await restarted;
  await untilNextWorks();
  const invocation = `/v1/invocations/${events.find(({ event }) => event === 'start')?.data.invocation}`;
  await (await platform.fetch(invocation, { method: 'DELETE' })).body?.cancel();
  await until('the invocation has ended', async () => {
    const { status } = (await (await platform.fetch(invocation)).json()) as { status: string };
    return status === 'cancelled' || status === 'failed';
  });
});

test('after a SIGKILL of the gateway, the client resumes the stream after its last event', async () => {
  const story = { mark: 'a story', tokens: 12 };
  const whole = await invoke(platform, 'counted', story);
  const restarted = platform.restarted('gateway');
  let id = '';
  const seen: StreamEvent[] = [];
  // The invocation waits for a message, so its stream is open when the gateway dies.
  const broken = await invoke(
    platform,
    'counted',
    { ...story, listenAt: 4 },
    {
      onEvent: (event) => {
        seen.push(event);
        if (event.event === 'start') id = event.data.invocation;
        // Event 2 is the first message.
        if (event.id.endsWith('-2')) process.kill(platform.pid('gateway'), 'SIGKILL');
      },
    },
  ).then(
    () => false,
    () => true,
  );
  assert.ok(broken, 'the connection broke');
  await restarted;
  await say(platform, id, { text: 'go on' });
  const rest = await readEvents(
    await platform.fetch(`/v1/invocations/${id}/events`, { headers: { 'last-event-id': seen.at(-1)?.id ?? '' } }),
  );
  assert.equal(text([...seen, ...rest]), text(whole));
  assert.equal(terminal(rest)?.event, 'result');
  await untilNextWorks();
});

test('pie invoke reconnects by itself when the gateway is killed', async () => {
  const restarted = platform.restarted('gateway');
  let killed = false;
  const running = platform.pie(['invoke', 'text-completion', '--input', JSON.stringify(LONG)], {
    onOutput: () => {
      if (!killed) process.kill(platform.pid('gateway'), 'SIGKILL');
      killed = true;
    },
  });
  const { code, stdout, stderr } = await running;
  assert.equal(code, 0, stderr);
  await restarted;
  const whole = await invoke(platform, 'text-completion', LONG);
  assert.equal(stdout.trim(), text(whole).trim());
});

test('after a SIGKILL of the supervisor, every child ends', async () => {
  const pids = [...platform.pids(), redisServer()];
  await platform.kill();
  await until('no child runs', () => pids.every((pid) => !isAlive(pid)));
});

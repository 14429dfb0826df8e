import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { loadConfig } from '#infra/config.ts';
import { EXPRESS_RUNTIME } from '#infra/runtimes.ts';
import { invoke, readEvents, type StreamEvent, terminal, text } from '#test/harness/events.ts';
import { isAlive, Platform, until } from '#test/harness/platform.ts';

const LONG = { prompt: '', maxTokens: 240, temperature: 0 };
const WITHIN_MS = 5000;

let platform: Platform;
before(async () => {
  platform = await Platform.start({ functions: ['text-completion'] });
});
after(() => platform?.[Symbol.asyncDispose]());

/** Runs a long story, kills a process in its midst, and says how it ended and how long after the kill. */
async function killDuring(pid: () => number): Promise<{ events: StreamEvent[]; tookMs: number }> {
  let killedAt = 0;
  const events = await invoke(platform, 'text-completion', LONG, {
    onEvent: (event) => {
      if (event.event !== 'message' || killedAt > 0) return;
      killedAt = Date.now();
      process.kill(pid(), 'SIGKILL');
    },
  });
  assert.ok(killedAt > 0, 'the stream was under way');
  return { events, tookMs: Date.now() - killedAt };
}

/** Pages of each model that nobody holds, once nothing runs, as the GPU host counts them; those cached for later prefixes among them. */
async function freePages(): Promise<Record<string, number>> {
  const [host] = loadConfig(platform.environment).gpuHosts;
  const connection = await GpuHostConnection.connect(host?.address ?? '');
  try {
    const stats = await connection.stats();
    return Object.fromEntries(stats.models.map((model) => [model.name, model.pages.free + model.pages.cached]));
  } finally {
    connection.close();
  }
}

/** The server itself: the supervisor's child is the shell that holds its lifeline. */
function redisServer(): number {
  const shell = platform.pid('redis');
  const children = readFileSync(`/proc/${shell}/task/${shell}/children`, 'utf8').trim().split(' ').map(Number);
  const server = children.find((pid) => readFileSync(`/proc/${pid}/comm`, 'utf8').trim() === 'redis-server');
  assert.ok(server, 'redis-server runs');
  return server;
}

async function nextWorks(): Promise<void> {
  await until(
    'the next invocation works',
    async () => {
      const events = await invoke(platform, 'text-completion', { ...LONG, maxTokens: 8 }).catch(() => []);
      return terminal(events)?.event === 'result';
    },
    20_000,
  );
}

test('the GPU host dies: an error with a code, and the next invocation works', async () => {
  const restarted = platform.restarted('gpu-host-1');
  const { events, tookMs } = await killDuring(() => platform.pid('gpu-host-1'));
  assert.equal(terminal(events)?.event, 'error');
  assert.equal(terminal(events)?.data.code, 'device-lost');
  assert.ok(tookMs < WITHIN_MS, `${tookMs} ms`);
  await restarted;
  await nextWorks();
});

test('the runtime dies: an error with a code, its pages come back, the next invocation works', async () => {
  const before = await freePages();
  // It is a tenant's first invocation.
  const restarted = platform.restarted(EXPRESS_RUNTIME);
  const { events, tookMs } = await killDuring(() => platform.pid(EXPRESS_RUNTIME));
  assert.equal(terminal(events)?.event, 'error');
  assert.equal(terminal(events)?.data.code, 'runtime-lost');
  assert.ok(tookMs < WITHIN_MS, `${tookMs} ms`);
  await restarted;
  await nextWorks();
  assert.deepEqual(await freePages(), before);
});

test('Redis dies: the stream ends with a code or goes on, and the next invocation works', async () => {
  const server = redisServer();
  const restarted = platform.restarted('redis');
  const { events } = await killDuring(() => server);
  const end = terminal(events);
  assert.ok(end, 'one terminal event');
  await restarted;
  if (end.event === 'error') assert.equal(typeof end.data.code, 'string');
  else
    assert.equal(text(events), text(await invoke(platform, 'text-completion', LONG)), 'nothing is lost or said twice');
  await nextWorks();
});

test('the gateway dies: the stream goes on from the last event', async () => {
  const whole = await invoke(platform, 'text-completion', LONG);
  const restarted = platform.restarted('gateway');
  let id = '';
  const seen: StreamEvent[] = [];
  const broken = await invoke(platform, 'text-completion', LONG, {
    onEvent: (event) => {
      seen.push(event);
      if (event.event === 'start') id = event.data.invocation;
      if (event.id === '2') process.kill(platform.pid('gateway'), 'SIGKILL');
    },
  }).then(
    () => false,
    () => true,
  );
  assert.ok(broken, 'the connection broke');
  await restarted;
  const rest = await readEvents(
    await platform.fetch(`/v1/invocations/${id}/events`, { headers: { 'last-event-id': seen.at(-1)?.id ?? '' } }),
  );
  assert.equal(text([...seen, ...rest]), text(whole));
  assert.equal(terminal(rest)?.event, 'result');
  await nextWorks();
});

test('the command goes on by itself when the gateway dies', async () => {
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

test('the supervisor dies: every child ends within 2 s', async () => {
  const pids = [...platform.pids(), redisServer()];
  const started = Date.now();
  await platform.kill();
  await until('no child is left', () => pids.every((pid) => !isAlive(pid)), 2000);
  assert.ok(Date.now() - started < 2500);
});

import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import type {
  GpuHostChange,
  GpuHostState,
  Health,
  InvocationPage,
  InvocationState,
  PlatformLoad,
} from '#gateway/app/control.ts';
import { RUNTIME } from '#infra/runtimes.ts';
import { deployWith, statsOfEachHost } from '#test/harness/deploy.ts';
import { invoke, readEvents, type StreamEvent, say, terminal, text } from '#test/harness/events.ts';
import { Platform, until } from '#test/harness/platform.ts';

const HOSTS = ['gpu-host-1', 'gpu-host-2'];
const STORY = { prompt: 'Once upon a time', maxTokens: 24, temperature: 0 };

let platform: Platform;
before(async () => {
  platform = await Platform.start({
    functions: ['text-completion'],
    config: '[gpu_host]\ncount = 2\nplacement = "invocation"\n',
  });
});
/** Ids of the invocations that `start` made. `afterEach` cancels them: the next test counts all that run, and a failed test may leave some. */
const startedIds: string[] = [];
afterEach(async () => void (await cancel(startedIds.splice(0))));
after(() => platform?.[Symbol.asyncDispose]());

const statsByHost = () => statsOfEachHost(platform);

/** Input of an invocation that waits for a message. */
const HELD = { tokens: 4, listenAt: 2 };

async function start(
  mark: string,
  count: number,
  input: object,
  headers: Record<string, string> = {},
): Promise<string[]> {
  return Promise.all(
    Array.from({ length: count }, async (_, i) => {
      const response = await platform.fetch('/v1/functions/counted/invocations', {
        method: 'POST',
        headers: { 'content-type': 'application/json', prefer: 'respond-async', ...headers },
        body: JSON.stringify({ mark: `${mark}-${i}`, ...input }),
      });
      const { id } = (await response.json()) as { id: string };
      startedIds.push(id);
      return id;
    }),
  );
}

const cancel = (ids: readonly string[]) =>
  Promise.all(ids.map((id) => platform.fetch(`/v1/invocations/${id}`, { method: 'DELETE' })));

const stateOf = async (id: string) =>
  ((await (await platform.fetch(`/v1/invocations/${id}`)).json()) as InvocationState).status;

const story = () => invoke(platform, 'text-completion', STORY);

function assertResult(events: readonly StreamEvent[]): void {
  const end = terminal(events);
  assert.equal(end?.event, 'result', JSON.stringify(end?.data));
}

test('invocations spread over two GPU hosts with equal texts, and capacity is the sum of both hosts', async () => {
  const stories = await Promise.all(Array.from({ length: 24 }, story));
  const texts = new Set(stories.map(text));
  assert.equal(texts.size, 1);
  assert.ok(([...texts][0] ?? '').length > 40);
  const hosts = await statsByHost();
  const computed = hosts.map(({ tokens }) => tokens);
  // Three invocations of about 30 tokens each exceed this bound. The chance that a host gets fewer than three of the 24 is 1 in 28,000.
  for (const tokens of computed) assert.ok(tokens > 3 * STORY.maxTokens, `${computed}`);
  const total = hosts.reduce((sum, { pages }) => sum + pages.total, 0);
  const capacity = new RegExp(`^pie_admission_pages.*\\} ${total}$`, 'm');
  await until('admission counts both hosts', async () =>
    capacity.test(await (await platform.fetch('/metrics')).text()),
  );
});

/** True when exactly the invocations `ids` run: those of the previous test may take a moment to end. */
function allRun(
  ids: readonly string[],
  inferletCounts: readonly number[],
  listed: InvocationPage['invocations'],
): boolean {
  const running = listed.map(({ id }) => id);
  return (
    inferletCounts.reduce((sum, count) => sum + count, 0) === ids.length &&
    isDeepStrictEqual(running.sort(), ids.toSorted())
  );
}

/**
 * Waits until exactly the invocations `ids` run. Returns two numbers for each host: `counted`, the inferlets that the host counts, and `listed`, the
 * invocations that the list of invocations places on the host.
 */
async function placesOf(ids: readonly string[]): Promise<{ counted: readonly number[]; listed: readonly number[] }> {
  let counted: number[] = [];
  let running: InvocationPage['invocations'] = [];
  await until('all invocations run', async () => {
    counted = (await statsByHost()).map(({ inferlets }) => inferlets);
    running = ((await (await platform.fetch('/v1/invocations?status=running')).json()) as InvocationPage).invocations;
    return allRun(ids, counted, running);
  });
  return { counted, listed: HOSTS.map((name) => running.filter(({ gpuHost }) => gpuHost === name).length) };
}

test('the list of invocations names the GPU host of each invocation', async () => {
  await deployWith(platform, 'counted', {});
  const ids = await start('shown', 8, HELD);
  const { counted, listed } = await placesOf(ids);
  assert.deepEqual(listed, counted);
  await cancel(ids);
});

test('invocations with one session affinity run on one GPU host', async () => {
  const ids = await start('affine', 8, HELD, { 'x-session-affinity': 'conversation' });
  const { counted, listed } = await placesOf(ids);
  assert.deepEqual(counted.toSorted(), [0, 8]);
  assert.deepEqual(listed, counted);
  await cancel(ids);
});

test('a drained GPU host finishes its invocations and gets no new ones, across restarts, until it is resumed', async () => {
  const change = async (name: string, body: GpuHostChange) => {
    const headers = { 'content-type': 'application/json' };
    const response = await platform.fetch(`/v1/gpu-hosts/${name}`, {
      method: 'PATCH',
      headers,
      body: JSON.stringify(body),
    });
    return { status: response.status, host: (await response.json()) as GpuHostState };
  };
  const hostOf = async (wanted: readonly string[]) => {
    const { invocations } = (await (
      await platform.fetch('/v1/invocations?status=running&limit=200')
    ).json()) as InvocationPage;
    const hosts = new Map(invocations.map(({ id, gpuHost }) => [id, gpuHost]));
    return wanted.map((id) => hosts.get(id));
  };
  const states = async () => {
    const { gpuHosts } = (await (await platform.fetch('/v1/load')).json()) as PlatformLoad;
    return gpuHosts.map(({ drained, running }) => [drained, running] as const);
  };
  const running = async () => (await states()).map(([, count]) => count);
  await until('nothing runs', async () => (await running()).every((count) => count === 0));
  const earlierIds = await start('before', 8, { tokens: 4, listenAt: 0, child: true });
  let places: (string | undefined)[] = [];
  const countOn = (host: string) => places.filter((place) => place === host).length;
  await until('all invocations are placed', async () => {
    places = await hostOf(earlierIds);
    const [first, second] = await running();
    return first === countOn('gpu-host-1') && second === countOn('gpu-host-2') && !places.includes(undefined);
  });

  const { host } = await change('gpu-host-2', { drained: true });
  assert.deepEqual([host.drained, host.running], [true, countOn('gpu-host-2')]);
  const newIds = await start('after', 8, HELD);
  await until(
    'the new invocations are placed',
    async () => (await running())[0] === countOn('gpu-host-1') + newIds.length,
  );
  assert.deepEqual(await hostOf([...earlierIds, ...newIds]), [...places, ...newIds.map(() => 'gpu-host-1')]);
  await cancel(newIds);
  // Invocations on the drained host go on, including children that they launch now.
  const computed = (await statsByHost())[1]?.tokens ?? 0;
  const drain = platform.pie(['gpu-hosts', 'drain', 'gpu-host-2', '--wait']);
  for (const id of earlierIds)
    await platform.fetch(`/v1/invocations/${id}/messages`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '{"text":"go on"}',
    });
  await until('all have succeeded', async () =>
    (await Promise.all(earlierIds.map(stateOf))).every((status) => status === 'succeeded'),
  );
  // An invocation and its child each compute the 8 tokens of the prompt and 3 of 4 generated tokens: the last one is the input of no step.
  assert.equal(((await statsByHost())[1]?.tokens ?? 0) - computed, countOn('gpu-host-2') * 2 * (8 + 3));
  assert.match((await drain).stdout, /^Drained gpu-host-2. Nothing runs there.\n$/);

  const restarted = [RUNTIME, 'gateway'].map((name) => platform.restarted(name));
  for (const name of [RUNTIME, 'gateway']) process.kill(platform.pid(name), 'SIGKILL');
  await Promise.all(restarted);
  assert.deepEqual((await states())[1], [true, 0]);

  assert.equal((await change('gpu-host-1', { drained: true })).status, 409);
  assert.equal((await states())[0]?.[0], false);
  assert.equal((await change('gpu-host-1', { drained: true, force: true })).status, 200);
  const health = await fetch(`${platform.url}/readyz`);
  const { checks } = (await health.json()) as Health;
  assert.deepEqual([health.status, checks.at(-1)?.detail], [503, 'none of 2 there, 2 drained']);
  const [waitingId = ''] = await start('waits', 1, HELD);
  const waitingStory = story();
  await until('both invocations wait', async () => {
    const { tenants } = (await (await platform.fetch('/v1/load')).json()) as PlatformLoad;
    return tenants.find(({ tenant }) => tenant === 'default')?.waiting === 2;
  });
  assert.equal(await stateOf(waitingId), 'queued');
  assert.deepEqual(await running(), [0, 0]);
  assert.equal((await change('gpu-host-1', { drained: false })).host.drained, false);
  assertResult(await waitingStory);
  await until('the waiting invocation runs', async () => (await hostOf([waitingId]))[0] === 'gpu-host-1');
  await cancel([waitingId]);
  assert.equal((await change('gpu-host-2', { drained: false })).status, 200);
  assert.deepEqual(
    (await states()).map(([drained]) => drained),
    [false, false],
  );
  await until('both hosts compute again', async () => {
    const earlier = (await statsByHost())[1]?.tokens ?? 0;
    await Promise.all(Array.from({ length: 8 }, story));
    return ((await statsByHost())[1]?.tokens ?? 0) > earlier;
  });
});

test('after a SIGKILL of one GPU host, its invocations end as device-lost, and the other host serves new ones', async () => {
  // 16 invocations are all on one host in 1 of 30,000 runs.
  const held = await start('held', 16, HELD);
  const placed = new Map<string, string | undefined>();
  const countOn = (host: string) => [...placed.values()].filter((place) => place === host).length;
  await until('both hosts run a part of the invocations', async () => {
    const response = await platform.fetch('/v1/invocations?status=running&limit=200');
    const { invocations } = (await response.json()) as InvocationPage;
    for (const { id, gpuHost } of invocations) if (held.includes(id)) placed.set(id, gpuHost);
    const counted = (await statsByHost()).map(({ inferlets }) => inferlets);
    return placed.size === held.length && HOSTS.every((name, i) => counted[i] === countOn(name));
  });
  assert.ok(countOn('gpu-host-1') > 0 && countOn('gpu-host-2') > 0, JSON.stringify([...placed.values()]));
  const restarted = platform.restarted('gpu-host-2');
  // Stop the supervisor until the platform has noticed the loss: it would restart the host before.
  process.kill(platform.supervisorPid, 'SIGSTOP');
  process.kill(platform.pid('gpu-host-2'), 'SIGKILL');
  const shownHosts = async () => {
    const { gpuHosts } = (await (await platform.fetch('/v1/load')).json()) as PlatformLoad;
    return gpuHosts.map(({ name, connected, models }) => `${name} ${connected} ${models[0]?.device}`).join(', ');
  };
  const lossShown = until(
    '/v1/load shows the host as not connected',
    async () => (await shownHosts()) === 'gpu-host-1 true CPU, gpu-host-2 false CPU',
  );
  const stories = Promise.all(Array.from({ length: 12 }, story));
  await lossShown.finally(() => process.kill(platform.supervisorPid, 'SIGCONT'));
  const ends = await stories;
  for (const events of ends) {
    const end = terminal(events);
    assert.ok(end?.event === 'result' || end?.data.code === 'device-lost', JSON.stringify(end));
  }
  const laterStories = await Promise.all(Array.from({ length: 12 }, story));
  laterStories.forEach(assertResult);
  for (const [id, host] of placed) {
    // An inferlet that waits for its client notices the loss at its next call. An inferlet whose call was lost has ended and takes no message.
    await say(platform, id, { text: 'go on' }).catch((error) => assert.match(String(error), /has ended/));
    const end = terminal(await readEvents(await platform.fetch(`/v1/invocations/${id}/events`)));
    const expected = host === 'gpu-host-1' ? undefined : 'device-lost';
    assert.equal(end?.data.code, expected, `${host}: ${JSON.stringify(end)}`);
  }
  await restarted;
  await until(
    '/v1/load shows the host as connected',
    async () => (await shownHosts()) === 'gpu-host-1 true CPU, gpu-host-2 true CPU',
  );
  await until('both hosts compute again', async () => {
    const earlier = (await statsByHost())[1]?.tokens ?? 0;
    await Promise.all(Array.from({ length: 8 }, story));
    return ((await statsByHost())[1]?.tokens ?? 0) > earlier;
  });
});

test('without any GPU host /readyz fails, and the platform runs invocations again once the hosts are back', async () => {
  const ready = async () => {
    const response = await fetch(`${platform.url}/readyz`);
    const { checks } = (await response.json()) as Health;
    return { status: response.status, hosts: checks.find(({ name }) => name === 'gpu-hosts') };
  };
  assert.deepEqual(await ready(), { status: 200, hosts: { name: 'gpu-hosts', ok: true, detail: '2 of 2 there' } });
  // Stop the supervisor, so that it does not restart the hosts meanwhile.
  process.kill(platform.supervisorPid, 'SIGSTOP');
  try {
    for (const name of HOSTS) process.kill(platform.pid(name), 'SIGKILL');
    await until('/readyz fails', async () => (await ready()).status === 503);
    const { hosts } = await ready();
    assert.deepEqual([hosts?.ok, hosts?.detail?.replace(/\d+ s$/, 'N s')], [false, 'none of 2 there for N s']);
  } finally {
    process.kill(platform.supervisorPid, 'SIGCONT');
  }
  await until('/readyz succeeds again', async () => (await ready()).status === 200);
  assertResult(await story());
});

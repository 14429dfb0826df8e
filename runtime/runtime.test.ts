import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { RuntimePlatform, type Transcript } from './testing/platform.ts';
import { callbackGuest, RETURN_42, watComponent } from './testing/wat.ts';

const LIMITS = { memoryMb: 16, cpuMs: 30_000, wallMs: 60_000, pages: 64 };
/** CPU limit of the function that spins. The other functions get more, because they may need more on a slow machine. */
const SHORT_CPU_MS = 250;

describe('a runtime', () => {
  let platform: RuntimePlatform;
  let version: FunctionVersion;
  let shortCpu: FunctionVersion;
  const invoke = (wish: Record<string, unknown>, deadlineMs?: number) => platform.invoke(version, wish, deadlineMs);
  /** Number of pages of the platform's GPU host. */
  const allPages = 256;
  const untilAllFree = () => eventually(async () => (await platform.freePages()) === allPages, 'all pages are free');

  let codeFolder: string | undefined;
  before(async () => {
    // `npm test` names a folder that all of its processes share.
    if (process.env.NODE_COMPILE_CACHE === undefined) {
      codeFolder = await mkdtemp(join(tmpdir(), 'pie-test-code-'));
      process.env.NODE_COMPILE_CACHE = codeFolder;
    }
    platform = await RuntimePlatform.start();
    const source = await readFile(new URL('./testing/fixtures/behaviour.js', import.meta.url), 'utf8');
    version = await platform.deploy(source, { name: 'behaviour', limits: LIMITS });
    shortCpu = await platform.deploy(source, { name: 'brief', limits: { ...LIMITS, cpuMs: SHORT_CPU_MS } });
  });
  after(async () => {
    await platform.stop();
    if (codeFolder === undefined) return;
    delete process.env.NODE_COMPILE_CACHE;
    await rm(codeFolder, { recursive: true });
  });

  it('streams the messages of an inferlet, then its result with its usage', async () => {
    const { events, messages, logs, end } = await invoke({ do: 'generate', count: 5 });
    assert.deepEqual(
      events.map(({ seq }) => seq),
      events.map((_, i) => i + 1),
    );
    assert.deepEqual(
      events.map(({ event }) => event),
      ['start', 'log', 'message', 'message', 'message', 'message', 'message', 'metric', 'result'],
    );
    assert.deepEqual(logs, ['to generate']);
    assert.deepEqual(end.data.output, messages.map(Number));
    const { usage } = end.data;
    // The prompt of 3 tokens, and 4 of the 5 decoded tokens, because the last one is not fed back.
    assert.equal(usage?.inputTokens, 7);
    assert.equal(usage?.outputTokens, 5);
    // The inferlet allocates 8 pages at its start.
    assert.equal(usage?.kvPagesPeak, 8);
    await untilAllFree();
  });

  it('gives the same answers to concurrent invocations as to consecutive ones', async () => {
    const wishes = Array.from({ length: 12 }, (_, i) => ({ do: 'generate', count: 8, prompt: [1, 3 + i] }));
    const together = await Promise.all(wishes.map((wish) => invoke(wish)));
    for (const [i, wish] of wishes.entries()) {
      assert.deepEqual((await invoke(wish)).end.data.output, together[i]?.end.data.output);
    }
    await untilAllFree();
  });

  const endings: readonly [wish: Record<string, unknown>, code: string, message: RegExp][] = [
    [{ do: 'throw' }, 'inferlet-error', /boom/],
    [{ do: 'number' }, 'invalid-result', /not a string/],
    [{ do: 'text' }, 'invalid-result', /not JSON/],
    [{ do: 'spin' }, 'cpu-limit', /250 ms/],
    [{ do: 'leak' }, 'memory-limit', /limits\.memoryMb/],
    [{ do: 'recurse' }, 'trap', /call stack is exhausted by a recursion/],
    [{ do: 'never' }, 'trap', /nothing will settle/],
    [{ do: 'generate', count: 5, prompt: [1, 4000] }, 'inferlet-error', /invalid-argument/],
    [{ do: 'generate', count: 400 }, 'inferlet-error', /context-overflow/],
  ];
  for (const [wish, code, message] of endings) {
    it(`reports the failure of an inferlet: ${JSON.stringify(wish)} is ${code}`, async () => {
      const { end } = await platform.invoke(code === 'cpu-limit' ? shortCpu : version, wish);
      assert.equal(end.event, 'error');
      assert.equal(end.data.code, code);
      assert.match(end.data.message ?? '', message);
      await untilAllFree();
    });
  }

  it('ends an inferlet at its deadline', async () => {
    let deadlineMs = 400;
    let transcript = await invoke({ do: 'sleep' }, deadlineMs);
    // An invocation that begins after its deadline sends no message, so the loop tries a longer deadline.
    for (; transcript.messages.length === 0; transcript = await invoke({ do: 'sleep' }, deadlineMs)) deadlineMs *= 2;
    const { messages, end } = transcript;
    assert.deepEqual(messages, ['sleeping', 'deadline-exceeded true']);
    assert.equal(end.data.code, 'deadline-exceeded');
  });

  it('ends an inferlet that floods its client', async () => {
    const { end } = await invoke({ do: 'flood' });
    assert.equal(end.data.code, 'output-limit');
  });

  it('cancels a sleeping inferlet, and a spinning one', async () => {
    const startAndCancel = async (wish: Record<string, unknown>): Promise<Transcript & { readonly id: string }> => {
      const id = await platform.submit(version, wish);
      await untilStarted(platform, id);
      await platform.scheduler.cancel(id, 'no longer wanted');
      return { id, ...(await platform.transcript(id)) };
    };
    // The second one starts after the end of the first: they share a sandbox, where the spinning one could keep the sleeping one from its turn
    // until the grace period ends.
    const asleep = await startAndCancel({ do: 'sleep' });
    const spinning = await startAndCancel({ do: 'spin' });
    assert.deepEqual(asleep.messages, ['sleeping', 'cancelled true']);
    assert.equal(asleep.end.data.code, 'cancelled');
    assert.equal(spinning.end.data.code, 'cancelled');
    assert.equal((await platform.scheduler.invocations.get(asleep.id))?.status, 'cancelled');
  });

  it("delivers the client's messages to an inferlet in order, until the end", async () => {
    const id = await platform.submit(version, { do: 'receive' });
    await platform.scheduler.inbox.push(id, { text: 'one' });
    await untilStarted(platform, id);
    await platform.scheduler.inbox.push(id, { bytes: new Uint8Array([2, 0, 255]) });
    await platform.scheduler.inbox.push(id, { text: 'three' });
    await platform.scheduler.inbox.close(id);
    const { messages, end } = await platform.transcript(id);
    assert.deepEqual(end.data.output, { heard: ['one', [2, 0, 255], 'three'], end: 'closed' });
    assert.deepEqual(messages, ['heard 1', 'heard 2', 'heard 3']);
  });

  it('reports a device failure as device-lost, and continues when the device is back', async () => {
    const id = await platform.submit(version, { do: 'generate', count: 100, pauseMs: 20 });
    await untilStarted(platform, id);
    await platform.killGpuHost();
    const { end } = await platform.transcript(id);
    assert.equal(end.data.code, 'device-lost');
    await platform.restartGpuHost();
    const deadline = Date.now() + 120_000;
    let again = await invoke({ do: 'generate', count: 2 });
    while (again.end.event !== 'result' && Date.now() < deadline) again = await invoke({ do: 'generate', count: 2 });
    assert.equal(again.end.event, 'result');
  });

  it('reports the trap of a component whose memory cannot grow', async () => {
    const fixed = await platform.deploy(await watComponent(callbackGuest({ run: 'unreachable' })), { name: 'fixed' });
    const { end } = await platform.invoke(fixed, {});
    assert.equal(end.data.code, 'trap');
    assert.match(end.data.message ?? '', /unreachable/);
  });

  it('refuses a component that cannot be instantiated', async () => {
    const spinner = await watComponent(
      callbackGuest({ run: `${RETURN_42} (i32.const 0)`, extra: '(func $s (loop (br 0))) (start $s)' }),
    );
    await assert.rejects(platform.deploy(spinner, { name: 'stuck' }), /build-failed: .*cannot be instantiated/);
    assert.equal(
      await platform.scheduler.functions
        .list('default')
        .then((list) => list.some(({ version }) => version.name === 'stuck')),
      false,
    );
  });

  it('fails the unfinished invocations of an earlier runtime of its name', async () => {
    const id = await platform.submit(version, { do: 'sleep' });
    await untilStarted(platform, id);
    const predecessor = platform.runtime;
    platform.runtime = await platform.startRuntime();
    const { end } = await platform.transcript(id);
    assert.equal(end.data.code, 'runtime-lost');
    await predecessor.stop(0);
    assert.equal((await invoke({ do: 'echo', value: 1 })).end.data.output, 1);
  });

  it('leaves no registration when no GPU host answers in time', async () => {
    const gpuHosts = [{ name: 'absent', address: join(tmpdir(), 'pie-no-such-gpu-host.sock') }];
    const starting = platform.startRuntime({ name: 'runtime-alone', gpuHosts, gpuHostDeadlineMs: 50 });
    await assert.rejects(starting, /no GPU host answered at .*pie-no-such-gpu-host\.sock within 50 ms/);
    assert.deepEqual(
      (await platform.scheduler.runtimes.list()).map(({ name }) => name),
      ['runtime-test'],
    );
  });

  it('lets sandboxes read the code cache, where the machine supports namespaces', async (t) => {
    const { isolation, codeCache = '' } = platform.runtime.layers.sandbox;
    if (isolation !== 'namespaces') return t.skip('this machine has no namespaces');
    await eventually(() => Promise.resolve(existsSync(codeCache)), 'the code cache exists');
    await invoke({ do: 'echo', value: 1 });
    const [sandbox] = platform.runtime.fleet.sandboxes;
    const command = await readFile(`/proc/${sandbox?.process.pid}/cmdline`, 'utf8');
    assert.ok(command.split('\0').includes(`--allow-fs-read=${codeCache}`), command);
  });

  it('reports no errors', () => {
    assert.deepEqual(platform.errors, []);
  });
});

/** Waits until an invocation has sent or logged a message. */
async function untilStarted(platform: RuntimePlatform, id: string): Promise<void> {
  for await (const { event } of platform.scheduler.events.follow(id, 0, AbortSignal.timeout(240_000))) {
    if (event === 'log' || event === 'message') return;
  }
}

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { deployWith, statsOn } from '#test/harness/deploy.ts';
import { invoke, json, type StreamEvent, terminal } from '#test/harness/events.ts';
import { Machines, type Shape } from '#test/harness/machines.ts';
import { Network } from '#test/harness/network.ts';
import { type Platform, until } from '#test/harness/platform.ts';

const SHAPE: Shape = { 'gpu-1': 'gpu-host', 'gpu-2': 'gpu-host', 'run-1': 'runtime' };
const CONFIG = '[gpu_host]\nplacement = "invocation"\n';
const RUNS = 64;
const TOKENS = 120;
/** Pause after each token. It keeps all runs going while the test undrains one GPU host and drains the other. */
const PAUSE_MS = 150;
/** Lengths of the prompts, in tokens: prompts of different lengths give different tokens. */
const CONTEXTS = [8, 9, 10, 11, 12, 13, 14, 15];
const contextOf = (i: number) => CONTEXTS[i % CONTEXTS.length] ?? 8;

const skip = Network.missingReason() || (!process.env.PIE_TEST_ALL && 'it takes a minute: npm run test:all');

interface Stream {
  /** Time of each token's arrival, by `performance.now()`. */
  readonly arrivalsMs: number[];
  readonly ended: Promise<StreamEvent[]>;
}

describe('a drained machine with a GPU host', { skip }, () => {
  let machines: Machines;
  let front: Platform;
  before(async () => {
    machines = await Machines.start({ shape: SHAPE, config: CONFIG });
    ({ front } = machines);
    await machines.joinAll();
    await deployWith(front, 'counted', {});
  });
  after(() => machines?.[Symbol.asyncDispose]());

  const stream = (context: number, pauseMs: number): Stream => {
    const arrivalsMs: number[] = [];
    const onEvent = ({ event }: StreamEvent) => event === 'message' && arrivalsMs.push(performance.now());
    return {
      arrivalsMs,
      ended: invoke(front, 'counted', { mark: 'long', context, tokens: TOKENS, pauseMs }, { onEvent }),
    };
  };
  const tokensOf = async ({ ended }: Stream) => {
    const events = await ended;
    assert.equal(terminal(events)?.event, 'result', JSON.stringify(terminal(events)));
    return events.flatMap(({ event, data }) => (event === 'message' ? [data.text] : [])).join(' ');
  };
  const isThere = async (name: string) =>
    (await json(await front.fetch('/v1/load'))).machines.some(
      (each: { name: string; alive: boolean }) => each.name === name && each.alive,
    );
  /** Number of inferlets that each GPU host counts: Redis does not record which host serves an invocation. */
  const running = () =>
    Promise.all(['gpu-1', 'gpu-2'].map(async (name) => (await statsOn(machines.platform(name))).inferlets));
  const drain = (name: string, ...flags: string[]) => front.pie(['machines', 'drain', name, ...flags]);

  test(`finishes its ${RUNS} runs with unchanged tokens, takes no new one, and leaves`, async (t) => {
    const expected = new Map<number, string>();
    for (const context of CONTEXTS) expected.set(context, await tokensOf(stream(context, 0)));
    assert.ok(new Set(expected.values()).size > CONTEXTS.length / 2, 'prompts differ in their tokens');
    assert.equal((await drain('gpu-2', '--wait')).code, 0);
    const longRuns = Array.from({ length: RUNS }, (_, i) => stream(contextOf(i), PAUSE_MS));
    await until(
      'all run on one machine',
      async () => (await running())[0] === RUNS && longRuns.every(({ arrivalsMs }) => arrivalsMs.length > 0),
    );
    assert.equal((await front.pie(['machines', 'undrain', 'gpu-2'])).code, 0);

    const beganMs = performance.now();
    const drained = drain('gpu-1', '--wait');
    await until('gpu-1 is drained', async () =>
      (await json(await front.fetch('/v1/load'))).gpuHosts.some(
        (host: { name: string; drained: boolean }) => host.name.endsWith('@gpu-1') && host.drained,
      ),
    );
    const lateRuns = CONTEXTS.map((context) => stream(context, PAUSE_MS));
    await until('the new invocations run', () => lateRuns.every(({ arrivalsMs }) => arrivalsMs.length > 0));
    assert.deepEqual(await running(), [RUNS, lateRuns.length]);
    for (const [i, run] of longRuns.entries())
      assert.equal(await tokensOf(run), expected.get(contextOf(i)), `run ${i}`);
    const { code, stdout } = await drained;
    assert.equal(code, 0);
    t.diagnostic(stdout.trim());
    assert.equal(await machines.platform('gpu-1').stop('SIGTERM'), 0);
    const gaps = longRuns.flatMap(({ arrivalsMs }) =>
      arrivalsMs.map((ms, i) => (ms > beganMs ? ms - (arrivalsMs[i - 1] ?? ms) : 0)),
    );
    t.diagnostic(`longest gap at a client after the drain began: ${Math.round(Math.max(...gaps))} ms`);
    for (const [i, run] of lateRuns.entries())
      assert.equal(await tokensOf(run), expected.get(contextOf(i)), `late run ${i}`);
    await until('the machine is gone', async () => !(await isThere('gpu-1')));
    assert.equal(await tokensOf(stream(8, 0)), expected.get(8));
  });
});

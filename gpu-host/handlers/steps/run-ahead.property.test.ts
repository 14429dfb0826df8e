import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Random } from '#test/harness/random.ts';
import type { Backend, SequenceInput } from '../../backends/backend.ts';
import { InvalidInput } from '../../backends/check.ts';
import type {
  DeviceClient,
  GpuHostConnection,
  Outcome,
  RunRequest,
  Sampler,
  StepResult,
} from '../../protocol/client.ts';
import { must, NONE, Oracle, samplingStep, startTestHost, type TestHost } from '../../testing/host.ts';
import { checkCharged, openedBy } from '../../testing/workbench.ts';
import { wrapBackend } from '../../testing/wrapped-backend.ts';

/*
 * Inferlets that run, step and end at random, on a device that answers late, refuses or fails. A step *ahead* is handed to the device while
 * the previous step is computed; some of these steps are guessed. With and without them, tokens and pages must match the oracle.
 */

const SEEDS = process.env.PIE_TEST_ALL ? 14 : 6;
/** The plots of this number of first seeds have an inferlet that reads slowly. */
const SLOW_SEEDS = 2;
const PAGE_SIZE = 8;

/** The script of one inferlet. */
interface Story {
  /** Turns of the event loop before the inferlet's first call, after its prompt, and around its later calls. */
  readonly delays: readonly number[];
  readonly prompt: readonly number[];
  readonly token: number;
  readonly sampler: Sampler;
  readonly maxTokens: number;
  readonly stopTokens: readonly number[];
  /** Number of tokens after which the inferlet stops its run. */
  readonly stopAfter: number;
  /** Number of tokens after which the inferlet closes. */
  readonly closeAfter: number;
  /** True when the inferlet reads nothing for so long that the run waits for it. */
  readonly isSlow: boolean;
  /** True when the inferlet asks for one step after another instead of a run. */
  readonly usesSteps: boolean;
  /** First the index of a step with a token that the inferlet chooses itself, then of a step with another sampler; either may be missing. */
  readonly swerves: readonly number[];
}

interface Plot {
  readonly stories: readonly Story[];
  /** Number of the device call that fails; 0 for none. */
  readonly failsAt: number;
  /** Average number of refusals: in four steps ahead, and in eight other steps with more than one call. */
  readonly refuses: number;
  /** Maximum turns of the event loop by which a step ends late. */
  readonly latency: number;
}

/** Outcome of a story. */
interface Telling {
  readonly tokens: readonly number[];
  readonly finished: string;
}

const NEVER = 10_000;

function plotOf(seed: number): Plot {
  const dice = new Random(seed);
  const isSlow = seed < SLOW_SEEDS;
  const allStep = seed % 2 === 1;
  const prompts = [0, 1, 2].map(() => Array.from({ length: 1 + dice.below(20) }, () => dice.below(96)));
  const stories = Array.from({ length: 1 + dice.below(5) }, (_, i): Story => {
    const slow = isSlow && i === 0;
    return {
      delays: Array.from({ length: 4 }, () => dice.below(30)),
      prompt: prompts[dice.below(3)]!,
      token: dice.below(4),
      sampler: { temperature: dice.below(2) * 0.9, topK: dice.below(2) * 12, topP: 0.95, minP: 0, seed: dice.below(3) },
      maxTokens: slow ? 280 : 1 + dice.below(36),
      stopTokens: slow ? [] : Array.from({ length: dice.below(16) }, () => dice.below(96)),
      stopAfter: dice.below(5) === 0 ? 1 + dice.below(12) : NEVER,
      closeAfter: dice.below(6) === 0 ? 1 + dice.below(12) : NEVER,
      isSlow: slow,
      usesSteps: !slow && (allStep || dice.below(4) === 0),
      swerves: Array.from({ length: dice.below(3) }, () => dice.below(30)),
    };
  });
  return {
    stories,
    failsAt: dice.below(4) === 0 ? 3 + dice.below(30) : 0,
    refuses: dice.below(2) * dice.below(4),
    // Inferlets that step need some turns of the event loop until their next call.
    latency: dice.below(4) + (allStep ? 12 : 0),
  };
}

/** A device whose steps end one after another, each some turns late, and that refuses and fails as the plot says. */
function device(inner: Backend, plot: Plot, ahead: boolean, seed: number): Backend {
  const dice = new Random(seed + 7);
  let calls = 0;
  let previousStep: Promise<unknown> = Promise.resolve();
  return wrapBackend(inner, {
    ahead,
    async forward(batch: readonly SequenceInput[]) {
      calls++;
      const isAhead = batch.some(({ inputs }) => inputs.kind === 'picked');
      assert.ok(ahead || !isAhead);
      if (isAhead && dice.below(4) < plot.refuses) throw new InvalidInput('not now');
      if (!isAhead && batch.length > 1 && dice.below(8) < plot.refuses) throw new InvalidInput('not together');
      const computing = calls === plot.failsAt ? Promise.reject(new Error('the plot says so')) : inner.forward(batch);
      const waits = Promise.allSettled([previousStep, computing]);
      previousStep = waits.then(async () => {
        await turns(dice.below(plot.latency + 1));
      });
      await previousStep;
      return computing;
    },
  });
}

async function turns(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await nextTurn();
}

/** Plays an inferlet's part of the plot. Throws the errors of its calls. */
async function live(inferlet: DeviceClient, story: Story, oracle: Oracle): Promise<Telling> {
  const { prompt, token, sampler, maxTokens, delays } = story;
  const queue = inferlet.createQueue('tiny');
  await turns(delays[0]!);
  // Leaves room for the six tokens of a second run.
  const pages = must(inferlet.allocatePages(queue, Math.ceil((prompt.length + maxTokens + 9) / PAGE_SIZE)));
  const step = (tokens: readonly number[], first: number, outPages: Uint32Array, output: object) => {
    const { op, request } = samplingStep(tokens, first, pages, sampler);
    return inferlet.ask(queue, { op, request: { ...request, outPages, ...output } });
  };
  must(await step(prompt, 0, pages, { rows: 0, output: { tag: 'none' } }));
  await turns(delays[1]!);
  if (story.usesSteps) {
    const text = [...prompt, token];
    for (let i = 0; i < maxTokens; i++) {
      const [swervesToken, swervesSampler] = [0, 1].map((at) => story.swerves[at] === i);
      if (swervesToken) text[text.length - 1] = 7;
      const output = swervesSampler ? { output: { tag: 'sample', val: { ...sampler, seed: 9 } } } : {};
      text.push(must(await step([text.at(-1)!], text.length - 1, pages, output)).tokens[0]!);
      if (text.length - prompt.length - 1 >= story.closeAfter) {
        await inferlet.close();
        return { tokens: text.slice(prompt.length), finished: 'closed' };
      }
      await turns(delays[2]! % 3);
    }
    const last = { output: { tag: 'distributions', val: 4 } };
    const fresh = must(inferlet.allocatePages(queue, Math.ceil(text.length / PAGE_SIZE)));
    const found = must(await step(text.slice(-1), text.length - 1, NONE, last)).distributions[0]!.logProbabilities;
    const anew = must(await step(text, 0, fresh, { ...last, inPages: fresh })).distributions[0]!.logProbabilities;
    const expected = await oracle.top(text, [...text.keys()], 1, 4);
    for (const [i, value] of expected.logProbabilities.entries())
      assert.ok(Math.abs(found[i]! - value) + Math.abs(anew[i]! - value) < 1e-4, `the pages: ${found[i]} for ${value}`);
    return { tokens: text.slice(prompt.length), finished: 'steps' };
  }
  const telling = await readRun(inferlet, queue, story, {
    token,
    position: prompt.length,
    pages,
    maxTokens,
    sampler,
    stopTokens: Uint32Array.from(story.stopTokens),
  });
  if (telling.finished === 'closed') return telling;
  await turns(delays[2]!);
  // Check the pages' content: the last token was handed over and not computed.
  const text = [...prompt, token, ...telling.tokens];
  const checkAlike = async (outcome: Outcome<StepResult>, whole: readonly number[], what: string) => {
    const given = must(outcome).distributions[0]!.logProbabilities;
    const expected = await oracle.top(whole, [...whole.keys()], 1, 4);
    for (const [i, value] of expected.logProbabilities.entries())
      assert.ok(Math.abs(given[i]! - value) < 1e-4, `${what}: ${given[i]} and not ${value}`);
  };
  const output = { output: { tag: 'distributions', val: 4 } };
  await checkAlike(await step(text.slice(-1), text.length - 1, NONE, output), text, 'the pages');
  const fresh = must(inferlet.allocatePages(queue, Math.ceil(text.length / PAGE_SIZE)));
  const whole = { inPages: fresh, outPages: fresh };
  const again = await step(text, 0, fresh, { ...output, ...whole });
  await checkAlike(again, text, 'the same text, from what is cached');
  const { cachedTokens } = must(again);
  assert.ok(cachedTokens >= Math.floor((text.length - 1) / PAGE_SIZE) * PAGE_SIZE, 'all whole pages are cached');
  assert.ok(cachedTokens < text.length, 'the last input is computed');
  const more = await readRun(
    inferlet,
    queue,
    { ...story, stopAfter: NEVER, closeAfter: NEVER },
    {
      token: text.at(-1)!,
      position: text.length - 1,
      pages,
      maxTokens: 6,
      sampler: { ...sampler, temperature: 0 },
      stopTokens: NONE,
    },
  );
  assert.deepEqual(more.tokens, await oracle.greedy(text, 6), 'the run that goes on in these pages');
  const longer = [...text, ...more.tokens];
  await checkAlike(await step(longer.slice(-1), longer.length - 1, NONE, output), longer, 'the pages after that run');
  return telling;
}

async function readRun(inferlet: DeviceClient, queue: number, story: Story, request: RunRequest): Promise<Telling> {
  const run = inferlet.run(queue, request);
  const tokens: number[] = [];
  if (story.isSlow) await turns(2000);
  for (;;) {
    const chunk = must(await run.next());
    tokens.push(...chunk.tokens);
    if (chunk.finished !== undefined) return { tokens, finished: chunk.finished };
    if (tokens.length >= story.closeAfter) {
      await inferlet.close();
      return { tokens, finished: 'closed' };
    }
    if (tokens.length >= story.stopAfter) run.stop();
  }
}

interface Outcomes {
  readonly tellings: readonly (Telling | Error)[];
  readonly stepsAhead: number;
  readonly batches: number;
}

async function play(plot: Plot, ahead: boolean, seed: number): Promise<Outcomes> {
  await using host = await startTestHost({
    seed: 3,
    pageSize: PAGE_SIZE,
    pageCount: 256,
    shape: { contextLength: 400, heads: 2, kvHeads: 1, layers: 2 },
    wrap: (inner) => device(inner, plot, ahead, seed),
  });
  const oracle = await Oracle.of(host.model);
  const connections = [await host.connect(), await host.connect()];
  const opened = connections.map(openedBy);
  const tellings = await Promise.all(
    plot.stories.map(async (story, i): Promise<Telling | Error> => {
      const inferlet = connections[i % 2]!.openInferlet({ id: `${i}`, maxPages: 100, arrival: i });
      try {
        return await live(inferlet, story, oracle);
      } catch (error) {
        if (error instanceof assert.AssertionError) throw error;
        return error as Error;
      }
    }),
  );
  await checkAtRest(host, connections, opened.flat());
  const { stepsAhead, batches } = host.host.stats().models[0]!;
  return { tellings, stepsAhead, batches };
}

/** Checks that every call was answered once, every page is back or cached, and all device time was charged. */
async function checkAtRest(
  host: TestHost,
  connections: readonly GpuHostConnection[],
  opened: readonly DeviceClient[],
): Promise<void> {
  const engine = host.host.engines[0]!;
  for (const inferlet of opened) assert.equal(inferlet.pendingCalls, 0);
  for (const space of engine.spaces) {
    assert.equal(space.pendingBytes, 0);
    assert.equal(space.scoreboard.size, 0);
    assert.equal(space.waitingCallCount, 0);
    assert.equal(space.runs.size, 0);
    for (const { batchQueue: order } of space.queues) assert.equal(order.length + order.outstanding, 0);
  }
  engine.memory.check();
  // A further inferlet finds the device in order.
  const inferlet = connections[0]!.openInferlet({ id: 'last', maxPages: 10, arrival: 99 });
  const queue = inferlet.createQueue('tiny');
  const pages = must(inferlet.allocatePages(queue, 2));
  const run = inferlet.run(queue, {
    token: 5,
    position: 0,
    pages,
    maxTokens: 5,
    stopTokens: NONE,
    sampler: { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 0 },
  });
  const tokens: number[] = [];
  for (let finished = false; !finished; ) {
    const chunk = must(await run.next());
    tokens.push(...chunk.tokens);
    finished = chunk.finished !== undefined;
  }
  assert.deepEqual(tokens, await (await Oracle.of(host.model)).greedy([5], 5));
  await Promise.all([inferlet, ...opened].map((each) => each.close()));
  const { elapsedMs, models } = await connections[0]!.stats();
  const { pages: counts, deviceBusyMs } = models[0]!;
  assert.equal(counts.owned, 0);
  assert.ok(deviceBusyMs <= elapsedMs, 'no moment is charged twice');
  checkCharged([inferlet, ...opened], deviceBusyMs);
}

/** True when one list is the start of the other. */
function agree(a: readonly number[], b: readonly number[]): boolean {
  return a.every((token, i) => i >= b.length || token === b[i]);
}

test('steps ahead change neither answers nor the content of pages', async () => {
  let [stepsAhead, batches, failed, ended, guessed] = [0, 0, 0, 0, 0];
  for (let seed = 0; seed < SEEDS; seed++) {
    const plot = plotOf(seed);
    const plain = await play(plot, false, seed);
    const runAhead = await play(plot, true, seed);
    assert.equal(plain.stepsAhead, 0);
    stepsAhead += runAhead.stepsAhead;
    batches += runAhead.batches;
    if (plot.stories.every(({ usesSteps }) => usesSteps)) guessed += runAhead.stepsAhead;
    for (const [i, { stopAfter, closeAfter }] of plot.stories.entries()) {
      const [a, b] = [plain.tellings[i]!, runAhead.tellings[i]!];
      const what = `seed ${seed}, story ${i}`;
      if (a instanceof Error || b instanceof Error) {
        failed++;
        assert.ok(
          plot.failsAt > 0,
          `${what}: ${a instanceof Error ? a.stack : ''} ${b instanceof Error ? b.stack : ''}`,
        );
        const error = a instanceof Error ? a : (b as Error);
        assert.match(error.message, /^(internal|dependency-failed|cancelled)/, what);
        continue;
      }
      assert.ok(agree(a.tokens, b.tokens), what);
      if (stopAfter === NEVER && closeAfter === NEVER) assert.deepEqual(b, a, what);
      else ended++;
    }
  }
  // The number depends on how the machine interleaves host and inferlets: a quarter of the steps is usual.
  assert.ok(stepsAhead > batches / 10, `${stepsAhead} of ${batches} steps were handed over ahead`);
  assert.ok(failed > 0 && ended > 0);
  assert.ok(guessed > 0, 'steps were guessed');
});

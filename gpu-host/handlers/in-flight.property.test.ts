import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Random } from '#test/harness/random.ts';
import type { DeviceClient, Outcome } from '../protocol/client.ts';
import { Oracle, range, samplingStep, startTestHost, type TestHost } from '../testing/host.ts';
import { checkCharged, openedBy } from '../testing/workbench.ts';
import { wrapBackend } from '../testing/wrapped-backend.ts';

/*
 * Inferlets of two tenants send equal and similar prompts at once, on a device with few pages whose steps fail now and then. The test cancels
 * some inferlets amid their prefills, and the host ends others for memory. The rest must get the oracle's tokens, and no page may be lost.
 */

const SEEDS = process.env.PIE_TEST_ALL ? 120 : 10;
const PAGE_SIZE = 8;

interface Story {
  readonly tenant: string;
  readonly prompt: readonly number[];
  /** True for embed-text, forward and next-distribution instead of a fused step. */
  readonly byEmbeds: boolean;
  readonly priority: number;
  /** Turns of the event loop before the inferlet sends its prompt. */
  readonly delay: number;
  /** Turns of the event loop from the prompt until the test cancels the inferlet; undefined for most. */
  readonly cancelAfter: number | undefined;
  /** Number of tokens to decode. */
  readonly tokens: number;
}

interface Plot {
  readonly stories: readonly Story[];
  readonly pageCount: number;
  readonly maxBatchTokens: number;
  /** On average, one of so many device steps fails; 0 when none shall fail. */
  readonly failsOneIn: number;
}

/** The decoded tokens of a story, and `done` or the tag of the error that ended it. */
interface Telling {
  readonly tokens: readonly number[];
  readonly end: string;
}

function plotOf(seed: number): Plot {
  const dice = new Random(seed);
  const text = (length: number): number[] => Array.from({ length }, () => dice.below(96));
  const common = text(20 + dice.below(40));
  const prompts = [common, [...common, ...text(1 + dice.below(30))], [...common.slice(0, 30), ...text(dice.below(40))]];
  const maxDelay = dice.below(3) * 8;
  // In a third of the plots nothing ends an inferlet early, so that the computed tokens can be compared.
  const mayEndEarly = dice.below(3) > 0;
  return {
    stories: Array.from({ length: 6 + dice.below(10) }, () => ({
      tenant: `tenant-${dice.below(4) === 0 ? 1 : 0}`,
      prompt: prompts[dice.below(2) * dice.below(prompts.length)]!,
      byEmbeds: dice.below(4) === 0,
      priority: dice.below(3) === 0 ? dice.below(21) - 10 : 0,
      delay: dice.below(maxDelay + 1),
      cancelAfter: mayEndEarly && dice.below(4) === 0 ? dice.below(24) : undefined,
      tokens: 1 + dice.below(12),
    })),
    pageCount: mayEndEarly && dice.below(2) === 0 ? 40 : 300,
    maxBatchTokens: [20, 48, 512][dice.below(3)]!,
    failsOneIn: mayEndEarly && dice.below(3) === 0 ? 16 : 0,
  };
}

/** Prefills the prompt and decodes, token by token. Stops with the tag of the first error. */
async function live(inferlet: DeviceClient, { prompt, priority, delay, tokens, byEmbeds }: Story): Promise<Telling> {
  const queue = inferlet.createQueue('tiny');
  if (priority !== 0) inferlet.send(queue, { op: 'set-priority', priority });
  for (let turn = 0; turn < delay; turn++) await nextTurn();
  const decoded: number[] = [];
  const allocated = inferlet.allocatePages(queue, Math.ceil((prompt.length + tokens) / PAGE_SIZE));
  if (allocated.tag === 'err') return { tokens: decoded, end: allocated.val.tag };
  let inputs = prompt;
  for (let position = 0; decoded.length < tokens; ) {
    const next = await (byEmbeds ? stepByEmbeds : stepByTokens)(inferlet, queue, allocated.val, inputs, position);
    if (next.tag === 'err') return { tokens: decoded, end: next.val.tag };
    position += inputs.length;
    decoded.push(next.val.tokens[0]!);
    inputs = decoded.slice(-1);
  }
  return { tokens: decoded, end: 'done' };
}

type Answer = Promise<Outcome<{ readonly tokens: Uint32Array }>>;

function stepByTokens(
  inferlet: DeviceClient,
  queue: number,
  pages: Uint32Array,
  inputs: readonly number[],
  position: number,
): Answer {
  return inferlet.ask(queue, samplingStep(inputs, position, pages));
}

function stepByEmbeds(
  inferlet: DeviceClient,
  queue: number,
  pages: Uint32Array,
  inputs: readonly number[],
  position: number,
): Answer {
  const allocated = inferlet.allocateEmbeds(queue, inputs.length + 1);
  if (allocated.tag === 'err') return Promise.resolve(allocated);
  const used = allocated.val.slice(0, inputs.length);
  const state = allocated.val.slice(inputs.length);
  inferlet.send(queue, {
    op: 'embed-text',
    tokens: Uint32Array.from(inputs),
    positions: range(position, position + inputs.length),
    embeds: used,
  });
  inferlet.send(queue, { op: 'forward', inPages: pages, inEmbeds: used, outPages: pages, outEmbeds: state });
  return inferlet.ask(queue, { op: 'next-distribution', embed: state[0]!, topK: 1 });
}

async function play(plot: Plot, seed: number, prefixCache: boolean) {
  const dice = new Random(seed + 99);
  let previousStep: Promise<unknown> = Promise.resolve();
  await using host = await startTestHost({
    seed: 3,
    pageSize: PAGE_SIZE,
    pageCount: plot.pageCount,
    shape: { contextLength: 128 },
    model: { prefixCache, maxBatchTokens: plot.maxBatchTokens },
    wrap: (inner) =>
      wrapBackend(inner, {
        forward(batch) {
          // A device computes its steps in order.
          const computed = previousStep.then(async () => {
            for (let turns = dice.below(6); turns > 0; turns--) await nextTurn();
            if (plot.failsOneIn > 0 && dice.below(plot.failsOneIn) === 0) throw new Error('the plot says so');
            return inner.forward(batch);
          });
          previousStep = computed.catch(() => undefined);
          return computed;
        },
      }),
  });
  const connection = await host.connect();
  const opened = openedBy(connection);
  const tellings = await Promise.all(
    plot.stories.map(async (story, i): Promise<Telling> => {
      const { tenant, cancelAfter } = story;
      const inferlet = connection.openInferlet({ id: `${i}`, tenant, maxPages: 40, arrival: i });
      const telling = live(inferlet, story).then(async (told) => {
        if (told.end === 'done') checkAnswered(host, `${i}`);
        // As an invocation does, the inferlet ends with its story. Memory takes no page within the share of a tenant whose inferlets neither wait nor
        // end, so that calls of another tenant might be held without end.
        await inferlet.close();
        return told;
      });
      if (cancelAfter === undefined) return telling;
      for (let turn = 0; turn < story.delay + cancelAfter; turn++) await nextTurn();
      await inferlet.close();
      return telling;
    }),
  );
  await checkAtRest(host, opened);
  // Each guessed sequence that no call took computed one token, which no inferlet asked for.
  const { tokens, vainGuesses = 0, prefix } = host.host.stats().models[0]!;
  return { tellings, oracle: await Oracle.of(host.model), tokens: tokens - vainGuesses, hits: prefix.hitTokens };
}

/** Checks that no call of an open inferlet is left on the scoreboard. */
function checkAnswered(host: TestHost, id: string): void {
  const { spaces } = host.host.engines[0]!;
  for (const { owner, scoreboard } of spaces) if (owner.id === id) assert.equal(scoreboard.size, 0);
}

/** Checks that every call was answered, every page is back or cached, and all device time was charged. */
async function checkAtRest(host: TestHost, opened: readonly DeviceClient[]): Promise<void> {
  const engine = host.host.engines[0]!;
  for (const inferlet of opened) assert.equal(inferlet.pendingCalls, 0);
  assert.equal(engine.batcher.waiting, 0);
  assert.equal(engine.spaces.size, 0);
  engine.memory.audit();
  const { pages, deviceBusyMs } = host.host.stats().models[0]!;
  assert.equal(pages.owned, 0);
  checkCharged(opened, deviceBusyMs);
}

test('prompts that are sent at once get the tokens that each would get alone, whichever inferlets and steps fail', async (t) => {
  const counts = { done: 0, cancelled: 0, failed: 0, compared: 0, saved: 0 };
  for (let seed = 0; seed < SEEDS; seed++) {
    const plot = plotOf(seed);
    const shared = await play(plot, seed, true);
    for (const [i, { tokens, end }] of shared.tellings.entries()) {
      const { prompt, cancelAfter, tokens: wanted } = plot.stories[i]!;
      const what = `seed ${seed}, story ${i}: ${end}`;
      assert.deepEqual(tokens, await shared.oracle.greedy(prompt, tokens.length), what);
      if (end === 'done') {
        assert.equal(tokens.length, wanted, what);
        counts.done++;
      } else if (cancelAfter !== undefined) counts.cancelled++;
      else {
        counts.failed++;
        // Without failing steps, only a lack of pages ends an inferlet.
        if (plot.failsOneIn === 0) assert.ok(end === 'terminated' && plot.pageCount < 100, what);
      }
    }
    if (shared.tellings.some(({ end }) => end !== 'done')) continue;
    const alone = await play(plot, seed, false);
    if (alone.tellings.some(({ end }) => end !== 'done')) continue;
    counts.compared++;
    assert.equal(
      shared.tokens + shared.hits,
      alone.tokens,
      'computed and shared tokens add up to those computed without a cache',
    );
    counts.saved += shared.hits;
  }
  t.diagnostic(`seeds 0 to ${SEEDS - 1}: ${JSON.stringify(counts)}`);
  assert.ok(counts.done > SEEDS && counts.cancelled > 0 && counts.failed > 0 && counts.saved > 0);
});

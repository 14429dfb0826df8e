import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Random } from '#test/harness/random.ts';
import type { Backend } from '../../backends/backend.ts';
import { type DeviceClient, type GpuHostConnection, type Sampler, SharedPages } from '../../protocol/client.ts';
import { Ended, take } from '../../testing/ended.ts';
import { NONE, range, samplingStep, startTestHost, type TestHost } from '../../testing/host.ts';
import { wrapBackend } from '../../testing/wrapped-backend.ts';
import { type Chapter, type Plot, plotOf, type Story } from '../testing/plot.ts';

/*
 * Inferlets that together want several times the pool make random calls: prefills that are cut, steps, runs, forks, copies, embeds, waits,
 * children, exports and hints about exports. The test closes some inferlets early. In each plot, swap has room for all pages, or for half of them, or
 * its disk fails. Each inferlet must get the tokens that it gets alone, and the oldest must finish.
 */

const SEEDS = process.env.PIE_TEST_ALL ? 160 : 10;
const PAGE_SIZE = 8;
/** Bytes of a page of the reference backend: a slot has keys and values of 2 layers × 2 heads × 8 float64 numbers. */
const PAGE_BYTES = PAGE_SIZE * 2 * 2 * 2 * 8 * 8;
const CONTEXT = 160;
/** More tokens than any chapter of a plot adds. */
const MAX_CHAPTER_TOKENS = 45;

interface StoryEnd {
  readonly tokens: readonly number[];
  readonly end: string;
  readonly why: string;
}

/** The calls of one inferlet, on one or two queues. It allocates each page when it needs it. */
class Life {
  readonly tokens: number[] = [];
  readonly #inferlet: DeviceClient;
  readonly #queue: number;
  readonly #sampler: Sampler;
  readonly #openChild: () => DeviceClient;
  #pages: number[] = [];
  #position = 0;
  #last = 1;

  constructor(inferlet: DeviceClient, sampler: Sampler, openChild: () => DeviceClient) {
    this.#inferlet = inferlet;
    this.#queue = inferlet.createQueue('tiny');
    this.#sampler = sampler;
    this.#openChild = openChild;
  }

  async live(chapters: readonly Chapter[]): Promise<void> {
    for (const chapter of chapters) {
      if (this.#position + MAX_CHAPTER_TOKENS > CONTEXT) return;
      await this.#live(chapter);
    }
  }

  async #live(chapter: Chapter): Promise<void> {
    switch (chapter.kind) {
      case 'prefill':
        return this.#step(chapter.tokens);
      case 'steps':
        for (let i = 0; i < chapter.count; i++) await this.#step([this.#last]);
        return;
      case 'run':
        return this.#run(chapter.count);
      case 'embeds':
        for (let i = 0; i < chapter.count; i++) await this.#embeds();
        return;
      case 'fork':
        return this.#fork(chapter.count);
      case 'copy':
        return this.#copy();
      case 'hint':
        return this.#hint(chapter);
      case 'wait':
        this.#inferlet.setWaiting(true);
        for (let turn = 0; turn < chapter.turns; turn++) await nextTurn();
        return;
      case 'child':
        return this.#child(chapter);
    }
  }

  #pagesFor(tokens: number): Uint32Array {
    const needed = Math.ceil((this.#position + tokens) / PAGE_SIZE) - this.#pages.length;
    if (needed > 0) this.#pages = [...this.#pages, ...take(this.#inferlet.allocatePages(this.#queue, needed))];
    return Uint32Array.from(this.#pages);
  }

  async #step(tokens: readonly number[], pages = this.#pagesFor(tokens.length), queue = this.#queue): Promise<void> {
    const position = this.#position;
    this.#position += tokens.length;
    this.#noteTokens(await this.#sampled(queue, tokens, position, pages));
  }

  /** Asks for a step of `tokens` from `position` on, over `pages`. @returns the sampled token */
  async #sampled(queue: number, tokens: readonly number[], position: number, pages: Uint32Array): Promise<Uint32Array> {
    return take(await this.#inferlet.ask(queue, samplingStep(tokens, position, pages, this.#sampler))).tokens;
  }

  async #run(maxTokens: number): Promise<void> {
    const run = this.#inferlet.run(this.#queue, {
      token: this.#last,
      position: this.#position,
      pages: this.#pagesFor(maxTokens),
      maxTokens,
      sampler: this.#sampler,
      stopTokens: NONE,
    });
    this.#position += maxTokens;
    for (let finished: string | undefined; !finished; ) {
      const chunk = take(await run.next());
      this.#noteTokens(chunk.tokens);
      finished = chunk.finished;
    }
  }

  async #embeds(): Promise<void> {
    const [inferlet, queue] = [this.#inferlet, this.#queue];
    const [input, state] = take(inferlet.allocateEmbeds(queue, 2));
    const pages = this.#pagesFor(1);
    inferlet.send(queue, {
      op: 'embed-text',
      tokens: Uint32Array.of(this.#last),
      positions: Uint32Array.of(this.#position++),
      embeds: Uint32Array.of(input!),
    });
    inferlet.send(queue, {
      op: 'forward',
      inPages: pages,
      inEmbeds: Uint32Array.of(input!),
      outPages: pages,
      outEmbeds: Uint32Array.of(state!),
    });
    const { tokens } = take(await inferlet.ask(queue, { op: 'next-distribution', embed: state!, topK: 1 }));
    inferlet.freeEmbeds(queue, Uint32Array.of(input!, state!));
    this.#noteTokens(tokens);
  }

  /** Continues in two branches at once over the same pages, and drops one of them. */
  async #fork(count: number): Promise<void> {
    const [inferlet, position, last] = [this.#inferlet, this.#position, this.#last];
    const own = this.#pagesFor(count);
    const branch = take(inferlet.sharePages(this.#queue, own));
    const other = inferlet.createQueue('tiny');
    const branched: number[] = [];
    const branching = (async () => {
      let token = (last + 1) % 96;
      for (let i = 0; i < count; i++) {
        const tokens = await this.#sampled(other, [token], position + i, branch);
        token = tokens[0]!;
        branched.push(token);
      }
    })();
    await allEnded([branching, this.#steps(count, own)]);
    this.tokens.push(...branched);
    inferlet.freePages(this.#queue, branch);
    inferlet.closeQueue(other);
  }

  async #steps(count: number, pages: Uint32Array): Promise<void> {
    for (let i = 0; i < count; i++) await this.#step([this.#last], pages);
  }

  /** Continues over copies of the last tokens with two steps, the second of which does not wait for the first. */
  async #copy(): Promise<void> {
    const [inferlet, queue] = [this.#inferlet, this.#queue];
    const copiedCount = Math.min(this.#position, 12);
    const copy = take(inferlet.allocatePages(queue, 2));
    const own = Uint32Array.from(this.#pages);
    inferlet.send(queue, {
      op: 'copy-tokens',
      sources: own,
      indices: range(this.#position - copiedCount, this.#position),
      destinations: copy,
      positions: range(0, copiedCount),
    });
    const steps = [this.#last, 7].map((token, i) => this.#sampled(queue, [token], copiedCount + i, copy));
    for (const tokens of await Promise.all(steps)) this.#noteTokens(tokens);
    inferlet.freePages(queue, copy);
  }

  /** Makes the call `control` about an export: after exporting the pages, or before removing the export. A refusal does not end the story. */
  async #hint({ name, exports, control }: Extract<Chapter, { kind: 'hint' }>): Promise<void> {
    const [inferlet, queue] = [this.#inferlet, this.#queue];
    if (exports)
      await inferlet.ask(queue, { op: 'export-pages', pages: Uint32Array.from(this.#pages), name, persistent: false });
    const outcome = await inferlet.ask(queue, { ...control, name });
    if (outcome.tag === 'err') assert.notEqual(outcome.val.tag, 'internal', outcome.val.val);
    if (!exports) await inferlet.ask(queue, { op: 'unexport', name });
  }

  /** Opens a child inferlet, which prefills and runs while this one runs. */
  async #child({ tokens, count }: Extract<Chapter, { kind: 'child' }>): Promise<void> {
    const child = this.#openChild();
    const life = new Life(child, this.#sampler, this.#openChild);
    const told = life.live([
      { kind: 'prefill', tokens },
      { kind: 'run', count },
    ]);
    try {
      await allEnded([told, this.#run(count)]);
    } finally {
      await child.close();
    }
    this.tokens.push(...life.tokens);
  }

  #noteTokens(tokens: Uint32Array): void {
    this.tokens.push(...tokens);
    this.#last = tokens.at(-1)!;
  }
}

/** Waits for all of the work, and throws the first failure only then. */
async function allEnded(work: readonly Promise<unknown>[]): Promise<void> {
  for (const each of await Promise.allSettled(work)) if (each.status === 'rejected') throw each.reason;
}

const opened: DeviceClient[] = [];

async function playStory(connection: GpuHostConnection, story: Story, arrival: number): Promise<StoryEnd> {
  const sharedPages = new SharedPages(`root-${arrival}`, 40);
  const open = (id: string): DeviceClient => {
    const inferlet = connection.openInferlet({ id, tenant: story.tenant, maxPages: 40, arrival, sharedPages });
    opened.push(inferlet);
    return inferlet;
  };
  const inferlet = open(`${arrival}`);
  let children = 0;
  const life = new Life(inferlet, story.sampler, () => open(`${arrival}-${++children}`));
  try {
    await life.live(story.chapters);
    return { tokens: life.tokens, end: 'done', why: '' };
  } catch (error) {
    if (!(error instanceof Ended)) throw error;
    return { tokens: life.tokens, end: error.error.tag, why: error.error.val };
  } finally {
    await inferlet.close();
  }
}

/** A device that works ahead and computes its steps one after another. Each begins some turns of the event loop late. */
function workAhead(inner: Backend): Backend {
  const dice = new Random(1);
  let previousStep: Promise<unknown> = Promise.resolve();
  const forward: Backend['forward'] = (batch) => {
    const computed = previousStep.then(async () => {
      for (let turns = dice.below(8); turns > 0; turns--) await nextTurn();
      return inner.forward(batch);
    });
    previousStep = computed.catch(() => undefined);
    return computed;
  };
  return wrapBackend(inner, { ahead: true, forward });
}

function hostFor(plot: Plot | undefined): Promise<TestHost> {
  const { pageCount = 400, swap = 'plenty', prefixCache = false, maxBatchTokens = 512 } = plot ?? {};
  const swapPages = { plenty: 4000, half: pageCount, 'failing disk': pageCount }[swap];
  return startTestHost({
    ...(plot?.ahead && { wrap: workAhead }),
    seed: 3,
    pageSize: PAGE_SIZE,
    pageCount,
    shape: { contextLength: CONTEXT },
    kv: true,
    model: {
      prefixCache,
      maxBatchTokens,
      swapMemoryBytes: swapPages * (PAGE_BYTES / 2),
      swapDiskBytes: swapPages * (PAGE_BYTES / 2),
    },
  });
}

/** Makes the disk refuse every page: a file is where the directory should be. */
function breakDisk(host: TestHost): void {
  const directory = join(host.directory, 'kv');
  rmSync(directory, { recursive: true, force: true });
  writeFileSync(directory, '');
}

async function play(plot: Plot): Promise<{ ends: StoryEnd[]; preemptions: number; terminations: number }> {
  await using host = await hostFor(plot);
  if (plot.swap === 'failing disk') breakDisk(host);
  const connection = await host.connect();
  opened.length = 0;
  const ends = await Promise.all(
    plot.stories.map(async (story, i) => {
      for (let turn = 0; turn < story.delay; turn++) await nextTurn();
      const end = playStory(connection, story, i);
      if (story.closeAfter !== undefined) {
        // `playStory` has just opened the inferlet of this story.
        const inferlet = opened.at(-1)!;
        for (let turn = 0; turn < story.closeAfter; turn++) await nextTurn();
        await inferlet.close();
      }
      return end;
    }),
  );
  for (const inferlet of opened) await inferlet.close();
  for (const inferlet of opened) assert.equal(inferlet.pendingCalls, 0);
  const engine = host.host.engines[0]!;
  for (const { tenant } of plot.stories)
    for (const { name } of engine.registry.listExports(tenant)) engine.registry.unexport(tenant, name);
  assert.equal(engine.batcher.waiting, 0);
  assert.equal(engine.batcher.queues, 0);
  assert.equal(engine.spaces.size, 0);
  engine.memory.audit();
  // Nothing but the prefix cache holds a page, so the audit has compared all pages in swap with those of the cache.
  assert.deepEqual([engine.memory.spaces.size, engine.memory.snapshots.held.size], [0, 0]);
  const { owned, swappedOut, free, cached, total, preemptions, terminations, preempted } = engine.memory.stats();
  assert.deepEqual([owned, free + cached, preempted], [0, total, 0]);
  if (!plot.prefixCache) assert.equal(swappedOut, 0);
  return { ends, preemptions, terminations };
}

/** The end of each story when it runs alone. */
async function alone({ stories }: Plot): Promise<StoryEnd[]> {
  await using host = await hostFor(undefined);
  const connection = await host.connect();
  const ends: StoryEnd[] = [];
  for (const [i, story] of stories.entries()) ends.push(await playStory(connection, story, i));
  return ends;
}

test('each inferlet gets the tokens that it gets alone, whatever is preempted, swapped, closed or refused by a disk', {
  timeout: 280_000,
}, async (t) => {
  const counts = { done: 0, closed: 0, terminated: 0, preemptions: 0 };
  for (let seed = 0; seed < SEEDS; seed++) {
    const plot = plotOf(seed);
    const [{ ends, preemptions, terminations }, expected] = [await play(plot), await alone(plot)];
    for (const [i, { tokens, end, why }] of ends.entries()) {
      const what = `seed ${seed}, story ${i} (${plot.swap}): ${end} ${why}`;
      assert.equal(expected[i]?.end, 'done', `alone, ${what} ${expected[i]?.why}`);
      assert.deepEqual(tokens, expected[i]!.tokens.slice(0, tokens.length), what);
      if (end === 'done') {
        assert.equal(tokens.length, expected[i]?.tokens.length, what);
        counts.done++;
      } else if (end === 'terminated') {
        assert.match(why, /^memory pressure: /, what);
        assert.ok(i > 0, `the oldest was ended: ${what}`);
        counts.terminated++;
      } else {
        assert.ok(plot.stories[i]?.closeAfter !== undefined, what);
        counts.closed++;
      }
    }
    if (plot.swap === 'plenty')
      assert.equal(terminations, 0, `seed ${seed}: swap had room: ${ends.map(({ why }) => why)}`);
    counts.preemptions += preemptions;
  }
  t.diagnostic(`seeds 0 to ${SEEDS - 1}: ${JSON.stringify(counts)}`);
  assert.ok(counts.preemptions > SEEDS && counts.terminated > 0 && counts.closed > 0);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Random } from '#test/harness/random.ts';
import type { Backend, SequenceInput } from '../../backends/backend.ts';
import { InvalidInput } from '../../backends/check.ts';
import type { DeviceClient, Outcome, Sampler, StepResult } from '../../protocol/client.ts';
import { GREEDY, NONE, range, startTestHost } from '../../testing/host.ts';
import { checkDistinctWrites, wrapBackend } from '../../testing/wrapped-backend.ts';
import { nextTurn } from '../sharing/thread-share.ts';

/*
 * The inferlets mostly ask for one token after another. Sometimes they do something else: forks, masks, copied slots, narrower contexts, other tokens
 * and samplers, calls that do not wait for each other, two texts at once. All answers must be the same with and without guessed steps.
 */

const SEEDS = process.env.PIE_TEST_ALL ? 60 : 12;
const PAGE_SIZE = 8;
const MAX_TEXT_TOKENS = 60;

/** A text in pages of its own. */
interface Text {
  /** The queue of its calls. */
  readonly queue: number;
  pages: Uint32Array;
  readonly tokens: number[];
  /** True when a page is allocated only when the others are full. */
  readonly isPaged: boolean;
}

/** Changes of a plain step. */
interface Changes {
  readonly queue?: number;
  readonly inPages?: Uint32Array;
  readonly sampler?: Sampler;
}

/** An inferlet whose calls and pauses follow from its seed. */
class Life {
  /** The host's answers, in order. */
  readonly log: string[] = [];
  readonly #inferlet: DeviceClient;
  readonly #queues: readonly [number, number];
  readonly #dice: Random;
  /** Decides the pauses between calls. */
  readonly #pace: Random;
  readonly #sampler: Sampler;
  readonly #texts: Text[] = [];

  constructor(inferlet: DeviceClient, seed: number) {
    this.#inferlet = inferlet;
    this.#queues = [inferlet.createQueue('tiny'), inferlet.createQueue('tiny')];
    this.#dice = new Random(seed);
    this.#pace = new Random(seed + 77);
    this.#sampler = this.#dice.below(2) === 0 ? GREEDY : { temperature: 0.9, topK: 12, topP: 0.95, minP: 0, seed };
  }

  async live(): Promise<string[]> {
    await this.#begin();
    for (let turn = 0; turn < 26; turn++) {
      const text = this.#texts[this.#dice.below(this.#texts.length)];
      if (!text || text.tokens.length > MAX_TEXT_TOKENS) await this.#begin();
      else await this.#act(text);
      if (this.#pace.below(6) === 0) for (let i = this.#pace.below(60); i > 0; i--) await nextTurn();
    }
    for (const text of this.#texts)
      this.#note(await this.#ask(text, { output: { tag: 'distributions', val: 3 }, outPages: NONE }));
    return this.log;
  }

  async #begin(): Promise<void> {
    const isPaged = this.#dice.below(2) === 0;
    const isCommon = this.#dice.below(2) === 0;
    const length = 5 + this.#dice.below(14);
    const tokens = Array.from({ length }, (_, i) => (isCommon ? (i * 5) % 90 : this.#dice.below(90)));
    const queue = this.#nextQueue();
    const pages = this.#inferlet.allocatePages(queue, isPaged ? Math.ceil(length / PAGE_SIZE) : 9);
    if (pages.tag === 'err') return;
    const text = { queue, pages: pages.val, tokens, isPaged };
    this.#texts.push(text);
    this.#take(text, await this.#ask(text, {}, { count: length }));
  }

  async #act(text: Text): Promise<void> {
    const kind = this.#dice.below(16);
    const { queue, pages, tokens } = text;
    if (kind < 7) {
      for (let steps = 2 + this.#dice.below(6); steps > 0; steps--) {
        this.#take(text, await this.#step(text));
        for (let turns = this.#pace.below(3) * this.#pace.below(4); turns > 0; turns--) await nextTurn();
      }
    } else if (kind === 7 && this.#texts.length < 4) {
      const shared = this.#inferlet.sharePages(queue, pages);
      if (shared.tag === 'ok')
        this.#texts.push({ ...text, queue: this.#nextQueue(), pages: shared.val, tokens: [...tokens] });
    } else if (kind === 8) {
      this.#inferlet.send(queue, {
        op: 'mask-page',
        page: pages[this.#dice.below(Math.min(2, pages.length))]!,
        slots: this.#dice.below(8),
      });
    } else if (kind === 9) {
      tokens[tokens.length - 1] = this.#dice.below(90);
      this.#take(text, await this.#step(text));
    } else if (kind === 10) {
      // Fewer pages than the guess has: only a comparison of their slots shows that the guess is wrong.
      this.#take(text, await this.#step(text, { inPages: pages.slice(1) }));
    } else if (kind === 11) {
      this.#take(text, await this.#step(text, { sampler: { ...this.#sampler, temperature: 0.5, topK: 3, seed: 9 } }));
    } else if (kind === 12) {
      // The second step, on either queue, does not wait for the token of the first one.
      const first = this.#step(text);
      tokens.push(this.#dice.below(90));
      const second = this.#step(text, { queue: this.#queues[this.#dice.below(2)]! });
      this.#note(await first);
      this.#take(text, await second);
    } else if (kind === 13) {
      const from = this.#texts[this.#dice.below(this.#texts.length)]!;
      const count = 1 + this.#dice.below(4);
      const slots = { sourceOffset: 0, destination: pages[0]!, destinationOffset: 0, count, shift: 0 };
      if (from !== text) this.#inferlet.send(queue, { op: 'copy-slots', source: from.pages[0]!, ...slots });
      this.#take(text, await this.#step(text));
    } else await this.#stepBoth(text);
  }

  /** Continues a text of each queue at the same time. */
  async #stepBoth(text: Text): Promise<void> {
    const other = this.#texts.find(({ queue, tokens }) => queue !== text.queue && tokens.length <= MAX_TEXT_TOKENS);
    if (!other) return;
    for (let rounds = 4 + this.#dice.below(5); rounds > 0; rounds--) {
      const steps = [this.#step(text), this.#step(other)];
      for (const [i, outcome] of (await Promise.all(steps)).entries()) this.#take([text, other][i]!, outcome);
      for (let turns = this.#pace.below(3) * this.#pace.below(4); turns > 0; turns--) await nextTurn();
    }
  }

  /** Texts use the two queues in turn. */
  #nextQueue(): number {
    return this.#queues[this.#texts.length % 2]!;
  }

  #step(text: Text, { queue, sampler = this.#sampler, ...changes }: Changes = {}): Promise<Outcome<StepResult>> {
    return this.#ask(text, { ...changes, output: { tag: 'sample', val: sampler } }, { queue });
  }

  #ask(text: Text, changes: object, { count = 1, queue = text.queue } = {}): Promise<Outcome<StepResult>> {
    const { tokens } = text;
    const from = tokens.length - count;
    if (text.isPaged && tokens.length > text.pages.length * PAGE_SIZE) {
      const more = this.#inferlet.allocatePages(queue, 1);
      if (more.tag === 'ok') text.pages = Uint32Array.of(...text.pages, ...more.val);
    }
    const { pages } = text;
    const outPages = text.isPaged ? pages.slice(Math.floor(from / PAGE_SIZE)) : pages;
    return this.#inferlet.ask(queue, {
      op: 'step',
      request: {
        tokens: Uint32Array.from(tokens.slice(from)),
        positions: range(from, tokens.length),
        inPages: pages,
        outPages,
        mask: undefined,
        rows: 1,
        output: { tag: 'sample', val: this.#sampler },
        ...changes,
      },
    });
  }

  #take({ tokens }: Text, outcome: Outcome<StepResult>): void {
    this.#note(outcome);
    // After an error, the text goes on with an arbitrary token.
    tokens.push(outcome.tag === 'ok' ? outcome.val.tokens[0]! : 3);
  }

  #note(outcome: Outcome<StepResult>): void {
    if (outcome.tag === 'err') this.log.push(`${outcome.val.tag}: ${outcome.val.val}`);
    else {
      const [distribution] = outcome.val.distributions;
      const numbers = distribution && [...distribution.logProbabilities].map((value) => value.toFixed(4));
      this.log.push(numbers ? numbers.join() : String(outcome.val.tokens[0]));
    }
  }
}

interface Played {
  readonly logs: readonly (readonly string[])[];
  readonly stepsAhead: number;
  /** Guessed steps with more guesses than there are inferlets, so that both queues of an inferlet have a guess. */
  readonly stepsOfBothQueues: number;
}

async function play(seed: number, ahead: boolean): Promise<Played> {
  const plot = new Random(seed);
  const dice = new Random(seed + 1000);
  const refusedOfEight = plot.below(3);
  const clashes: unknown[] = [];
  let stepsOfBothQueues = 0;
  let previousStep: Promise<unknown> = Promise.resolve();
  const wrap = (inner: Backend): Backend =>
    wrapBackend(inner, {
      ahead,
      async forward(batch: readonly SequenceInput[]) {
        try {
          checkDistinctWrites(batch);
        } catch (error) {
          // Check the list at the end: an error thrown here would only make the host compute the guessed step's calls anew.
          clashes.push(error);
        }
        const guessedCount = batch.filter(({ inputs }) => inputs.kind === 'picked').length;
        if (guessedCount > lives.length) stepsOfBothQueues++;
        if (guessedCount > 0 && dice.below(8) < refusedOfEight) throw new InvalidInput('not now');
        const computing = inner.forward(batch);
        const waits = Promise.allSettled([previousStep, computing]);
        previousStep = waits.then(async () => {
          for (let turns = dice.below(16); turns > 0; turns--) await nextTurn();
        });
        await previousStep;
        return computing;
      },
    });
  const model = { prefixCache: plot.below(3) > 0 };
  await using host = await startTestHost({ wrap, seed: 1, pageSize: PAGE_SIZE, pageCount: 400, model });
  const connection = await host.connect();
  const lives = Array.from({ length: 1 + plot.below(3) }, (_, i) => {
    const inferlet = connection.openInferlet({ id: `${i}`, maxPages: 120, arrival: i });
    return { inferlet, life: new Life(inferlet, seed * 10 + i) };
  });
  const logs = await Promise.all(lives.map(({ life }) => life.live()));
  await Promise.all(lives.map(({ inferlet }) => inferlet.close()));
  const [engine] = host.host.engines;
  assert.deepEqual(clashes, []);
  engine!.memory.audit();
  assert.equal(engine!.batcher.waiting, 0);
  const { stepsAhead, pages } = host.host.stats().models[0]!;
  assert.equal(pages.owned, 0);
  return { logs, stepsAhead, stepsOfBothQueues };
}

test('guessed steps change no answer, whatever an inferlet asks for next', async () => {
  let [stepsAhead, stepsOfBothQueues] = [0, 0];
  for (let seed = 0; seed < SEEDS; seed++) {
    const guessed = await play(seed, true);
    const plain = await play(seed, false);
    assert.deepEqual(guessed.logs, plain.logs, `seed ${seed}`);
    assert.equal(plain.stepsAhead, 0);
    stepsAhead += guessed.stepsAhead;
    stepsOfBothQueues += guessed.stepsOfBothQueues;
  }
  assert.ok(stepsAhead > SEEDS, `${stepsAhead} guessed steps`);
  assert.ok(stepsOfBothQueues > 0, 'both queues of an inferlet had guesses in one step');
});

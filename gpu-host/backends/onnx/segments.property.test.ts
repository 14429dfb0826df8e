import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import { randomModel } from '../../models/testing/random-model.ts';
import type { SequenceInput } from '../backend.ts';
import { createReferenceBackend } from '../reference/index.ts';
import { type Step, take } from '../testing/mask-kinds.ts';
import { Random, relativeError, sequence, values } from '../testing/scenario.ts';
import { createOnnxBackend } from './index.ts';

const POOL = { pageSize: 16, pageCount: 256 };
const TOLERANCE = 1e-4;
const STEPS = 60;
const MOST_SEQUENCES = 8;
const LONGEST = 320;
/** Shapes whose keys and values are large enough that segments pay in small batches. */
const SHAPES: Readonly<Record<string, Partial<ModelConfig>>> = {
  'one head per query': { heads: 4, kvHeads: 4, headDim: 64, contextLength: 1024 },
  'grouped queries': { heads: 8, kvHeads: 4, headDim: 64, contextLength: 1024 },
};

/** Sequences over pages, as the memory above a backend holds them: sequences come, go and fork, and their pages are overwritten and moved. */
class Schedule {
  readonly #config: ModelConfig;
  readonly #random: Random;
  readonly #free: number[];
  /** For each sequence, the slots of its context in order, and the free slots (`room`) of its last page. */
  #sequences: { readonly context: number[]; readonly room: number[] }[] = [];
  /** Number of sequences that hold each page. */
  readonly #holders = new Int32Array(POOL.pageCount);

  constructor(config: ModelConfig, seed: number) {
    this.#config = config;
    this.#random = new Random(seed);
    this.#free = [...this.#random.permutation(POOL.pageCount)];
  }

  next(): Step[] {
    const chance = this.#random.next();
    if (chance < 0.06) return this.#fork();
    if (chance < 0.12) return this.#movePage();
    if (chance < 0.18) return this.#overwrite();
    if (chance < 0.22) this.#leave(this.#random.below(this.#sequences.length));
    return [{ kind: 'forward', batch: this.#batch() }];
  }

  /** Decode steps of most sequences, now and then with several inputs, a mask or attention; and the prompts of new sequences. */
  #batch(): SequenceInput[] {
    const random = this.#random;
    this.#sequences.forEach(({ context }, i) => {
      if (context.length > LONGEST) this.#leave(i);
    });
    const batch = this.#sequences.filter(() => random.next() < 0.9).map((each) => this.#step(each));
    const joins = batch.length === 0 || random.next() < 0.3;
    if (joins && this.#sequences.length < MOST_SEQUENCES) {
      const each = { context: [], room: [] };
      this.#sequences.push(each);
      batch.push(this.#input(each, 60 + random.below(150)));
    }
    return batch;
  }

  #step(each: { readonly context: number[]; readonly room: number[] }): SequenceInput {
    const random = this.#random;
    const inputs = random.next() < 0.05 ? 3 : 1;
    const columns = inputs * (each.context.length + inputs);
    const seen = () => (random.next() < 0.5 ? 1 : 0);
    if (random.next() < 0.05) return this.#input(each, inputs, { mask: Uint8Array.from({ length: columns }, seen) });
    return this.#input(each, inputs, random.next() < 0.03 ? { attention: true } : {});
  }

  #input(
    { context, room }: { readonly context: number[]; readonly room: number[] },
    inputs: number,
    rest: Partial<SequenceInput> = {},
  ): SequenceInput {
    while (room.length < inputs) room.push(...this.#page());
    const writes = Uint32Array.from(room.splice(0, inputs));
    const before = Uint32Array.from(context);
    context.push(...writes);
    return sequence(this.#config, this.#random.tokens(this.#config, inputs), { context: before, writes, ...rest });
  }

  /** Adds a sequence that reads the full pages of another, and gets a copy of its last page. */
  #fork(): Step[] {
    if (this.#sequences.length === 0 || this.#sequences.length >= MOST_SEQUENCES) return [];
    const { context } = this.#sequences[this.#random.below(this.#sequences.length)];
    const full = context.length - (context.length % POOL.pageSize);
    for (let at = 0; at < full; at += POOL.pageSize) this.#holders[pageOf(context[at])]++;
    const page = this.#page();
    const sources = Uint32Array.from(context.slice(full));
    const own = page.slice(0, sources.length);
    this.#sequences.push({ context: [...context.slice(0, full), ...own], room: page.slice(sources.length) });
    return [{ kind: 'copy', sources, destinations: Uint32Array.from(own) }];
  }

  /** Moves a page of a context to a free page. The old page becomes free. */
  #movePage(): Step[] {
    const from = this.#anyPage();
    if (from === null) return [];
    const [first] = this.#page();
    const to = pageOf(first);
    const moved = (slot: number) => (pageOf(slot) === from ? to * POOL.pageSize + (slot % POOL.pageSize) : slot);
    this.#sequences = this.#sequences.map(({ context, room }) => ({
      context: context.map(moved),
      room: room.map(moved),
    }));
    this.#holders[to] = this.#holders[from];
    this.#holders[from] = 0;
    this.#free.unshift(from);
    return [{ kind: 'move-page', from, to }];
  }

  /** Some slots of a context get the keys and values of others, rotated to other positions. */
  #overwrite(): Step[] {
    if (this.#sequences.length === 0) return [];
    const { context } = this.#sequences[this.#random.below(this.#sequences.length)];
    const some = (): Uint32Array => {
      const start = this.#random.below(context.length - 4);
      return Uint32Array.from(context.slice(start, start + 4));
    };
    return [{ kind: 'copy', sources: some(), destinations: some(), shifts: new Int32Array(4).fill(3) }];
  }

  #leave(index: number): void {
    const [removed] = this.#sequences.splice(index, 1);
    if (removed === undefined) return;
    for (const page of new Set([...removed.context, ...removed.room].map(pageOf))) {
      this.#holders[page]--;
      if (this.#holders[page] === 0) this.#free.unshift(page);
    }
  }

  #anyPage(): number | null {
    if (this.#sequences.length === 0) return null;
    const { context } = this.#sequences[this.#random.below(this.#sequences.length)];
    return pageOf(context[this.#random.below(context.length)]);
  }

  #page(): number[] {
    const page = this.#free.pop();
    assert.ok(page !== undefined);
    this.#holders[page] = 1;
    return Array.from({ length: POOL.pageSize }, (_, i) => page * POOL.pageSize + i);
  }
}

function pageOf(slot: number): number {
  return Math.floor(slot / POOL.pageSize);
}

for (const [seed, [shape, config]] of Object.entries(SHAPES).entries()) {
  test(`sequences that come, go, fork and move read what the pool holds: ${shape}, seed ${seed}`, async (context) => {
    const directory = await mkdtemp(join(tmpdir(), 'pie-segments-'));
    const model = await randomModel(directory, config, 31);
    const reference = await createReferenceBackend(model, POOL);
    const onnx = await createOnnxBackend(model, { ...POOL, bits: 32, threads: 1 });
    try {
      const schedule = new Schedule(model.config, seed);
      let worst = 0;
      for (let step = 0; step < STEPS; step++) {
        const steps = schedule.next();
        const expected = await take(reference, steps);
        const actual = await take(onnx, steps);
        expected.forEach((each, i) => {
          const error = Math.max(
            relativeError(values(actual[i]), values(each)),
            relativeError(actual[i].attention ?? new Float32Array(), each.attention ?? new Float32Array()),
          );
          assert.ok(error <= TOLERANCE, `step ${step}, sequence ${i}: relative error ${error}`);
          worst = Math.max(worst, error);
        });
      }
      context.diagnostic(`${onnx.segmentRuns} runs over segments, largest relative error ${worst.toExponential(1)}`);
      assert.ok(onnx.segmentRuns >= STEPS / 4, `${onnx.segmentRuns} runs over segments`);
    } finally {
      await onnx.dispose();
      await reference.dispose();
      await rm(directory, { recursive: true, force: true });
    }
  });
}

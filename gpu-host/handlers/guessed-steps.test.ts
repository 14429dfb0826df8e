import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { DeviceClient, GpuHostConnection, Sampler } from '../protocol/client.ts';
import { GREEDY, must, NONE, Oracle, range, startTestHost, type TestHost } from '../testing/host.ts';
import { SteppedDevice } from '../testing/stepped-device.ts';
import { PROMPT } from '../testing/workbench.ts';
import { wrapBackend } from '../testing/wrapped-backend.ts';

const PAGE_SIZE = 8;

/** An inferlet that decides after each token what it asks next. */
class Stepper {
  readonly inferlet: DeviceClient;
  readonly queue: number;
  pages: Uint32Array;
  readonly text: number[];

  constructor(inferlet: DeviceClient, text: readonly number[], pageCount = 10) {
    this.inferlet = inferlet;
    this.queue = inferlet.createQueue('tiny');
    this.pages = must(inferlet.allocatePages(this.queue, pageCount));
    this.text = [...text];
  }

  /** Computes the last `count` tokens of the text, and appends the sampled one. */
  async step(count = 1, { sampler = GREEDY, queue = this.queue } = {}) {
    const from = this.text.length - count;
    const result = must(
      await this.inferlet.ask(queue, {
        op: 'step',
        request: {
          ...{ tokens: Uint32Array.from(this.text.slice(from)), positions: range(from, this.text.length) },
          ...{ outPages: this.outPages(from), inPages: this.pages, mask: undefined, rows: 1 },
          output: { tag: 'sample', val: sampler },
        },
      }),
    );
    const token = result.tokens[0] as number;
    this.text.push(token);
    return token;
  }

  /** The pages that tokens from `from` on may fill. */
  protected outPages(_from: number): Uint32Array {
    return this.pages;
  }
}

/** An inferlet that allocates a page when its pages are full. */
class PageStepper extends Stepper {
  constructor(inferlet: DeviceClient, text: readonly number[]) {
    super(inferlet, text, Math.ceil(text.length / PAGE_SIZE));
  }

  protected override outPages(from: number): Uint32Array {
    if (this.text.length > this.pages.length * PAGE_SIZE)
      this.pages = Uint32Array.of(...this.pages, ...must(this.inferlet.allocatePages(this.queue, 1)));
    return this.pages.slice(Math.floor(from / PAGE_SIZE));
  }
}

interface Stage {
  readonly device: SteppedDevice;
  readonly host: TestHost;
  readonly oracle: Oracle;
  readonly stepper: Stepper;
  /** Another one than the stepper's. */
  readonly connection: GpuHostConnection;
  readonly stepsAhead: () => number;
  /** Ends step after step until `promise` is settled. */
  readonly ending: <T>(promise: Promise<T>) => Promise<T>;
}

/** Runs `play` with an inferlet that has asked for four steps, each right after the one before, while the device computes the guessed fifth. */
async function withStepper(play: (stage: Stage) => Promise<void>, { failsAt = 0 } = {}): Promise<void> {
  const device = new SteppedDevice();
  device.failsAt = failsAt;
  await using host = await startTestHost({ wrap: device.wrap });
  const oracle = await Oracle.of(host.model);
  const connection = await host.connect();
  const stepper = new Stepper(connection.openInferlet({ id: 'steps', maxPages: 20, arrival: 1 }), PROMPT);
  try {
    for (let i = 0; i < 4; i++) {
      const told = stepper.step(i === 0 ? PROMPT.length : 1);
      await device.reaches(i + 1);
      assert.equal(device.guesses, 0);
      device.end();
      await told;
    }
    await device.reaches(5);
    assert.equal(device.guesses, 1);
    const other = await host.connect();
    const ending = <T>(promise: Promise<T>): Promise<T> => device.endUntil(other, promise);
    const stepsAhead = (): number => host.host.stats().models[0]?.stepsAhead ?? 0;
    await play({ device, host, oracle, stepper, connection: other, stepsAhead, ending });
    await ending(stepper.inferlet.close());
    host.host.engines[0]?.memory.check();
    assert.equal(host.host.stats().models[0]?.pages.owned, 0);
  } finally {
    device.free();
  }
}

test('after some steps in a row the next one is handed over before its call has come, and the call takes the result', async () => {
  await withStepper(async ({ device, oracle, stepper, stepsAhead, ending }) => {
    let told = stepper.step();
    await device.reaches(6);
    assert.equal(device.underWay, 2, 'the call has come: the step after it is handed over');
    for (let step = 7; step < 30; step++) {
      device.end();
      await told;
      told = stepper.step();
      await device.reaches(step);
      assert.equal(device.underWay, 2);
    }
    await ending(told);
    assert.deepEqual(
      stepper.text.slice(PROMPT.length),
      await oracle.greedy(PROMPT, stepper.text.length - PROMPT.length),
    );
    assert.ok(stepsAhead() >= 24);
  });
});

test('a sampled token is the same with and without a guess', async () => {
  const sampler: Sampler = { temperature: 0.9, topK: 20, topP: 0.95, minP: 0, seed: 7 };
  const texts: number[][] = [];
  for (const ahead of [true, false]) {
    await using host = await startTestHost({ wrap: (inner) => wrapBackend(inner, { ahead }) });
    const connection = await host.connect();
    const stepper = new Stepper(connection.openInferlet({ id: 'steps', maxPages: 20, arrival: 1 }), PROMPT);
    await stepper.step(PROMPT.length, { sampler });
    for (let i = 0; i < 30; i++) await stepper.step(1, { sampler });
    texts.push(stepper.text);
  }
  assert.deepEqual(texts[0], texts[1]);
});

test('a call that asks for anything else gets what it asked for, and so do those after it', async () => {
  const different: Record<string, (stepper: Stepper) => Promise<number>> = {
    'another token': (stepper) => {
      stepper.text[stepper.text.length - 1] = (stepper.text.at(-1)! + 1) % 90;
      return stepper.step();
    },
    'two tokens': (stepper) => {
      stepper.text.push(5);
      return stepper.step(2);
    },
    'another sampler': (stepper) => stepper.step(1, { sampler: { ...GREEDY, temperature: 1e-6, topK: 1 } }),
  };
  for (const [what, ask] of Object.entries(different)) {
    await withStepper(async ({ oracle, stepper, ending }) => {
      const token = await ending(ask(stepper));
      assert.deepEqual([token], await oracle.greedy(stepper.text.slice(0, -1), 1), what);
      for (let i = 0; i < 8; i++) await ending(stepper.step());
      assert.deepEqual(stepper.text.slice(-8), await oracle.greedy(stepper.text.slice(0, -8), 8), what);
    });
  }
});

test('a call that comes a little after the guessed step has ended takes its result', async (t) => {
  await withStepper(async ({ device, oracle, stepper, stepsAhead, connection, ending }) => {
    // The clock stands still: the device waits for the call until it has come.
    const nowMs = performance.now() + 100;
    const clock = t.mock.method(performance, 'now', () => nowMs);
    device.end();
    while (stepsAhead() === 0) await connection.stats();
    await ending(stepper.step());
    clock.mock.restore();
    assert.equal(device.batches.length - device.guesses, 4, 'the call was not computed again');
    assert.deepEqual(stepper.text.slice(PROMPT.length), await oracle.greedy(PROMPT, 5));
  });
});

test('a call that comes long after the guessed step has ended is computed as if there had been none', async () => {
  await withStepper(async ({ device, oracle, stepper, ending }) => {
    device.end();
    await sleep(100);
    await ending(stepper.step());
    assert.deepEqual(device.batches[5]?.[0]?.inputs, { kind: 'tokens', tokens: Uint32Array.of(stepper.text.at(-2)!) });
    for (let i = 0; i < 3; i++) await ending(stepper.step());
    assert.deepEqual(stepper.text.slice(PROMPT.length), await oracle.greedy(PROMPT, 8));
  });
});

test('an inferlet that ends while its next step is guessed gives its pages back', async () => {
  await withStepper(async ({ device, host, stepper, connection, ending }) => {
    await ending(stepper.inferlet.close());
    while (host.host.stats().models[0]!.pages.owned > 0) {
      device.end();
      await connection.stats();
    }
    assert.equal(device.batches.length, 5, 'no step is handed over for it any more');
  });
});

test('a guessed step that fails is no one’s failure: its call is computed anew', async () => {
  for (const hasCome of [false, true]) {
    const play = async ({ device, host, oracle, stepper, ending }: Stage): Promise<void> => {
      let told: Promise<unknown> = Promise.resolve();
      if (hasCome) {
        told = stepper.step();
        await device.reaches(6);
      }
      device.end();
      await ending(told);
      for (let i = 0; i < 3; i++) await ending(stepper.step());
      assert.deepEqual(stepper.text.slice(PROMPT.length), await oracle.greedy(PROMPT, hasCome ? 8 : 7));
      assert.equal(host.host.engines[0]!.stats.failedCalls, 0);
    };
    await withStepper(play, { failsAt: 5 });
  }
});

test('a call of another inferlet waits for at most the guessed step under way', async () => {
  await withStepper(async ({ device, oracle, stepper, connection, ending }) => {
    const other = new Stepper(connection.openInferlet({ id: 'other', maxPages: 20, arrival: 2 }), PROMPT.slice(1));
    const first = other.step(PROMPT.length - 1);
    await connection.stats();
    const told = stepper.step();
    await connection.stats();
    assert.equal(device.batches.length, 5, 'nothing is handed over ahead of the other call');
    device.end();
    await device.reaches(6);
    assert.ok(
      device.batches[5]!.some(({ positions }) => positions.length > 1),
      'the other call goes next',
    );
    await ending(Promise.all([told, first]));
    assert.deepEqual(other.text.slice(PROMPT.length - 1), await oracle.greedy(PROMPT.slice(1), 1));
    assert.deepEqual(stepper.text.slice(PROMPT.length), await oracle.greedy(PROMPT, 5));
    await ending(other.inferlet.close());
  });
});

test('a call that asks for anything else does not wait for one that cannot come', async (t) => {
  await withStepper(async ({ device, stepper, connection }) => {
    stepper.text.push(5);
    const told = stepper.step(2);
    await connection.stats();
    // The clock stands still: a wait would not end.
    const nowMs = performance.now() + 100;
    const clock = t.mock.method(performance, 'now', () => nowMs);
    device.end();
    await device.reaches(6);
    clock.mock.restore();
    device.free();
    await told;
  });
});

/** Lets a stepper and another inferlet, which does `beside`, go on in the same steps. @returns the number of guessed steps until it is done */
async function guessesBeside(
  beside: (other: Stepper, round: number, device: SteppedDevice) => Promise<unknown>,
  rounds: number,
): Promise<number> {
  const device = new SteppedDevice();
  await using host = await startTestHost({ wrap: device.wrap, model: { maxBatchTokens: 8 } });
  const connection = await host.connect();
  const [one, other] = [1, 2].map((arrival) => {
    const inferlet = connection.openInferlet({ id: `${arrival}`, maxPages: 20, arrival });
    return new Stepper(inferlet, PROMPT.slice(0, 3));
  }) as [Stepper, Stepper];
  const second = await host.connect();
  try {
    await device.endUntil(second, one.step(3));
    for (let round = 0; round < rounds; round++)
      await device.endUntil(second, Promise.all([one.step(), beside(other, round, device)]));
    return device.guesses;
  } finally {
    device.free();
  }
}

/** Fills frames with finished prefixes that no inferlet holds. */
async function fillWithPrefixes(connection: GpuHostConnection, device: SteppedDevice, second: GpuHostConnection) {
  const text = Array.from({ length: 12 * PAGE_SIZE - 1 }, (_, i) => PROMPT[i % PROMPT.length]!);
  const before = new Stepper(connection.openInferlet({ id: 'before', maxPages: 20, arrival: 0 }), text, 12);
  await device.endUntil(second, before.step(text.length));
  await device.endUntil(second, before.inferlet.close());
}

for (const pool of ['free', 'cached'] as const) {
  test(`inferlets that allocate page after page are guessed across the ends of their pages, with ${pool} frames`, async () => {
    const device = new SteppedDevice();
    await using host = await startTestHost({ wrap: device.wrap, pageSize: PAGE_SIZE, pageCount: 16 });
    const oracle = await Oracle.of(host.model);
    const connection = await host.connect();
    const second = await host.connect();
    const cached = (): number => host.host.stats().models[0]!.pages.cached;
    try {
      if (pool === 'cached') await fillWithPrefixes(connection, device, second);
      const before = cached();
      assert.equal(before, pool === 'cached' ? 11 : 0);
      const prompts = [PROMPT.slice(1, 4), PROMPT.slice(1, 7)];
      const steppers = prompts.map((prompt, i) => {
        const inferlet = connection.openInferlet({ id: `${i}`, maxPages: 20, arrival: i + 1 });
        return new PageStepper(inferlet, prompt);
      });
      await device.endUntil(second, Promise.all(steppers.map((stepper) => stepper.step(stepper.text.length))));
      for (let round = 0; round < 40; round++)
        await device.endUntil(second, Promise.all(steppers.map((stepper) => stepper.step())));
      assert.ok(device.guesses >= 35, `${device.guesses} guessed steps in 40`);
      for (const [i, prompt] of prompts.entries())
        assert.deepEqual(steppers[i]!.text.slice(prompt.length), await oracle.greedy(prompt, 41));
      for (const { inferlet } of steppers) await device.endUntil(second, inferlet.close());
      host.host.engines[0]!.memory.audit();
      assert.equal(host.host.stats().models[0]!.pages.owned, 0);
    } finally {
      device.free();
    }
  });
}

/** Lets an inferlet that has the device to itself step until its text has `length` tokens and the next step is guessed. */
async function stepTo(length: number, stepper: Stepper, device: SteppedDevice): Promise<void> {
  const prompt = stepper.text.length;
  for (let steps = 1; stepper.text.length < length; steps++) {
    const told = stepper.step(steps === 1 ? prompt : 1);
    await device.reaches(steps);
    device.end();
    await told;
  }
  await device.reaches(length - prompt + 1);
}

test('a page that was spared and is not allocated goes back', async () => {
  const device = new SteppedDevice();
  await using host = await startTestHost({ wrap: device.wrap, pageSize: PAGE_SIZE });
  const oracle = await Oracle.of(host.model);
  const connection = await host.connect();
  const second = await host.connect();
  const owned = (): number => host.host.stats().models[0]!.pages.owned;
  try {
    const prompt = PROMPT.slice(1, 4);
    const stepper = new PageStepper(connection.openInferlet({ id: 'steps', maxPages: 20, arrival: 1 }), prompt);
    await stepTo(PAGE_SIZE + 1, stepper, device);
    assert.deepEqual([device.underWay, owned()], [1, 2]);
    device.end();
    while (owned() > 1) await second.stats();
    while (stepper.text.length < 3 * PAGE_SIZE) await device.endUntil(second, stepper.step());
    assert.deepEqual(stepper.text.slice(prompt.length), await oracle.greedy(prompt, 3 * PAGE_SIZE - prompt.length));
  } finally {
    device.free();
  }
});

test('an allocation for which another inferlet gives way waits until the guesses have ended', async () => {
  const device = new SteppedDevice();
  await using host = await startTestHost({ wrap: device.wrap, pageSize: PAGE_SIZE, pageCount: 4 });
  const oracle = await Oracle.of(host.model);
  const connection = await host.connect();
  const second = await host.connect();
  const owned = (): number => host.host.stats().models[0]!.pages.owned;
  try {
    const prompt = PROMPT.slice(1, 4);
    const stepper = new PageStepper(connection.openInferlet({ id: 'steps', maxPages: 20, arrival: 1 }), prompt);
    const other = new Stepper(connection.openInferlet({ id: 'other', maxPages: 20, arrival: 2 }), PROMPT, 3);
    await stepTo(PAGE_SIZE, stepper, device);
    assert.deepEqual([device.underWay, owned()], [1, 4]);
    const early = must(stepper.inferlet.allocatePages(stepper.queue, 1));
    const told = stepper.step();
    for (let i = 0; i < 5; i++) await second.stats();
    assert.deepEqual([device.underWay, owned()], [1, 4]);
    await device.endUntil(second, told);
    await assert.rejects(device.endUntil(second, other.step(PROMPT.length)), /terminated/);
    stepper.pages = Uint32Array.of(...stepper.pages, ...early);
    while (stepper.text.length < 2 * PAGE_SIZE) await device.endUntil(second, stepper.step());
    assert.deepEqual(stepper.text.slice(prompt.length), await oracle.greedy(prompt, 2 * PAGE_SIZE - prompt.length));
    await device.endUntil(second, other.inferlet.close());
  } finally {
    device.free();
  }
});

test('no step is guessed beside a call that cannot be guessed', async () => {
  const probe = (other: Stepper) =>
    other.inferlet.ask(other.queue, {
      op: 'step',
      request: {
        ...{
          tokens: Uint32Array.of(5),
          positions: Uint32Array.of(0),
          inPages: NONE,
          outPages: NONE,
          mask: undefined,
          rows: 1,
        },
        output: { tag: 'distributions', val: 2 },
      },
    });
  assert.equal(await guessesBeside(probe, 10), 0);
});

test('no step is guessed beside a prompt that has parts left', async () => {
  let guesses: number | undefined;
  const prompt = async (other: Stepper, round: number, device: SteppedDevice): Promise<void> => {
    if (round !== 1) return;
    for (let i = 0; i < 6; i++) other.text.push(...PROMPT);
    void other.step(other.text.length).then(() => {
      guesses = device.guesses;
    });
  };
  await guessesBeside(prompt, 14);
  assert.equal(guesses, 0);
});

test('two queues that fill the same page take no guess of each other', async () => {
  const told: number[][] = [];
  for (const ahead of [true, false]) {
    await using host = await startTestHost({ wrap: (inner) => wrapBackend(inner, { ahead }) });
    const connection = await host.connect();
    const inferlet = connection.openInferlet({ id: 'steps', maxPages: 20, arrival: 1 });
    const queues = [inferlet.createQueue('tiny'), inferlet.createQueue('tiny')];
    const pages = must(inferlet.allocatePages(queues[0]!, 10));
    const tokens = [5, 9];
    const made: number[] = [];
    for (let i = 0; i < 30; i++) {
      // Positions that are apart let each queue continue its own steps, while both fill the next slots.
      const asked = queues.map((queue, at) =>
        inferlet.ask(queue, {
          op: 'step',
          request: {
            ...{ tokens: Uint32Array.of(tokens[at]!), positions: Uint32Array.of(at * 40 + i) },
            ...{ inPages: pages, outPages: pages, mask: undefined, rows: 1 },
            output: { tag: 'sample', val: GREEDY },
          },
        }),
      );
      for (const [at, outcome] of (await Promise.all(asked)).entries()) {
        tokens[at] = must(outcome).tokens[0]!;
        made.push(tokens[at]);
      }
    }
    told.push(made);
  }
  assert.deepEqual(told[0], told[1]);
});

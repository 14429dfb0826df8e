import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Backend, SequenceInput } from '../../backends/backend.ts';
import { departureOf } from '../../batcher/testing/policies.ts';
import type { GpuHostConnection, Sampler } from '../../protocol/client.ts';
import { GREEDY, must, NONE, Oracle, startTestHost, type TestHost } from '../../testing/host.ts';
import { SteppedDevice } from '../../testing/stepped-device.ts';
import { PageStepper, Stepper } from '../../testing/stepper.ts';
import { PROMPT } from '../../testing/workbench.ts';
import { checkDistinctWrites, wrapBackend } from '../../testing/wrapped-backend.ts';

interface Stage {
  readonly device: SteppedDevice;
  readonly host: TestHost;
  readonly oracle: Oracle;
  readonly stepper: Stepper;
  /** A second connection: the stepper has the first. */
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
      const answer = stepper.step(i === 0 ? PROMPT.length : 1);
      await device.reaches(i + 1);
      assert.equal(device.guesses, 0);
      device.end();
      await answer;
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

test('after some steps in a row, the host hands over the next step before its call comes, and the call takes the result', async () => {
  await withStepper(async ({ device, oracle, stepper, stepsAhead, ending }) => {
    let answer = stepper.step();
    await device.reaches(6);
    assert.equal(device.underWay, 2, 'the call has come: the step after it is handed over');
    for (let step = 7; step < 30; step++) {
      device.end();
      await answer;
      answer = stepper.step();
      await device.reaches(step);
      assert.equal(device.underWay, 2);
    }
    await ending(answer);
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
    assert.equal(host.host.stats().models[0]!.stepsAhead > 0, ahead);
  }
  assert.deepEqual(texts[0], texts[1]);
});

test('a call that differs from the guess gets what it asked for, and so do the calls after it', async () => {
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

test('a call that comes a little after the guessed step has ended takes the result of that step', async (t) => {
  await withStepper(async ({ device, oracle, stepper, stepsAhead, connection, ending }) => {
    // The clock stands still, so the wait for the call never times out.
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

test('a call that comes long after the guessed step has ended is computed as if no step had been guessed', async () => {
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
    assert.equal(device.batches.length, 5, 'the host hands over no further step for the inferlet');
  });
});

test('when a guessed step fails, the host computes its call anew and no call fails', async () => {
  for (const hasCome of [false, true]) {
    const play = async ({ device, host, oracle, stepper, ending }: Stage): Promise<void> => {
      let answer: Promise<unknown> = Promise.resolve();
      if (hasCome) {
        answer = stepper.step();
        await device.reaches(6);
      }
      device.end();
      await ending(answer);
      for (let i = 0; i < 3; i++) await ending(stepper.step());
      // Four steps of `withStepper`, the step that came before the failure, if any, and three more.
      assert.deepEqual(stepper.text.slice(PROMPT.length), await oracle.greedy(PROMPT, 4 + (hasCome ? 1 : 0) + 3));
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
    const answer = stepper.step();
    await connection.stats();
    assert.equal(device.batches.length, 5, 'nothing is handed over ahead of the other call');
    device.end();
    await device.reaches(6);
    assert.ok(
      device.batches[5]!.some(({ positions }) => positions.length > 1),
      'the other call goes next',
    );
    await ending(Promise.all([answer, first]));
    assert.deepEqual(other.text.slice(PROMPT.length - 1), await oracle.greedy(PROMPT.slice(1), 1));
    assert.deepEqual(stepper.text.slice(PROMPT.length), await oracle.greedy(PROMPT, 5));
    await ending(other.inferlet.close());
  });
});

/**
 * Steps until the device computes one guessed step and holds the next. On a busy machine a call may come too late for its guess, and the host
 * then makes no guesses for some steps.
 * @param failsAt 1 when the held step shall fail, 2 when the one after it shall, 0 when none shall
 * @returns the answer to the step that the device computes
 */
async function untilTwoUnderWay(
  { device, connection, stepper, ending }: Stage,
  failsAt: number,
): Promise<{ answer: Promise<number> }> {
  const reaches = async (underWay: number): Promise<boolean> => {
    for (let i = 0; i < 50 && device.underWay < underWay; i++) await connection.stats();
    return device.underWay >= underWay;
  };
  for (;;) {
    if (await reaches(1)) {
      device.failsAt = failsAt > 0 ? device.batches.length + failsAt : 0;
      const answer = stepper.step();
      if (await reaches(2)) return { answer };
      device.failsAt = 0;
      await ending(answer);
    } else await ending(stepper.step());
  }
}

test('a step of another inferlet joins the next guessed step, and later steps are guessed for both inferlets', async () => {
  // 1: the step after the guess under way fails. 2: the next step, which the other inferlet joins, fails. 0: no step fails.
  for (const failsAt of [0, 1, 2])
    await withStepper(async (stage) => {
      const { device, host, oracle, stepper, connection, ending } = stage;
      const prompts = [PROMPT, PROMPT.slice(1)];
      const other = new Stepper(connection.openInferlet({ id: 'other', maxPages: 20, arrival: 2 }), PROMPT.slice(1));
      await ending(other.step(PROMPT.length - 1));
      for (const each of [other, stepper]) for (let i = 0; i < 3; i++) await ending(each.step());
      const kinds = (): string[] => device.batches.at(-1)!.map(({ inputs }) => inputs.kind);
      const { answer } = await untilTwoUnderWay(stage, failsAt);
      const next = device.batches.length + 1;
      const joined = other.step();
      await connection.stats();
      device.end();
      await answer;
      const asked = [stepper.step(), joined];
      await device.reaches(next);
      assert.deepEqual(kinds(), ['picked', 'tokens'], 'the ready call joined the guessed step');
      if (failsAt === 0) {
        device.end();
        await asked[0];
        asked[0] = stepper.step();
        await device.reaches(next + 1);
        assert.deepEqual(kinds(), ['picked', 'picked']);
      }
      await ending(Promise.all(asked));
      for (let i = 0; i < 3; i++) await ending(Promise.all([stepper.step(), other.step()]));
      for (const [i, { text }] of [stepper, other].entries()) {
        const { length } = prompts[i]!;
        assert.deepEqual(text.slice(length), await oracle.greedy(prompts[i]!, text.length - length));
      }
      assert.equal(host.host.engines[0]!.stats.failedCalls, 0);
      await ending(other.inferlet.close());
    });
});

test('inferlets that allocate page after page get what they ask for, whether they share steps or not', async () => {
  await withStepper(async ({ device, oracle, stepper, connection, ending }) => {
    const other = new PageStepper(connection.openInferlet({ id: 'other', maxPages: 20, arrival: 2 }), PROMPT.slice(1));
    await ending(other.step(PROMPT.length - 1));
    for (let i = 0; i < 20; i++) {
      await ending(stepper.step());
      await ending(other.step());
    }
    for (let i = 0; i < 20; i++) await ending(Promise.all([stepper.step(), other.step()]));
    assert.ok(device.guesses > 0);
    const prompt = PROMPT.slice(1);
    assert.deepEqual(other.text.slice(prompt.length), await oracle.greedy(prompt, other.text.length - prompt.length));
    await ending(other.inferlet.close());
  });
});

test('a call that differs from the guess goes on without a wait for the guessed call', async (t) => {
  await withStepper(async ({ device, stepper, connection }) => {
    stepper.text.push(5);
    const answer = stepper.step(2);
    await connection.stats();
    // The clock stands still, so a wait for the call would never time out.
    const nowMs = performance.now() + 100;
    const clock = t.mock.method(performance, 'now', () => nowMs);
    device.end();
    await device.reaches(6);
    clock.mock.restore();
    device.free();
    await answer;
  });
});

/** Steps one inferlet while another makes the calls of `beside`. @returns the number of guessed steps after all rounds */
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

test('no step is guessed beside a call that cannot be guessed', async () => {
  const probe = (other: Stepper) =>
    other.inferlet.ask(other.queue, {
      op: 'step',
      request: {
        tokens: Uint32Array.of(5),
        positions: Uint32Array.of(0),
        inPages: NONE,
        outPages: NONE,
        mask: undefined,
        rows: 1,
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
  const tokensByMode: number[][] = [];
  for (const ahead of [true, false]) {
    const batches: (readonly SequenceInput[])[] = [];
    const wrap = (inner: Backend) =>
      wrapBackend(inner, {
        ahead,
        async forward(batch) {
          batches.push(batch.map((sequence) => ({ ...sequence, writes: sequence.writes.slice() })));
          return inner.forward(batch);
        },
      });
    await using host = await startTestHost({ wrap });
    const connection = await host.connect();
    const inferlet = connection.openInferlet({ id: 'steps', maxPages: 20, arrival: 1 });
    const queues = [inferlet.createQueue('tiny'), inferlet.createQueue('tiny')];
    const pages = must(inferlet.allocatePages(queues[0]!, 10));
    const tokens = [5, 9];
    const made: number[] = [];
    for (let i = 0; i < 30; i++) {
      // Each queue continues its own text and sees all keys that it reads, so each next step could be guessed. Both queues fill the next slots of the
      // same pages. Only the first queue reads these pages; its positions, from 40 on, are past all positions of the second queue.
      const asked = queues.map((queue, at) =>
        inferlet.ask(queue, {
          op: 'step',
          request: {
            tokens: Uint32Array.of(tokens[at]!),
            positions: Uint32Array.of(at === 0 ? 40 + i : i),
            inPages: at === 0 ? pages : NONE,
            outPages: pages,
            mask: undefined,
            rows: 1,
            output: { tag: 'sample', val: GREEDY },
          },
        }),
      );
      for (const [at, outcome] of (await Promise.all(asked)).entries()) {
        tokens[at] = must(outcome).tokens[0]!;
        made.push(tokens[at]);
      }
    }
    tokensByMode.push(made);
    // Do not check in `forward`: an error thrown there would only make the host compute the guessed step's calls anew.
    batches.forEach(checkDistinctWrites);
  }
  assert.deepEqual(tokensByMode[0], tokensByMode[1]);
});

test('under a policy that sends each call alone, no call joins a guessed step', async () => {
  const device = new SteppedDevice();
  await using host = await startTestHost({
    wrap: device.wrap,
    model: { departure: () => departureOf({ kind: 'eager' }) },
  });
  const connection = await host.connect();
  const [one, other] = [1, 2].map(
    (arrival) => new Stepper(connection.openInferlet({ id: `${arrival}`, maxPages: 20, arrival }), PROMPT),
  ) as [Stepper, Stepper];
  try {
    for (const each of [one, other]) await device.endUntil(connection, each.step(PROMPT.length));
    for (let i = 0; i < 8; i++) await device.endUntil(connection, Promise.all([one.step(), other.step()]));
    assert.ok(device.guesses > 0);
    assert.ok(device.batches.every(({ length }) => length === 1));
  } finally {
    device.free();
  }
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { GpuHostConnection } from '../../protocol/client.ts';
import { must, Oracle, startTestHost, type TestHost } from '../../testing/host.ts';
import { SteppedDevice } from '../../testing/stepped-device.ts';
import { PAGE_SIZE, PageStepper, Stepper } from '../../testing/stepper.ts';
import { PROMPT } from '../../testing/workbench.ts';

/** Steps an inferlet, alone on the device, until its text has `length` tokens and the next step is guessed. */
async function stepTo(length: number, stepper: Stepper, device: SteppedDevice): Promise<void> {
  const prompt = stepper.text.length;
  for (let steps = 1; stepper.text.length < length; steps++) {
    const answer = stepper.step(steps === 1 ? prompt : 1);
    // Once steps are guessed, wait for the next step as well: the host hands it over when the call for the current one has come.
    await device.reaches(device.guesses > 0 ? steps + 1 : steps);
    device.end();
    await answer;
  }
  await device.reaches(length - prompt + 1);
}

interface Stage {
  readonly device: SteppedDevice;
  readonly host: TestHost;
  readonly oracle: Oracle;
  /** The connection of the inferlets. */
  readonly connection: GpuHostConnection;
  /** A second connection, by which the test follows the host. */
  readonly second: GpuHostConnection;
  /** Number of frames that hold an inferlet's page or a spare page. */
  readonly owned: () => number;
}

async function withDevice(play: (stage: Stage) => Promise<void>, pageCount = 64): Promise<void> {
  const device = new SteppedDevice();
  await using host = await startTestHost({ wrap: device.wrap, pageSize: PAGE_SIZE, pageCount });
  const owned = (): number => host.host.stats().models[0]!.pages.owned;
  const [connection, second] = [await host.connect(), await host.connect()];
  try {
    await play({ device, host, oracle: await Oracle.of(host.model), connection, second, owned });
  } finally {
    device.free();
  }
}

/** Fills eleven whole frames with finished prefixes that no inferlet holds. */
async function fillWithPrefixes(connection: GpuHostConnection, device: SteppedDevice, second: GpuHostConnection) {
  const text = Array.from({ length: 12 * PAGE_SIZE - 1 }, (_, i) => PROMPT[i % PROMPT.length]!);
  const filler = new Stepper(connection.openInferlet({ id: 'before', maxPages: 20, arrival: 0 }), text, 12);
  await device.endUntil(second, filler.step(text.length));
  await device.endUntil(second, filler.inferlet.close());
}

for (const pool of ['free', 'cached'] as const) {
  test(`steps of inferlets that allocate page after page are guessed across page ends, with ${pool} frames`, async () => {
    await withDevice(async ({ device, host, oracle, connection, second, owned }) => {
      const cached = (): number => host.host.stats().models[0]!.pages.cached;
      if (pool === 'cached') await fillWithPrefixes(connection, device, second);
      const cachedBefore = cached();
      assert.equal(cachedBefore, pool === 'cached' ? 11 : 0);
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
      assert.equal(owned(), 0);
    }, 16);
  });
}

test('an inferlet that did not take its spare page gets no other', async () => {
  await withDevice(async ({ device, host, oracle, connection, second }) => {
    const { memory } = host.host.engines[0]!;
    const takeSpare = memory.takeSpare.bind(memory);
    let sparedPages = 0;
    memory.takeSpare = (space) => {
      sparedPages++;
      return takeSpare(space);
    };
    const prompt = PROMPT.slice(1, 4);
    const inferlet = connection.openInferlet({ id: 'steps', maxPages: 20, arrival: 1 });
    // The stepper allocates two pages at a time, so it cannot take a spare page, which is single.
    const stepper = new PageStepper(inferlet, prompt, 2);
    await device.endUntil(second, stepper.step(prompt.length));
    for (let i = 0; i < 80; i++) await device.endUntil(second, stepper.step());
    assert.deepEqual(stepper.text.slice(prompt.length), await oracle.greedy(prompt, 81));
    // The text crosses ten page ends. Only one guess takes a page, in vain.
    assert.equal(sparedPages, 1);
    // Up to five calls may come too late for their guess; each costs another step.
    assert.ok(device.batches.length <= 81 + 5, `${device.batches.length} steps for 81 tokens`);
    assert.ok(device.guesses > 40, `${device.guesses} guesses`);
  });
});

test('a spare page that is not allocated is given back', async () => {
  await withDevice(async ({ device, oracle, connection, second, owned }) => {
    const prompt = PROMPT.slice(1, 4);
    const stepper = new PageStepper(connection.openInferlet({ id: 'steps', maxPages: 20, arrival: 1 }), prompt);
    await stepTo(PAGE_SIZE + 1, stepper, device);
    // The stepper's full page, and the spare one.
    assert.deepEqual([device.underWay, owned()], [1, 2]);
    device.end();
    while (owned() > 1) await second.stats();
    while (stepper.text.length < 3 * PAGE_SIZE) await device.endUntil(second, stepper.step());
    assert.deepEqual(stepper.text.slice(prompt.length), await oracle.greedy(prompt, 3 * PAGE_SIZE - prompt.length));
  });
});

test('an allocation for which another inferlet gives way waits until the guesses have ended', async () => {
  await withDevice(async ({ device, oracle, connection, second, owned }) => {
    const prompt = PROMPT.slice(1, 4);
    const stepper = new PageStepper(connection.openInferlet({ id: 'steps', maxPages: 20, arrival: 1 }), prompt);
    const other = new Stepper(connection.openInferlet({ id: 'other', maxPages: 20, arrival: 2 }), PROMPT, 3);
    await stepTo(PAGE_SIZE, stepper, device);
    // All four frames are in use: one page of the stepper and three of the other inferlet.
    assert.deepEqual([device.underWay, owned()], [1, 4]);
    const newPages = must(stepper.inferlet.allocatePages(stepper.queue, 1));
    const answer = stepper.step();
    for (let i = 0; i < 5; i++) await second.stats();
    assert.deepEqual([device.underWay, owned()], [1, 4]);
    await device.endUntil(second, answer);
    await assert.rejects(device.endUntil(second, other.step(PROMPT.length)), /terminated/);
    stepper.pages = Uint32Array.of(...stepper.pages, ...newPages);
    while (stepper.text.length < 2 * PAGE_SIZE) await device.endUntil(second, stepper.step());
    assert.deepEqual(stepper.text.slice(prompt.length), await oracle.greedy(prompt, 2 * PAGE_SIZE - prompt.length));
    await device.endUntil(second, other.inferlet.close());
  }, 4);
});

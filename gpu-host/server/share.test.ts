import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { silentLog } from '#scheduler/testing/log.ts';
import type { Backend } from '../backends/backend.ts';
import { createReferenceBackend } from '../backends/reference/index.ts';
import { randomModel } from '../models/testing/random-model.ts';
import { GpuHostConnection, type RunHandle } from '../protocol/client.ts';
import { GREEDY, must, NONE, until } from '../testing/host.ts';
import { wrapBackend } from '../testing/wrapped-backend.ts';
import { GpuHost, type HostedModel } from './gpu-host.ts';

const CONTEXT = 1024;
const TOKENS = 255;
const neverNotified = new Int32Array(new SharedArrayBuffer(4));
const sum = (all: readonly number[]): number => all.reduce((total, ms) => total + ms, 0);

/** Returns replacements for methods of the backend `inner`. Its steps add their durations, in milliseconds, to `steps`. */
type Device = (inner: Backend, steps: number[]) => Partial<Backend>;

/** Starts a host with a model on each of two devices, and calls `play`, which begins runs on the models. */
async function withModels(
  devices: readonly [Device, Device],
  play: (
    begin: (model: number, maxTokens?: number) => RunHandle,
    steps: readonly [number[], number[]],
  ) => Promise<void>,
): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'pie-share-'));
  const steps: [number[], number[]] = [[], []];
  const models: HostedModel[] = [];
  for (const [i, device] of devices.entries()) {
    const name = `model ${i}`;
    const model = await randomModel(join(directory, name), { layers: 1, contextLength: CONTEXT }, 7);
    const inner = await createReferenceBackend(model, { pageSize: 16, pageCount: CONTEXT / 16 });
    const backend = wrapBackend(inner, device(inner, steps[i] as number[]));
    models.push({ name, backend, directory: model.directory });
  }
  const host = new GpuHost(models, { log: silentLog });
  const connection = await GpuHostConnection.connect(await host.listen(join(directory, 's')));
  const begin = (model: number, maxTokens = TOKENS): RunHandle => {
    const inferlet = connection.openInferlet({ id: `${model}`, tenant: `${model}`, maxPages: 64, arrival: model });
    const queue = inferlet.createQueue(`model ${model}`);
    const pages = must(inferlet.allocatePages(queue, CONTEXT / 16));
    return inferlet.run(queue, { token: 1, position: 0, pages, maxTokens, sampler: GREEDY, stopTokens: NONE });
  };
  try {
    await play(begin, steps);
  } finally {
    connection.close();
    await host.close();
    rmSync(directory, { recursive: true, force: true });
  }
}

/** A device that holds the thread for `ms` a step, as ONNX Runtime does. */
const blocking =
  (ms: number): Device =>
  (inner, steps) => ({
    async forward(batch) {
      const startedMs = performance.now();
      Atomics.wait(neverNotified, 0, 0, ms);
      const outputs = await inner.forward(batch);
      steps.push(performance.now() - startedMs);
      return outputs;
    },
  });

/** A device that takes `ms` for a step, and accepts the next step while the current one computes. */
const ahead =
  (ms: number): Device =>
  (inner, steps) => {
    let lastStep: Promise<unknown> = Promise.resolve();
    return {
      ahead: true,
      async forward(batch) {
        const computing = inner.forward(batch);
        lastStep = lastStep.then(() => sleep(ms));
        await lastStep;
        steps.push(ms);
        return computing;
      },
    };
  };

test('the host gives a model with short steps as much time as one with long steps', async () => {
  await withModels([blocking(2), blocking(20)], async (begin, [quickSteps, slowSteps]) => {
    const runs = [begin(0), begin(1)];
    // Count steps from the time on when both runs compute.
    for (const run of runs) must(await run.next());
    quickSteps.length = 0;
    slowSteps.length = 0;
    const quick = runs[0]!;
    while (!must(await quick.next()).finished);
    // The longest step of each model does not count: the machine may have paused in this step, and the run of the quick model may end before the
    // other model has got the same time.
    const withoutLongest = (all: readonly number[]): number => sum(all) - Math.max(0, ...all);
    const [quickMs, slowMs] = [sum(quickSteps), sum(slowSteps)];
    const message = `${quickSteps.length} steps of ${quickMs} ms and ${slowSteps.length} of ${slowMs} ms`;
    assert.ok(withoutLongest(slowSteps) < 2 * quickMs && withoutLongest(quickSteps) < 2 * slowMs, message);
  });
});

test('a model that starts later gets no extra time for the steps that another model computed before', async () => {
  await withModels([ahead(2), ahead(2)], async (begin, [firstSteps, secondSteps]) => {
    // This run is so long that it does not end during the test, even when this thread stands still for seconds.
    const first = begin(0, CONTEXT - 1);
    const firstDrained = (async (): Promise<void> => {
      while (!must(await first.next()).finished);
    })();
    await until(() => firstSteps.length >= 100);
    const second = begin(1);
    await until(() => secondSteps.length >= 1);
    const countBefore = firstSteps.length;
    await until(() => secondSteps.length >= 40);
    const countBeside = firstSteps.length - countBefore;
    assert.ok(countBeside >= 10, `the first model has ${countBeside} steps beside ${secondSteps.length} of the second`);
    for (const run of [first, second]) run.stop();
    await firstDrained;
  });
});

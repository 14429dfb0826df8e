import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { createReferenceBackend } from '../backends/reference/index.ts';
import { randomModel } from '../models/random-model.ts';
import { GpuHostConnection } from '../protocol/client.ts';
import { GREEDY, must, NONE } from '../testing/host.ts';
import { wrapBackend } from '../testing/wrapped-backend.ts';
import { GpuHost, type HostedModel } from './gpu-host.ts';

const CONTEXT = 256;
const never = new Int32Array(new SharedArrayBuffer(4));
const sum = (all: readonly number[]): number => all.reduce((total, ms) => total + ms, 0);

test('gives a model with short steps as much time as one with long steps', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'pie-share-'));
  /** Times of each model's steps, in ms. */
  const steps = new Map<string, number[]>();
  const models: HostedModel[] = [];
  for (const [name, ms] of [
    ['quick', 2],
    ['slow', 20],
  ] as const) {
    const model = await randomModel(join(directory, name), { layers: 1, contextLength: CONTEXT }, 7);
    const inner = await createReferenceBackend(model, { pageSize: 16, pageCount: CONTEXT / 16 });
    const own: number[] = [];
    steps.set(name, own);
    const backend = wrapBackend(inner, {
      async forward(batch) {
        const startedMs = performance.now();
        // Holds the thread, as a step of ONNX Runtime does.
        Atomics.wait(never, 0, 0, ms);
        const outputs = await inner.forward(batch);
        own.push(performance.now() - startedMs);
        return outputs;
      },
    });
    models.push({ name, backend, directory: model.directory });
  }
  const host = new GpuHost(models);
  const connection = await GpuHostConnection.connect(await host.listen(join(directory, 's')));
  try {
    const runs = models.map(({ name }, i) => {
      const inferlet = connection.openInferlet({ id: name, tenant: name, maxPages: 64, arrival: i });
      const queue = inferlet.createQueue(name);
      const pages = must(inferlet.allocatePages(queue, CONTEXT / 16));
      const maxTokens = CONTEXT - 1;
      return inferlet.run(queue, { token: 1, position: 0, pages, maxTokens, sampler: GREEDY, stopTokens: NONE });
    });
    // Both runs are at work from the second token of each on.
    for (const run of runs) must(await run.next());
    for (const own of steps.values()) own.length = 0;
    const quick = runs[0]!;
    for (let next = must(await quick.next()); !next.finished; next = must(await quick.next()));
    const [own = [], other = []] = ['quick', 'slow'].map((name) => steps.get(name));
    // The longest step of each does not count: after a pause of the machine in a step, the run of `quick` may end
    // before the other model has made up for it.
    const [ownMs, otherMs] = [own, other].map((all) => sum(all) - Math.max(0, ...all)) as [number, number];
    const what = `${own.length} steps of ${sum(own)} ms and ${other.length} of ${sum(other)} ms`;
    assert.ok(otherMs < 2 * sum(own) && ownMs < 2 * sum(other), what);
  } finally {
    connection.close();
    await host.close();
    rmSync(directory, { recursive: true, force: true });
  }
});

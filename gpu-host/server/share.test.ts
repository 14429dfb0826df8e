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

test('gives a model with short steps as much time as one with long steps', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'pie-share-'));
  /** Time that each model had the thread, in ms. */
  const spent = new Map<string, number>();
  const models: HostedModel[] = [];
  for (const [name, ms] of [
    ['quick', 2],
    ['slow', 20],
  ] as const) {
    const model = await randomModel(join(directory, name), { layers: 1, contextLength: CONTEXT }, 7);
    const inner = await createReferenceBackend(model, { pageSize: 16, pageCount: CONTEXT / 16 });
    const backend = wrapBackend(inner, {
      forward(batch) {
        const startedMs = performance.now();
        // Holds the thread, as a step of ONNX Runtime does.
        Atomics.wait(never, 0, 0, ms);
        spent.set(name, (spent.get(name) ?? 0) + performance.now() - startedMs);
        return inner.forward(batch);
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
    const before = new Map(spent);
    const quick = runs[0]!;
    for (let next = must(await quick.next()); !next.finished; next = must(await quick.next()));
    const part = (name: string) => (spent.get(name) ?? 0) - (before.get(name) ?? 0);
    const ratio = part('slow') / part('quick');
    assert.ok(ratio > 0.5 && ratio < 2, `the model with long steps had ${ratio} times the time of the other`);
  } finally {
    connection.close();
    await host.close();
    rmSync(directory, { recursive: true, force: true });
  }
});

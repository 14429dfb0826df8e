import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { GpuHostConnection, type GpuHostStats } from '#gpu-host/protocol/client.ts';
import type { EncoderStats } from '#gpu-host/protocol/host.ts';
import { TEST_MODEL, TestGpuHost } from '../../testing/gpu-host.ts';
import { loadsOf, ModelLoads } from './model-loads.ts';

describe('the recent load of GPU hosts', () => {
  let host: TestGpuHost;
  let connection: GpuHostConnection;
  before(async () => {
    host = await TestGpuHost.start({ pages: 32 });
    connection = await GpuHostConnection.connect(host.address);
  });
  after(async () => {
    connection.close();
    await host.stop();
  });

  async function compute(): Promise<void> {
    const inferlet = connection.openInferlet({ id: 'i', maxPages: 16, arrival: 1 });
    const queue = inferlet.createQueue(TEST_MODEL);
    const pages = inferlet.allocatePages(queue, 2);
    assert.equal(pages.tag, 'ok');
    const tokens = Uint32Array.from({ length: 20 }, (_, i) => 3 + i);
    const request = { tokens, positions: tokens.map((_, i) => i), inPages: new Uint32Array(0), outPages: pages.val };
    const step = { ...request, mask: undefined, rows: 0, output: { tag: 'none' as const } };
    assert.equal((await inferlet.ask(queue, { op: 'step', request: step })).tag, 'ok');
    await inferlet.close();
  }

  it('covers the time between two readings, and omits a host that is away', async () => {
    let nowMs = 0;
    const loads = new ModelLoads({ list: [connection] }, Date.now, () => nowMs);
    const read = async () => {
      await loads.refresh();
      return loads.current?.models[0];
    };
    await compute();
    const busy = await read();
    assert.equal(busy?.hostId, connection.hostId);
    assert.deepEqual([busy?.model, busy?.pages, busy?.batchSize], [TEST_MODEL, 32, 1]);
    assert.ok(busy && busy.utilisation > 0 && busy.utilisation <= 1 && busy.tokensPerSecond > 0);
    assert.equal(busy.freePages + busy.cachedPages, 32);
    // The host measured steps of other sizes when it started.
    const { tokens = [], sequences = [] } = busy.stepTimes ?? {};
    assert.deepEqual([tokens.filter(({ size }) => size === 20).length, tokens[0]?.size, sequences[0]?.size], [1, 1, 1]);
    const idle = await read();
    assert.deepEqual([idle?.batchSize, idle?.utilisation, idle?.tokensPerSecond], [0, 0, 0]);
    await host.kill();
    nowMs = 2000;
    assert.equal(await read(), undefined);
    await host.restart();
    while (!connection.connected) await new Promise((resolve) => setTimeout(resolve, 10));
    assert.equal((await read())?.terminations, 0);
  });

  it('includes encoders', async () => {
    const stats = await connection.stats();
    const counts = { batches: 2, texts: 10, tokens: 100, failedCalls: 0, deviceBusyMs: 50, waitingCalls: 0 };
    const latency = [{ tokens: 128, msPerToken: 0.1 }];
    const encoder: EncoderStats = {
      name: 'minilm',
      kind: 'embedding',
      device: { name: 'CPU' },
      ...counts,
      maxBatchTokens: 250,
      latency,
    };
    // In the 500 ms between the readings: 2 batches with 10 texts and 200 tokens, and 250 ms of computing.
    const before = { ...stats, elapsedMs: 1000, encoders: [encoder] };
    const busy = { ...encoder, batches: 4, texts: 20, tokens: 300, deviceBusyMs: 300, waitingCalls: 3 };
    const now = { ...stats, elapsedMs: 1500, encoders: [busy] };
    assert.deepEqual(loadsOf('h', 1, now, before).encoders, [
      {
        encoder: 'minilm',
        kind: 'embedding',
        hostId: 'h',
        device: { name: 'CPU' },
        batchSize: 5,
        utilisation: 0.5,
        textsPerSecond: 20,
        tokensPerSecond: 400,
        waitingCalls: 3,
        maxBatchTokens: 250,
        latency,
      },
    ]);
  });

  it('includes the measured times of steps, rounded to three decimals', async () => {
    const stats = await connection.stats();
    const stepTimes = { tokens: [{ size: 20.00049, ms: 1 / 3 }], sequences: [{ size: 1, ms: 2 }] };
    const models = stats.models.map((model) => ({ ...model, efficientTokens: 90, stepTimes }));
    const [load] = loadsOf('h', 1, { ...stats, models }).models;
    assert.equal(load?.efficientTokens, 90);
    assert.deepEqual(load.stepTimes, { tokens: [{ size: 20, ms: 0.333 }], sequences: [{ size: 1, ms: 2 }] });
    const withoutStepTimes = stats.models.map(({ efficientTokens: _, stepTimes: __, ...model }) => model);
    const [old] = loadsOf('h', 1, { ...stats, models: withoutStepTimes }).models;
    assert.ok(old && !('efficientTokens' in old) && !('stepTimes' in old));
  });

  it('covers the time since the reset when the counters were reset between two readings', async () => {
    const before: GpuHostStats = { ...(await connection.stats()), elapsedMs: Number.MAX_SAFE_INTEGER };
    const after = await connection.stats();
    assert.deepEqual(loadsOf('h', 1, after, before), loadsOf('h', 1, after));
  });
});

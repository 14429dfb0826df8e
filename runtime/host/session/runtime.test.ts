import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import type { GpuHostStats } from '#gpu-host/protocol/host.ts';
import { failingLog } from '#scheduler/testing/log.ts';
import type { ModelMetadata } from '#wit/generated/host.ts';
import { TEST_MODEL, TestGpuHost } from '../../testing/gpu-host.ts';
import { TestInferlet, type TestInferletOptions } from '../../testing/inferlet.ts';
import { failureOf, value } from '../../testing/outcome.ts';
import { Models } from '../device/models.ts';

/** Computes a prompt of `size` tokens. */
async function step(connection: GpuHostConnection, size: number): Promise<void> {
  const inferlet = connection.openInferlet({ id: 'i', maxPages: 16, arrival: 1 });
  const queue = inferlet.createQueue(TEST_MODEL);
  const tokens = Uint32Array.from({ length: size }, (_, i) => 3 + i);
  const positions = tokens.map((_, i) => i);
  const request = { tokens, positions, inPages: new Uint32Array(0), outPages: new Uint32Array(0), mask: undefined };
  const output = { tag: 'none' as const };
  value(await inferlet.ask(queue, { op: 'step', request: { ...request, rows: 0, output } }));
  await inferlet.close();
}

describe('runtime', () => {
  let host: TestGpuHost;
  let connection: GpuHostConnection;
  before(async () => {
    host = await TestGpuHost.start({ settings: { bits: 8 }, encoder: 'small' });
    connection = await GpuHostConnection.connect(host.address);
  });
  after(async () => {
    connection.close();
    await host.stop();
  });

  const inferlet = async (options: TestInferletOptions = {}) => {
    const unused = { compile: () => assert.fail('no grammar call is expected') };
    const granted = (await new Models({ list: [connection] }, unused, failingLog).granted([])).get(TEST_MODEL);
    return new TestInferlet(connection, { model: { metadata: granted?.metadata ?? null }, ...options });
  };

  it('describes a model by its configuration and its device', async () => {
    const guest = await inferlet();
    const metadata = (name: string) => guest.call<Outcome<ModelMetadata>>('runtime', 'metadata', name);
    const { architecture, parameters, bits, ...shape } = value(metadata(TEST_MODEL));
    const [summary] = connection.models;
    const { layers, hiddenSize, attentionHeads, keyValueHeads, headSize } = shape;
    assert.equal(architecture, 'LlamaForCausalLM');
    // The reference backend computes in full precision, whatever precision is configured.
    assert.equal(bits, 32);
    assert.ok(attentionHeads % keyValueHeads === 0 && layers > 0);
    // A lower bound of the parameters: the embeddings, and each layer without its feed-forward network.
    const minParameters =
      (summary?.vocabularySize ?? 0) * hiddenSize +
      layers * 2 * hiddenSize * headSize * (attentionHeads + keyValueHeads);
    assert.ok(parameters > BigInt(minParameters));
    assert.equal(failureOf(metadata('another')), 'not-found');
    const unreadable = await inferlet({ model: { metadata: null } });
    assert.equal(failureOf(unreadable.call<Outcome<unknown>>('runtime', 'metadata', TEST_MODEL)), 'unavailable');
  });

  it('reports the efficient sizes that the GPU host has measured, until its connection ends', async (t) => {
    const ownConnection = await GpuHostConnection.connect(host.address);
    t.after(() => ownConnection.close());
    const guest = new TestInferlet(ownConnection, { encoders: ['small'] });
    const efficientTokens = (name: string) =>
      guest.call<Outcome<number | undefined>>('runtime', 'efficient-tokens', name);
    assert.equal(value(efficientTokens(TEST_MODEL)), undefined);
    // The host counts the first step of a size only until a second step of that size.
    for (const size of [1, 8, 64]) await step(ownConnection, size);
    let stats: GpuHostStats;
    let rounds = 0;
    // On a busy machine, the first measured times may not show which size is efficient.
    do {
      for (const size of [1, 8, 64]) await step(ownConnection, size);
      stats = await ownConnection.stats();
    } while (stats.models[0]?.efficientTokens === undefined && ++rounds < 100);
    const { models, encoders } = stats;
    assert.ok((models[0]?.efficientTokens ?? 0) >= 1);
    assert.equal(value(efficientTokens(TEST_MODEL)), models[0]?.efficientTokens);
    assert.equal(value(efficientTokens('small')), encoders[0]?.maxBatchTokens);
    assert.equal(failureOf(efficientTokens('another')), 'not-found');
    const ungranted = new TestInferlet(ownConnection);
    assert.equal(failureOf(ungranted.call<Outcome<unknown>>('runtime', 'efficient-tokens', 'small')), 'not-found');
    await ungranted.end();
    await guest.end();
    ownConnection.close();
    assert.equal(ownConnection.efficientTokens(TEST_MODEL), undefined);
  });

  it('answers a closed set of diagnostic queries', async () => {
    const guest = await inferlet({ pages: 32, tokens: 500, grants: { store: 'read', hosts: ['a.b'] } });
    const query = (name: string) => guest.call<Outcome<string>>('runtime', 'debug-query', name);
    value(guest.call<Outcome<Uint32Array>>('allocate', 'allocate-pages', guest.queue, 3));
    guest.inferlet.count(7, 2);
    const report = JSON.parse(value(query('all')));
    assert.deepEqual(report.pages, { [TEST_MODEL]: 3 });
    assert.deepEqual([report.limits.pages, report.limits.tokens], [32, 500]);
    assert.equal(report.room[TEST_MODEL].tokens, 256);
    assert.deepEqual([report.usage.inputTokens, report.usage.outputTokens], [7, 2]);
    assert.deepEqual([report.grants.store, report.grants.hosts], ['read', ['a.b']]);
    assert.deepEqual([report.models[0].name, report.models[0].connected], [TEST_MODEL, true]);
    for (const name of Object.keys(report)) assert.deepEqual(JSON.parse(value(query(name))), report[name]);
    for (const other of ['', 'secrets', 'toString', '__proto__']) {
      assert.equal(failureOf(query(other)), 'invalid-argument');
    }
    await guest.end();
  });

  it('keeps no timer of a dropped sleep', async () => {
    const guest = new TestInferlet(null);
    const sleep = () => guest.callOnly<Promise<{ readonly tag: string }>>('runtime', 'sleep', 1_000_000);
    const [kept, dropped] = [sleep(), sleep()];
    TestInferlet.releaseFuture(dropped);
    assert.equal((await dropped).tag, 'err');
    assert.equal(guest.inferlet.sleepers.size, 1);
    await guest.end();
    assert.equal((await kept).tag, 'err');
    assert.equal(guest.inferlet.sleepers.size, 0);
  });
});

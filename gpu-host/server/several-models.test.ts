import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { silentLog } from '#scheduler/testing/log.ts';
import { createReferenceBackend } from '../backends/reference/index.ts';
import { TRAITS } from '../handlers/engine/model.ts';
import { randomModel } from '../models/testing/random-model.ts';
import { type DeviceClient, GpuHostConnection } from '../protocol/client.ts';
import { GREEDY, generate, must, NONE, Oracle, range, tagOf, until } from '../testing/host.ts';
import { GpuHost, type HostedModel } from './gpu-host.ts';

const PAGES = 16;

// With swap memory, the host preempts an inferlet whose pages it needs; without, it ends the inferlet.
for (const swaps of [true, false])
  describe(`a host of two models, ${swaps ? 'with' : 'without'} swap`, () => {
    let directory: string;
    let models: HostedModel[];
    let oracles: Oracle[];
    let host: GpuHost;
    let connection: GpuHostConnection;
    before(async () => {
      directory = mkdtempSync(join(tmpdir(), 'pie-2-'));
      models = [];
      oracles = [];
      for (const [i, name] of ['small', 'large'].entries()) {
        const shape = { layers: 1 + i, vocabularySize: 64 + 32 * i, contextLength: 96 };
        const model = await randomModel(join(directory, name), shape, 5 + i);
        oracles.push(await Oracle.of(model));
        const backend = await createReferenceBackend(model, { pageSize: 8, pageCount: PAGES });
        models.push({
          name,
          backend,
          directory: model.directory,
          prefixCache: false,
          swapMemoryBytes: swaps ? 1 << 20 : 0,
        });
      }
      host = new GpuHost(models, { log: silentLog });
      connection = await GpuHostConnection.connect(await host.listen(join(directory, 's')));
    });
    after(async () => {
      connection.close();
      await host.close();
      rmSync(directory, { recursive: true, force: true });
    });

    const free = (): number[] => host.stats().models.map(({ pages }) => pages.free);
    const open = (id: string, arrival: number, onTerminated?: (cause: string) => void): DeviceClient =>
      connection.openInferlet({
        id,
        maxPages: PAGES,
        arrival,
        ...(onTerminated && { onTerminated: ({ cause }) => onTerminated(cause) }),
      });

    test('the host states the name, vocabulary and traits of each model, and refuses a claimed trait without those that it needs', () => {
      assert.deepEqual(
        connection.models.map(({ name, vocabularySize, traits }) => [name, vocabularySize, traits]),
        [
          ['small', 64, [...TRAITS]],
          ['large', 96, [...TRAITS]],
        ],
      );
      const claims = ['allocate', 'forward', 'fused'];
      assert.throws(
        () => new GpuHost([{ ...(models[0] as HostedModel), traits: claims }], { log: silentLog }),
        /small claims.*fused needs input-text and output-text/,
      );
    });

    test('the host serves one inferlet on both models at once', async () => {
      const inferlet = open('both', 1);
      const texts = await Promise.all(
        models.map(({ name }) => generate(inferlet, inferlet.createQueue(name), [1, 5, 9], 12)),
      );
      for (const [i, text] of texts.entries()) assert.deepEqual(text, await oracles[i]?.greedy([1, 5, 9], 12));
      await inferlet.close();
      assert.deepEqual(free(), [PAGES, PAGES]);
    });

    test('the host ends the newest inferlet on all its models when the oldest needs memory, and reports the end once', {
      skip: swaps && 'the pages are swapped out instead',
    }, async () => {
      const causes: string[] = [];
      const oldest = open('oldest', 1);
      const newest = open('newest', 3, (cause) => causes.push(cause));
      const middle = open('middle', 2);
      const [small, large] = [newest.createQueue('small'), newest.createQueue('large')];
      must(newest.allocatePages(small, 8));
      const largePages = must(newest.allocatePages(large, 12));
      const request = { token: 1, position: 0, pages: largePages, maxTokens: 80, sampler: GREEDY, stopTokens: NONE };
      const run = newest.run(large, request);
      must(await run.next());
      const middleQueue = middle.createQueue('small');
      must(middle.allocatePages(middleQueue, 4));
      const queue = oldest.createQueue('small');
      must(oldest.allocatePages(queue, 10));
      assert.equal(tagOf(await oldest.synchronize(queue)), 'ok');

      await until(() => causes.length > 0);
      assert.match(causes[0] ?? '', /\S/);
      let last = await run.next();
      while (last.tag === 'ok' && !last.val.finished) last = await run.next();
      assert.deepEqual(last, { tag: 'err', val: { tag: 'terminated', val: causes[0] } });
      assert.deepEqual(await newest.synchronize(small), { tag: 'err', val: { tag: 'terminated', val: causes[0] } });
      assert.equal(tagOf(newest.allocatePages(large, 1)), 'terminated');
      assert.equal(tagOf(await middle.synchronize(middleQueue)), 'ok', 'the middle inferlet goes on');
      await until(() => free()[1] === PAGES);
      assert.equal(free()[0], 2, '16 pages less 10 of the oldest inferlet and 4 of the middle one');
      assert.equal(host.stats().models[0]?.terminations, 1);
      for (const inferlet of [newest, middle, oldest]) await inferlet.close();
      assert.equal(causes.length, 1);
      assert.deepEqual(free(), [PAGES, PAGES]);
      assert.equal(host.stats().models[0]?.inferlets, 0);
    });

    test('the host swaps out pages of a waiting inferlet, and restores their exact content', {
      skip: !swaps && 'there is no swap',
    }, async () => {
      const waits = open('waits', 2);
      const queue = waits.createQueue('small');
      const pages = must(waits.allocatePages(queue, 8));
      const prompt = range(1, 60);
      const step = (tokens: Uint32Array, position: number, into: Uint32Array) =>
        waits.ask(queue, {
          op: 'step',
          request: {
            tokens,
            positions: range(position, position + tokens.length),
            inPages: pages,
            outPages: into,
            mask: undefined,
            rows: 1,
            output: { tag: 'distributions', val: 10 },
          },
        });
      must(await step(prompt, 0, pages));
      const before = must(await step(Uint32Array.of(7), 59, NONE));
      waits.setWaiting(true);

      const asks = open('asks', 1);
      const other = asks.createQueue('small');
      must(asks.allocatePages(other, 14));
      assert.equal(tagOf(await asks.synchronize(other)), 'ok');
      // The inferlets hold 8 + 14 pages, and the device has 16.
      assert.ok((host.stats().models[0]?.swappedOutPages ?? 0) >= 6, 'the pages were swapped out');
      await asks.close();

      assert.deepEqual(must(await step(Uint32Array.of(7), 59, NONE)), before);
      assert.equal(host.stats().models[0]?.swappedOutPages, 0);
      await waits.close();
      assert.deepEqual(free(), [PAGES, PAGES]);
    });

    test('an inferlet that waits does so on all models, until its next call', async () => {
      const inferlet = open('waits everywhere', 1);
      const [, large] = [inferlet.createQueue('small'), inferlet.createQueue('large')];
      const waiting = () => host.engines.map(({ spaces }) => [...spaces].map(({ pages }) => pages.waiting));
      inferlet.setWaiting(true);
      await until(() => waiting().flat().length === 2 && waiting().flat().every(Boolean));
      assert.equal(tagOf(await inferlet.synchronize(large)), 'ok');
      assert.deepEqual(waiting(), [[false], [false]]);
      await inferlet.close();
    });
  });

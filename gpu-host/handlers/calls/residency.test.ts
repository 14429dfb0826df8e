import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { DeviceClient, Residency } from '../../protocol/client.ts';
import type { ExportControl } from '../../protocol/operations.ts';
import { BACKENDS } from '../../testing/backends.ts';
import { must, Oracle, range, startTestHost, type TestHost, tagOf } from '../../testing/host.ts';
import { ids, onOneBackend, PROMPT, Workbench } from '../../testing/workbench.ts';

interface Guest {
  readonly inferlet: DeviceClient;
  readonly queue: number;
}

const ask = async ({ inferlet, queue }: Guest, operation: ExportControl): Promise<Residency> =>
  must(await inferlet.ask(queue, operation));
const refusal = async ({ inferlet, queue }: Guest, operation: ExportControl): Promise<string> =>
  tagOf(await inferlet.ask(queue, operation));
const look = (guest: Guest, name: string): Promise<Residency> => ask(guest, { op: 'export-residency', name });

/** Exports `count` pages, of which the first two contain the prompt, and frees the exporter's addresses of these pages. */
async function exportPages(b: Workbench, name: string, count: number, persistent = false): Promise<void> {
  const own = b.pages(count);
  must(await b.fill(own.subarray(0, 2), PROMPT));
  for (const page of own.subarray(2)) must(await b.fill(ids(page), [1], 90));
  must(await b.ask({ op: 'export-pages', pages: own, name, persistent }));
  b.inferlet.freePages(b.queue, own);
}

const SWAP = { swapMemoryBytes: 1 << 20 };

onOneBackend(
  'residency',
  (handler) => {
    handler('pages that leave the device and come back give the same distribution', async (b) => {
      await exportPages(b, 'a', 3);
      const imported = async () => must(await b.inferlet.importPages(b.queue, 'a')).pages;
      const first = await imported();
      const before = await b.probe(first, 7, PROMPT.length);
      b.inferlet.freePages(b.queue, first);
      const onDevice = { tier: 'device', devicePages: 3, memoryPages: 0, diskPages: 0, leaseMs: 0 };
      const { bytes, ...residency } = await look(b, 'a');
      assert.deepEqual(residency, onDevice);
      assert.ok(bytes > 0);
      const away = await ask(b, { op: 'demote-export', name: 'a', tier: 'memory' });
      assert.deepEqual([away.tier, away.devicePages, away.memoryPages], ['memory', 0, 3]);
      const back = await ask(b, { op: 'prefetch-export', name: 'a' });
      assert.deepEqual(back, { ...onDevice, bytes });
      await ask(b, { op: 'demote-export', name: 'a', tier: 'memory' });
      const again = await imported();
      assert.deepEqual(
        await b.probe(again, 7, PROMPT.length),
        before,
        'the values are the same without a prefetch, too',
      );
      assert.equal((await look(b, 'a')).devicePages, 3, 'a call brings back what it reads');
      must(await b.ask({ op: 'unexport', name: 'a' }));
    });

    handler('a lease lasts beyond its inferlet, is replaced, and ends with the name', async (b) => {
      await exportPages(b, 'a', 2);
      const other = b.connection.openInferlet({ id: 'other', maxPages: 4, arrival: 2 });
      const guest = { inferlet: other, queue: other.createQueue('tiny') };
      const { leaseMs } = await ask(guest, { op: 'pin-export', name: 'a', leaseMs: 50_000 });
      assert.ok(leaseMs > 40_000 && leaseMs <= 50_000);
      await other.close();
      assert.ok((await look(b, 'a')).leaseMs > 0);
      await ask(b, { op: 'pin-export', name: 'a', leaseMs: 1 });
      await new Promise((resolve) => setTimeout(resolve, 5));
      assert.equal((await look(b, 'a')).leaseEnded, 'expired');
      await ask(b, { op: 'pin-export', name: 'a', leaseMs: 60_000 });
      const { leaseMs: remainingMs, leaseEnded } = await ask(b, { op: 'unpin-export', name: 'a' });
      assert.deepEqual([remainingMs, leaseEnded], [0, undefined]);
      await ask(b, { op: 'pin-export', name: 'a', leaseMs: 60_000 });
      must(await b.ask({ op: 'unexport', name: 'a' }));
      await exportPages(b, 'a', 2);
      assert.deepEqual((await look(b, 'a')).leaseMs, 0, 'the next export of the name has no lease');
      must(await b.ask({ op: 'unexport', name: 'a' }));
    });

    handler(
      "calls for another tenant's exports, system exports, invalid names and too many pages are refused",
      async (b) => {
        await exportPages(b, 'a', 9);
        const stranger = b.connection.openInferlet({ id: 'stranger', tenant: 'another', maxPages: 4, arrival: 2 });
        const theirs = { inferlet: stranger, queue: stranger.createQueue('tiny') };
        const operations: ExportControl[] = [
          { op: 'export-residency', name: 'a' },
          { op: 'pin-export', name: 'a', leaseMs: 10 },
          { op: 'unpin-export', name: 'a' },
          { op: 'retain-export', name: 'a', nextUseMs: 10 },
          { op: 'prefetch-export', name: 'a' },
          { op: 'demote-export', name: 'a', tier: 'memory' },
        ];
        for (const operation of operations) {
          assert.equal(await refusal(theirs, operation), 'not-found');
          assert.equal(await refusal(b, { ...operation, name: 'system/a' }), 'unsupported');
          assert.equal(await refusal(b, { ...operation, name: 'a b' }), 'invalid-argument');
        }
        // A quarter of the 64 pages may be pinned, and half of that by one tenant: 8 pages. The export has 9.
        assert.equal(await refusal(b, { op: 'pin-export', name: 'a', leaseMs: 10_000 }), 'limit-exceeded');
        must(await b.ask({ op: 'unexport', name: 'a' }));
        await exportPages(b, 'b', 5);
        await exportPages(b, 'c', 4);
        await ask(b, { op: 'pin-export', name: 'b', leaseMs: 60_000 });
        await ask(b, { op: 'pin-export', name: 'b', leaseMs: 60_000 });
        assert.equal(await refusal(b, { op: 'pin-export', name: 'c', leaseMs: 10_000 }), 'unavailable');
        for (const leaseMs of [0, 3_600_001, 2 ** 32 - 1])
          assert.equal(await refusal(b, { op: 'pin-export', name: 'b', leaseMs }), 'invalid-argument');
        assert.ok((await look(b, 'b')).leaseMs > 50_000, 'a refusal changes nothing');
        assert.equal(await refusal(b, { op: 'demote-export', name: 'b', tier: 'device' }), 'invalid-argument');
        assert.ok((await look(b, 'b')).leaseMs > 50_000, 'a refusal changes nothing');
        assert.equal(await refusal(b, { op: 'demote-export', name: 'c', tier: 'disk' }), 'unsupported');
        for (const name of ['b', 'c']) must(await b.ask({ op: 'unexport', name }));
        await stranger.close();
      },
    );
  },
  { model: SWAP },
);

describe('residency under pressure', () => {
  test('exports with an expected use leave the device late, pinned ones last, and a lease ends before an inferlet is preempted', async () => {
    await using host = await startTestHost({ pageCount: 160, model: { ...SWAP, prefixCache: false } });
    const b = await bench(host);
    const names = ['soon', 'later', 'pinned', 'old', 'new'];
    for (const name of names) await exportPages(b, name, 8);
    await ask(b, { op: 'pin-export', name: 'pinned', leaseMs: 600_000 });
    await ask(b, { op: 'retain-export', name: 'soon', nextUseMs: 100_000 });
    await ask(b, { op: 'retain-export', name: 'later', nextUseMs: 500_000 });
    const pagesOnDevice = async () => {
      const all = await Promise.all(names.map((name) => look(b, name)));
      return Object.fromEntries(all.map(({ devicePages }, i) => [names[i], devicePages]));
    };
    const user = b.connection.openInferlet({ id: 'user', maxPages: 160, arrival: 5 });
    const queue = user.createQueue('tiny');
    const take = async (count: number) => {
      must(user.allocatePages(queue, count));
      must(await user.synchronize(queue));
    };
    // The exports leave 120 frames free, so eight exported pages have to go.
    await take(120 + 8);
    assert.deepEqual(await pagesOnDevice(), { soon: 8, later: 8, pinned: 8, old: 0, new: 8 });
    await take(12);
    assert.deepEqual(await pagesOnDevice(), { soon: 8, later: 4, pinned: 8, old: 0, new: 0 });
    await take(12);
    assert.deepEqual(await pagesOnDevice(), { soon: 0, later: 0, pinned: 8, old: 0, new: 0 });
    assert.equal((await look(b, 'pinned')).leaseEnded, undefined);
    assert.equal(host.host.stats().models[0]?.pinnedPages, 8);
    await take(1);
    const { leaseMs, leaseEnded, devicePages } = await look(b, 'pinned');
    assert.deepEqual([leaseMs, leaseEnded, devicePages], [0, 'pressure', 7]);
    await take(7);
    const { terminations, preemptions, pinnedPages, leasesEnded } = host.host.stats().models[0]!;
    assert.deepEqual([terminations, preemptions, pinnedPages, leasesEnded], [0, 0, 0, 1]);
    // The inferlet `user` holds all frames, and a prefetch takes none from an inferlet.
    assert.equal((await ask(b, { op: 'prefetch-export', name: 'soon' })).devicePages, 0);
    await user.close();
    assert.equal((await ask(b, { op: 'prefetch-export', name: 'soon' })).devicePages, 8);
  });

  test('an inferlet that waits for memory gets it before a prefetch', async () => {
    await using host = await startTestHost({ pageCount: 32, model: { ...SWAP, prefixCache: false } });
    const b = await bench(host);
    await exportPages(b, 'a', 8);
    await ask(b, { op: 'demote-export', name: 'a', tier: 'memory' });
    const open = (arrival: number): Guest => {
      const inferlet = b.connection.openInferlet({ id: `${arrival}`, maxPages: 32, arrival });
      return { inferlet, queue: inferlet.createQueue('tiny') };
    };
    const [older, newer] = [open(0), open(9)];
    const step = ({ inferlet, queue }: Guest, pages: Uint32Array) =>
      inferlet.ask(queue, {
        op: 'step',
        request: {
          tokens: ids(1),
          positions: range(0, 1),
          inPages: pages,
          outPages: pages,
          mask: undefined,
          rows: 1,
          output: { tag: 'distributions', val: 1 },
        },
      });
    must(await step(older, must(older.inferlet.allocatePages(older.queue, 24))));
    const held = step(newer, must(newer.inferlet.allocatePages(newer.queue, 16)));
    must(await b.inferlet.synchronize(b.queue));
    while (!host.host.engines[0]!.memory.relief.holdsCalls) must(await older.inferlet.synchronize(older.queue));
    assert.equal((await ask(older, { op: 'prefetch-export', name: 'a' })).devicePages, 0);
    await older.inferlet.close();
    must(await held);
    await newer.inferlet.close();
  });

  for (const backend of BACKENDS) {
    test(`a persistent export moves to disk, and comes back when it is pinned or prefetched (${backend})`, async () => {
      await using host = await startTestHost({ backend, kv: true, model: SWAP });
      const b = await bench(host);
      await exportPages(b, 'kept', 3, true);
      const read = async () => {
        const { pages } = must(await b.inferlet.importPages(b.queue, 'kept'));
        const found = await b.probe(pages, 7, PROMPT.length);
        b.inferlet.freePages(b.queue, pages);
        return found;
      };
      const before = await read();
      must(await b.inferlet.synchronize(b.queue));
      const demoted = await ask(b, { op: 'demote-export', name: 'kept', tier: 'disk' });
      assert.deepEqual([demoted.tier, demoted.diskPages, demoted.devicePages], ['disk', 3, 0]);
      assert.equal((await b.connection.stats()).tenants[0]?.pages, 0, 'pages on disk count for no tenant');
      assert.equal((await ask(b, { op: 'retain-export', name: 'kept', nextUseMs: 10 })).tier, 'disk');
      const pinned = await ask(b, { op: 'pin-export', name: 'kept', leaseMs: 60_000 });
      assert.deepEqual([pinned.tier, pinned.devicePages], ['device', 3]);
      assert.ok(pinned.leaseMs > 0);
      assert.deepEqual(await read(), before);
      await ask(b, { op: 'demote-export', name: 'kept', tier: 'disk' });
      assert.equal((await ask(b, { op: 'prefetch-export', name: 'kept' })).tier, 'device');
      assert.deepEqual(await read(), before);
      await ask(b, { op: 'demote-export', name: 'kept', tier: 'disk' });
      const full = b.connection.openInferlet({ id: 'full', maxPages: 64, arrival: 2 });
      const queue = full.createQueue('tiny');
      must(full.allocatePages(queue, 63));
      must(await full.synchronize(queue));
      assert.equal(await refusal(b, { op: 'prefetch-export', name: 'kept' }), 'unavailable');
      assert.equal(await refusal(b, { op: 'pin-export', name: 'kept', leaseMs: 10 }), 'unavailable');
      await full.close();
    });
  }
});

async function bench(host: TestHost): Promise<Workbench> {
  return new Workbench(host, await Oracle.of(host.model), await host.connect(), 'x');
}

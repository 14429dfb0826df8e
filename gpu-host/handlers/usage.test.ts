import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Backend } from '../backends/backend.ts';
import { generate, must, startTestHost, tagOf } from '../testing/host.ts';
import {
  checkCharged,
  ids,
  onOneBackend,
  openedBy,
  PROMPT,
  type Workbench,
  withWorkbench,
} from '../testing/workbench.ts';
import { wrapBackend } from '../testing/wrapped-backend.ts';

withWorkbench('usage', (handler) => {
  handler('each inferlet pays for its device time, and for its pages as long as it holds them', async (b) => {
    const beside = b.connection.openInferlet({ id: 'beside', maxPages: 40, arrival: 2 });
    const idle = b.connection.openInferlet({ id: 'idle', maxPages: 40, arrival: 3 });
    idle.createQueue('tiny');
    const queue = beside.createQueue('tiny');
    await Promise.all([generate(b.inferlet, b.queue, PROMPT, 24), generate(beside, queue, [9, 8, 7], 4)]);
    await Promise.all([b.inferlet.close(), beside.close(), idle.close()]);
    assert.deepEqual(idle.usage, { gpuUs: 0, pageMs: 0, encodedTokens: 0 });
    assert.ok(beside.usage.gpuUs > 0 && beside.usage.gpuUs < b.inferlet.usage.gpuUs, 'more computation costs more');
    assert.ok(b.inferlet.usage.pageMs > 0);
  });
});

test('usage is reported while an inferlet runs and before memory ends it, and includes swap-ins', async () => {
  await using host = await startTestHost({ pageCount: 16, model: { swapMemoryBytes: 4 * 4096, prefixCache: false } });
  const connection = await host.connect();
  const opened = openedBy(connection);
  const fill = async (inferlet: (typeof opened)[number], queue: number, pages: number) => {
    const own = must(inferlet.allocatePages(queue, pages));
    const positions = Uint32Array.from({ length: pages * 8 }, (_, i) => i);
    const tokens = positions.map((i) => (i * 7 + pages) % 90);
    const request = { tokens, positions, inPages: ids(), outPages: own, mask: undefined, rows: 0 };
    must(await inferlet.ask(queue, { op: 'step', request: { ...request, output: { tag: 'none' } } }));
    return own;
  };
  const waiting = connection.openInferlet({ id: 'waiting', maxPages: 16, arrival: 1 });
  const waitingQueue = waiting.createQueue('tiny');
  const waitingPages = await fill(waiting, waitingQueue, 10);
  while (waiting.usage.gpuUs === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  waiting.setWaiting(true);
  const ended: { cause: string; gpuUs: number }[] = [];
  const newest = connection.openInferlet({
    id: 'newest',
    maxPages: 16,
    arrival: 3,
    onTerminated: ({ cause }) => ended.push({ cause, gpuUs: newest.usage.gpuUs }),
  });
  const newestQueue = newest.createQueue('tiny');
  await fill(newest, newestQueue, 10);
  // Four pages of `waiting` are in swap, which is full. They come back for this step, so the newest inferlet must end.
  const probe = {
    tokens: ids(1),
    positions: ids(80),
    inPages: waitingPages,
    outPages: ids(),
    mask: undefined,
    rows: 1,
  };
  must(
    await waiting.ask(waitingQueue, { op: 'step', request: { ...probe, output: { tag: 'distributions', val: 1 } } }),
  );
  assert.equal(tagOf(await newest.synchronize(newestQueue)), 'terminated');
  assert.match(ended[0]?.cause ?? '', /^memory pressure: the newest of 2 inferlets gave way to/);
  assert.equal(ended[0]?.gpuUs, newest.usage.gpuUs, 'the usage was reported before the termination');
  await Promise.all(opened.map((inferlet) => inferlet.close()));
  const { models } = await connection.stats();
  assert.ok((models[0]?.swapsIn ?? 0) >= 4);
  checkCharged(opened, models[0]?.deviceBusyMs ?? 0);
});

test('an inferlet that only holds pages still receives its usage', async () => {
  await using host = await startTestHost({ host: { limits: { usageMs: 1, holdingMs: 10 } } });
  const connection = await host.connect();
  const inferlet = connection.openInferlet({ id: 'holder', maxPages: 16, arrival: 1 });
  const queue = inferlet.createQueue('tiny');
  must(inferlet.allocatePages(queue, 4));
  must(await inferlet.synchronize(queue));
  inferlet.setWaiting(true);
  const reportedPageMs = new Set<number>();
  while (reportedPageMs.size < 4) {
    reportedPageMs.add(inferlet.usage.pageMs);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await inferlet.close();
});

/** Duration of a copy on the device in the next test, ms. */
const COPY_MS = 3;
/** Time to read a page from the device for swap in the next test, ms. */
const READ_MS = 2;

test('failed steps, copies and evictions for copies are charged to the requester', async () => {
  let failing = false;
  const wrap = (backend: Backend): Backend =>
    wrapBackend(backend, {
      forward: async (sequences) => {
        if (!failing) return backend.forward(sequences);
        await new Promise((resolve) => setTimeout(resolve, 10));
        throw new Error('the device has failed');
      },
      copySlots: (...slots) => {
        spin(COPY_MS);
        backend.copySlots(...slots);
      },
      readPage: (frame, into) => {
        spin(READ_MS);
        backend.readPage(frame, into);
      },
    });
  const model = { swapMemoryBytes: 1 << 20, prefixCache: false };
  await using host = await startTestHost({ pageCount: 16, model, wrap });
  const connection = await host.connect();
  const opened = openedBy(connection);
  const open = (id: string, arrival: number) => {
    const inferlet = connection.openInferlet({ id, maxPages: 16, arrival });
    return { inferlet, queue: inferlet.createQueue('tiny') };
  };
  const fill = ({ inferlet, queue }: ReturnType<typeof open>, own: Uint32Array) => {
    const positions = Uint32Array.from({ length: own.length * 8 }, (_, i) => i);
    const request = { tokens: positions, positions, inPages: ids(), outPages: own, mask: undefined, rows: 0 };
    return inferlet.ask(queue, { op: 'step', request: { ...request, output: { tag: 'none' } } });
  };
  const [waiting, copying] = [open('waiting', 1), open('copying', 2)];
  must(await fill(waiting, must(waiting.inferlet.allocatePages(waiting.queue, 8))));
  waiting.inferlet.setWaiting(true);
  const own = must(copying.inferlet.allocatePages(copying.queue, 2));
  must(await fill(copying, own));
  const busyBeforeMs = host.host.stats().models[0]?.deviceBusyMs ?? 0;
  copying.inferlet.send(copying.queue, {
    op: 'copy-slots',
    source: own[0] as number,
    sourceOffset: 0,
    destination: own[1] as number,
    destinationOffset: 0,
    count: 8,
    shift: 0,
  });
  // The host swaps out pages of `waiting` to make room.
  const more = must(copying.inferlet.allocatePages(copying.queue, 10));
  must(await copying.inferlet.synchronize(copying.queue));
  const busyAfterCopyMs = host.host.stats().models[0]?.deviceBusyMs ?? 0;
  assert.ok(busyAfterCopyMs - busyBeforeMs >= COPY_MS + 4 * READ_MS, 'a copy, and at least four pages to swap');
  failing = true;
  assert.equal(tagOf(await fill(copying, more)), 'internal');
  assert.ok((host.host.stats().models[0]?.deviceBusyMs ?? 0) - busyAfterCopyMs >= 9, 'the device worked in vain');
  await Promise.all(opened.map((inferlet) => inferlet.close()));
  // At least 3 ms for the copy, 8 for swap and 9 for the failed step.
  assert.ok(copying.inferlet.usage.gpuUs >= 20_000);
  checkCharged(opened, host.host.stats().models[0]?.deviceBusyMs ?? 0);
});

/** Works for `ms` milliseconds. */
function spin(ms: number): void {
  for (const startedMs = performance.now(); performance.now() - startedMs < ms; );
}

onOneBackend('the quota of a tenant', (handler) => {
  const open = (b: Workbench, id: string, tenant: string, pages?: number | null, readAt = 1) => {
    const limit = pages === undefined ? {} : { tenantPages: { pages, readAt } };
    const inferlet = b.connection.openInferlet({ id, tenant, maxPages: 40, arrival: 5, ...limit });
    return { inferlet, queue: inferlet.createQueue('tiny') };
  };
  const pagesOf = async ({ connection }: Workbench) =>
    (await connection.stats()).tenants.filter(({ pages }) => pages > 0);

  handler(
    "bounds the pages of the tenant's inferlets and exports together, is named in the refusal, and affects no other tenant",
    async (b) => {
      const one = open(b, 'one', 'small', 8);
      const two = open(b, 'two', 'small', 8);
      const other = open(b, 'other', 'large');
      const own = must(one.inferlet.allocatePages(one.queue, 5));
      must(await one.inferlet.synchronize(one.queue));
      must(two.inferlet.allocatePages(two.queue, 4));
      const refused = await two.inferlet.synchronize(two.queue);
      assert.equal(tagOf(refused), 'limit-exceeded');
      assert.match(
        refused.tag === 'err' ? refused.val.val : '',
        /quota kv-pages: 5 pages are held by the tenant's inferlets, exports and files on this host and 4 more are needed; 8 is/,
      );
      must(other.inferlet.allocatePages(other.queue, 20));
      must(await other.inferlet.synchronize(other.queue));
      must(
        await one.inferlet.ask(one.queue, {
          op: 'export-pages',
          pages: own.subarray(0, 3),
          name: 'kept',
          persistent: false,
        }),
      );
      await one.inferlet.close();
      assert.deepEqual(await pagesOf(b), [
        { tenant: 'large', pages: 20, maxPages: null },
        { tenant: 'small', pages: 3, maxPages: 8 },
      ]);
      assert.deepEqual((await b.connection.stats({ modelsOnly: true })).tenants, []);
      // The three imported pages count for the tenant already, so it may allocate five more, but not six.
      must(await two.inferlet.importPages(two.queue, 'kept'));
      must(two.inferlet.allocatePages(two.queue, 5));
      must(await two.inferlet.synchronize(two.queue));
      must(two.inferlet.allocatePages(two.queue, 1));
      assert.equal(tagOf(await two.inferlet.synchronize(two.queue)), 'limit-exceeded');
      const raised = open(b, 'raised', 'small', 9, 2);
      must(raised.inferlet.allocatePages(raised.queue, 1));
      must(await raised.inferlet.synchronize(raised.queue));
      must(await two.inferlet.ask(two.queue, { op: 'unexport', name: 'kept' }));
    },
  );

  handler('may be 0 pages; when several limits arrive, the one that was read last applies', async (b) => {
    const claim = async ({ inferlet, queue }: ReturnType<typeof open>, pages: number) => {
      must(inferlet.allocatePages(queue, pages));
      const outcome = await inferlet.synchronize(queue);
      return outcome.tag === 'ok' ? 'ok' : outcome.val.val;
    };
    const one = open(b, 'one', 'none', 0, 10);
    assert.match(await claim(one, 1), /^quota kv-pages: 0 pages are held .* 0 is the tenant's limit/);
    // This inferlet is opened later, but its limit was read earlier.
    const second = open(b, 'second', 'none', null, 9);
    assert.match(await claim(second, 1), /0 is the tenant's limit/);
    one.inferlet.setTenantLimit({ pages: 3, readAt: 11 });
    assert.equal(await claim(second, 3), 'ok');
    second.inferlet.setTenantLimit({ pages: 100, readAt: 10 });
    assert.match(await claim(one, 1), /3 is the tenant's limit/);
    // The tenant has no limit now.
    second.inferlet.setTenantLimit({ pages: null, readAt: 12 });
    assert.equal(await claim(one, 4), 'ok');
    // This limit was read before the one above.
    assert.equal(await claim(open(b, 'last', 'none', 1, 11), 4), 'ok');
  });
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DeviceMemory } from './device-memory.ts';
import { fillSlot } from './pool.ts';
import type { PageSpace } from './space.ts';
import { SwapStore } from './swap/store.ts';
import { ArrayDevice } from './testing/array-device.ts';
import { faultOf, makeMemory, type TestMemory } from './testing/memory.ts';

const PAGE_SIZE = 8;

/** Writes a distinct value to each of `count` pages from `first` on. */
function fill({ device }: TestMemory, space: PageSpace, first: number, count: number, value: number): void {
  for (let address = first; address < first + count; address++) {
    const [empty] = space.emptySlots(Uint32Array.of(address), 1);
    assert.ok(empty);
    device.write(empty.page.frame * PAGE_SIZE + empty.slot, value + address, 0);
    fillSlot(empty.page, empty.slot, 0);
  }
}

function valueAt({ device }: TestMemory, space: PageSpace, address: number): number {
  return device.read(space.mapping(address).page.frame * PAGE_SIZE).value;
}

test('the newest inferlets are ended until the request fits, never an older one', () => {
  const ended: string[] = [];
  const kit = makeMemory({ pages: 9, ended: ({ owner }, cause) => ended.push(`${owner.id}: ${cause}`) });
  const [oldest, middle, newest] = [kit.open(), kit.open(), kit.open()];
  for (const space of [oldest, middle, newest]) space.allocate(1, 3);
  const refused = faultOf(() => newest.allocate(4, 1)).error;
  assert.equal(refused.tag, 'terminated');
  assert.match(refused.val, /the newest of 3 inferlets found no room for 1 pages more/);
  assert.equal(faultOf(() => newest.mapping(1)).error.tag, 'terminated');
  assert.equal(faultOf(() => newest.allocate(1, 1)).error.tag, 'terminated');
  oldest.allocate(4, 4);
  assert.equal(ended.length, 2);
  assert.match(
    ended[1] ?? '',
    /^inferlet-1: memory pressure: the newest of 2 inferlets gave way to an earlier invocation/,
  );
  assert.equal(kit.memory.stats().terminations, 2);
  oldest.allocate(8, 2);
  assert.equal(faultOf(() => oldest.allocate(20, 1)).error.tag, 'limit-exceeded');
  assert.equal(ended.length, 2, 'a request that never fits ends no inferlet');
  kit.memory.audit();
});

test('a child counts as old as its root to other inferlets, but is newer than its root', () => {
  const ended: string[] = [];
  const kit = makeMemory({ pages: 6, ended: ({ owner }) => ended.push(owner.id) });
  const root = kit.open({ arrival: 5 });
  const other = kit.open({ arrival: 6 });
  const child = kit.open({ arrival: 5 });
  root.allocate(1, 2);
  other.allocate(1, 2);
  child.allocate(1, 2);
  child.allocate(3, 1);
  assert.deepEqual(ended, ['inferlet-1'], 'the other inferlet ends: the child counts as old as its root');
  root.allocate(3, 2);
  assert.deepEqual(ended, ['inferlet-1', 'inferlet-2'], 'the child ends: it gives way to its root');
});

test('pages of waiting inferlets go to swap before an inferlet is ended, and come back with their content', () => {
  const kit = makeMemory({ pages: 4, swapMemoryPages: 2, swapDiskPages: 4 });
  const [waiting, working, newest] = [9, 1, 10].map((arrival) => kit.open({ arrival })) as [
    PageSpace,
    PageSpace,
    PageSpace,
  ];
  waiting.allocate(1, 4);
  fill(kit, waiting, 1, 4, 100);
  waiting.waiting = true;
  waiting.busy = true;
  assert.equal(faultOf(() => newest.allocate(1, 1)).error.tag, 'terminated');
  assert.equal(kit.memory.stats().swapsOut, 0, 'the device may use the pages of a busy inferlet');
  waiting.busy = false;
  working.allocate(1, 3);
  fill(kit, working, 1, 3, 200);
  assert.equal(kit.memory.stats().swapsOut, 3);
  assert.equal(kit.memory.pool.counts().swappedOut, 3);
  kit.memory.audit();
  working.waiting = true;
  const addresses = Uint32Array.of(1, 2, 3, 4);
  waiting.makeResident(waiting.peekAll(addresses));
  assert.deepEqual(
    Array.from(addresses, (address) => valueAt(kit, waiting, address)),
    [101, 102, 103, 104],
  );
  assert.equal(kit.memory.stats().terminations, 1, 'the newest inferlet alone');
  working.free(Uint32Array.of(1));
  kit.memory.audit();
  kit.memory.closeSpace(waiting);
  assert.deepEqual(
    [2, 3].map((address) => valueAt(kit, working, address)),
    [202, 203],
  );
  kit.memory.audit();
  kit.swap?.close();
});

test('a page that a working inferlet shares stays on the device; a page that only waiting inferlets share goes to swap', () => {
  const kit = makeMemory({ pages: 3, swapMemoryPages: 9 });
  const [first, second, third] = [kit.open(), kit.open(), kit.open({ arrival: -1 })];
  first.allocate(1, 2);
  fill(kit, first, 1, 2, 0);
  const snapshot = first.snapshot(Uint32Array.of(1));
  second.importSnapshot(1, snapshot);
  first.waiting = true;
  third.allocate(1, 2);
  assert.ok(first.peek(1).page.frame >= 0);
  assert.ok(first.peek(2).page.frame < 0);
  second.waiting = true;
  third.allocate(3, 1);
  assert.ok(first.peek(1).page.frame < 0);
  kit.memory.audit();
});

test('pages of unmapped snapshots go to swap first, and empty pages need no room there', () => {
  const kit = makeMemory({ pages: 4, swapMemoryPages: 1 });
  const [owner, working] = [kit.open({ arrival: 9 }), kit.open({ arrival: 1 })];
  owner.allocate(1, 3);
  fill(kit, owner, 1, 1, 500);
  const snapshot = owner.snapshot(Uint32Array.of(1));
  kit.memory.snapshots.retain(snapshot);
  owner.free(Uint32Array.of(1));
  owner.waiting = true;
  working.allocate(1, 2);
  assert.ok((snapshot.pages[0]?.page.frame ?? 0) < 0);
  working.allocate(3, 2);
  assert.equal(kit.memory.stats().terminations, 0);
  assert.equal(kit.memory.pool.counts().swappedOut, 3);
  const bytes = new Uint8Array(kit.device.pageBytes);
  kit.memory.snapshots.readPage(snapshot, 0, bytes);
  kit.device.settlePages();
  assert.equal(new Int32Array(bytes.buffer)[0], 501, 'a page in swap can be read');
  assert.equal(faultOf(() => owner.mapping(2)).error.tag, 'terminated', 'the other inferlet holds every frame');
  kit.memory.audit();
});

test('a pool full of exports for which swap has no room ends no inferlet', () => {
  const kit = makeMemory({ pages: 3 });
  const [exporter, other] = [kit.open(), kit.open()];
  exporter.allocate(1, 2);
  fill(kit, exporter, 1, 2, 0);
  const snapshot = exporter.snapshot(Uint32Array.of(1, 2));
  kit.memory.snapshots.retain(snapshot);
  kit.memory.closeSpace(exporter);
  assert.equal(faultOf(() => other.allocate(1, 2)).error.tag, 'limit-exceeded');
  other.allocate(1, 1);
  kit.memory.snapshots.release(snapshot);
  other.allocate(2, 2);
  kit.memory.audit();
});

test('a written page is copied only if another holder of it stays', () => {
  const ended: string[] = [];
  const kit = makeMemory({ pages: 2, ended: ({ owner }) => ended.push(owner.id) });
  const [old, young] = [kit.open(), kit.open()];
  old.allocate(1, 2);
  fill(kit, old, 1, 2, 0);
  young.importSnapshot(1, old.snapshot(Uint32Array.of(1)));
  const { page } = old.peek(1);
  // The write needs a frame for a copy, and none is free. Once the newest inferlet is ended for it, the page has one holder and is written in place.
  fill(kit, old, 1, 1, 70);
  assert.deepEqual(ended, ['inferlet-1'], 'the inferlet that shared the page was the newest');
  assert.equal(old.peek(1).page, page);
  kit.memory.audit();
});

test('a page that two inferlets share becomes free only when both have ended', () => {
  const ended: string[] = [];
  const kit = makeMemory({ pages: 6, ended: ({ owner }) => ended.push(owner.id) });
  const [oldest, second, third] = [kit.open(), kit.open(), kit.open()];
  second.allocate(1, 2);
  fill(kit, second, 1, 2, 0);
  third.importSnapshot(1, second.snapshot(Uint32Array.of(1, 2)));
  third.allocate(3, 1);
  oldest.allocate(1, 4);
  assert.deepEqual(ended, ['inferlet-2'], 'the page that only this inferlet holds is enough');
  kit.memory
    .openSpace({ id: 'late', tenant: 'tenant', arrival: 7, maxPages: 9 })
    .importSnapshot(1, second.snapshot(Uint32Array.of(1, 2)));
  oldest.allocate(5, 2);
  assert.deepEqual(ended, ['inferlet-2', 'late', 'inferlet-1']);
  kit.memory.audit();
});

test('no inferlet is ended for pages that an older one would keep', () => {
  for (const oldestWaits of [false, true]) {
    const ended: string[] = [];
    const kit = makeMemory({
      pages: 4,
      swapMemoryPages: oldestWaits ? 4 : 0,
      ended: ({ owner }) => ended.push(owner.id),
    });
    const [oldest, middle, newest] = [kit.open(), kit.open(), kit.open()];
    oldest.allocate(1, 2);
    fill(kit, oldest, 1, 2, 0);
    newest.importSnapshot(1, oldest.snapshot(Uint32Array.of(1, 2)));
    oldest.waiting = oldestWaits;
    if (oldestWaits) middle.allocate(1, 3);
    else assert.equal(faultOf(() => middle.allocate(1, 3)).error.tag, 'terminated');
    assert.deepEqual(
      ended,
      oldestWaits ? ['inferlet-2'] : ['inferlet-1'],
      'the newest ends only if the shared pages can then go to swap; otherwise the requester ends',
    );
    kit.memory.audit();
  }
});

test('a page that swap lost fails the calls that need it and no others', () => {
  const device = new ArrayDevice(PAGE_SIZE, 1);
  let isBroken = false;
  const swap = new SwapStore({
    pageBytes: device.pageBytes,
    memoryBytes: 0,
    diskBytes: device.pageBytes * 4,
    directory: '/nowhere',
    report: () => undefined,
    openFile: () => {
      const stored = new Map<number, Uint8Array>();
      return {
        write: (slot, bytes) => void stored.set(slot, bytes.slice()),
        writeAsync: async () => assert.fail('no page is in memory'),
        readAsync: async () => assert.fail('nothing fetches pages'),
        read(slot, into) {
          if (isBroken) throw new Error('the disk is gone');
          into.set(stored.get(slot) ?? []);
        },
        close: () => {},
      };
    },
  });
  const terminate = (space: PageSpace): void => space.releaseAll();
  const options = { pageSize: PAGE_SIZE, pageCount: 1, device, swap, prefixCache: true, rotates: true, terminate };
  const memory = new DeviceMemory(options);
  const [waiting, working] = [1, 2].map((arrival) =>
    memory.openSpace({ id: `${arrival}`, tenant: 't', arrival, maxPages: 4 }),
  ) as [PageSpace, PageSpace];
  waiting.allocate(1, 1);
  const [slot] = waiting.emptySlots(Uint32Array.of(1), 1);
  if (slot) fillSlot(slot.page, 0, 0);
  waiting.waiting = true;
  working.allocate(1, 1);
  isBroken = true;
  memory.closeSpace(working);
  const lost = faultOf(() => waiting.mapping(1)).error;
  assert.equal(lost.tag, 'internal');
  assert.match(lost.val, /the disk is gone/);
  assert.equal(memory.pool.free, 1, 'the claimed frame is free');
  memory.audit();
  isBroken = false;
  assert.equal(waiting.mapping(1).page.filled, 1);
  memory.audit();
});

test('freeing a page while it comes from disk ends no other inferlet', async () => {
  const ended: string[] = [];
  const kit = makeMemory({ pages: 3, swapDiskPages: 2, ended: ({ owner }) => ended.push(owner.id) });
  const [older, newer, newest] = [kit.open(), kit.open(), kit.open()];
  older.allocate(1, 1);
  fill(kit, older, 1, 1, 40);
  newer.importSnapshot(1, older.snapshot(Uint32Array.of(1)));
  older.waiting = true;
  newer.waiting = true;
  newest.allocate(1, 3);
  const { page } = older.peek(1);
  assert.equal(page.swapped?.place, 'disk');
  kit.memory.closeSpace(newest);
  older.waiting = false;
  newer.waiting = false;
  older.allocate(2, 1);
  newer.allocate(2, 2);
  await kit.memory.bringFromDisk(older, [page], async (move) => {
    older.free(Uint32Array.of(1));
    move();
  });
  assert.deepEqual(ended, []);
  newer.free(Uint32Array.of(2));
  assert.equal(valueAt(kit, newer, 1), 41);
  kit.memory.audit();
});

test('a snapshot is restored from its bytes as a whole, or not at all', () => {
  const kit = makeMemory({ pages: 3 });
  const space = kit.open();
  space.allocate(1, 1);
  fill(kit, space, 1, 1, 40);
  const bytes = new Uint8Array(kit.device.pageBytes);
  kit.device.readPage(space.mapping(1).page.frame, bytes);
  const page = { filled: 1, masked: 0b10, positions: Uint32Array.of(7, 0, 0, 0, 0, 0, 0, 0) };
  const abandoned = kit.memory.restore(space, 'tenant', 2);
  abandoned.fill(0, page, bytes);
  assert.deepEqual([kit.memory.pool.free, space.heldPages], [0, 3]);
  kit.memory.audit();
  abandoned.end();
  assert.equal(kit.memory.pool.free, 2);
  kit.memory.audit();
  const restoration = kit.memory.restore(space, 'tenant', 2);
  for (const index of [0, 1]) restoration.fill(index, page, bytes);
  const restored = restoration.finish(2, 8);
  space.importSnapshot(10, restored);
  restoration.end();
  kit.memory.audit();
  assert.equal(valueAt(kit, space, 11), 41);
  assert.deepEqual([space.mapping(10).masked, space.mapping(10).page.maxPosition], [0b10, 7]);
  kit.memory.snapshots.release(restored);
  kit.memory.audit();
});

test('pages on their way from disk stay on the device until the inferlet that asked for them ends', () => {
  const kit = makeMemory({ pages: 4, swapMemoryPages: 8 });
  const [importer, older] = [kit.open({ arrival: 2 }), kit.open({ arrival: 1 })];
  importer.waiting = true;
  importer.busy = true;
  const restoration = kit.memory.restore(importer, 'tenant', 3);
  older.allocate(1, 1);
  assert.equal(importer.terminationCause, undefined);
  older.allocate(2, 1);
  assert.notEqual(importer.terminationCause, undefined);
  assert.equal(kit.memory.pool.free, 2);
  const page = { filled: 1, masked: 0, positions: new Uint32Array(PAGE_SIZE) };
  assert.throws(() => restoration.fill(0, page, new Uint8Array(kit.device.pageBytes)), /not on the device/);
  restoration.end();
  assert.equal(kit.memory.pool.free, 2);
  kit.memory.audit();
});

test('memory throws when an inferlet keeps its pages after it was ended', () => {
  const device = new ArrayDevice(PAGE_SIZE, 1);
  const memory = new DeviceMemory({
    pageSize: PAGE_SIZE,
    pageCount: 1,
    device,
    swap: undefined,
    prefixCache: false,
    rotates: true,
    terminate: () => {},
  });
  const old = memory.openSpace({ id: 'a', tenant: 't', arrival: 1, maxPages: 1 });
  const young = memory.openSpace({ id: 'b', tenant: 't', arrival: 2, maxPages: 1 });
  young.allocate(1, 1);
  assert.throws(() => old.allocate(1, 1), /kept its pages/);
});

test('no room is made for a snapshot that its importer may not hold', () => {
  const kit = makeMemory({ pages: 4, swapMemoryPages: 8 });
  const [waiting, newest] = [kit.open({ arrival: 8 }), kit.open({ arrival: 9 })];
  waiting.allocate(1, 2);
  fill(kit, waiting, 1, 2, 0);
  waiting.waiting = true;
  newest.allocate(1, 2);
  // More pages than the importer may hold, then more than the pool has.
  for (const [maxPages, count] of [
    [2, 3],
    [9, 5],
  ] as const) {
    const importer = kit.open({ arrival: 0, maxPages });
    const refused = faultOf(() => kit.memory.restore(importer, 't', count)).error;
    assert.equal(refused.tag, 'limit-exceeded');
  }
  const { terminations, swapsOut } = kit.memory.stats();
  assert.deepEqual([terminations, swapsOut, newest.heldPages, waiting.heldPages], [0, 0, 2, 2]);
  kit.memory.audit();
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { handlerError } from '../protocol/errors.ts';
import { MAX_PAGE_ADDRESSES } from '../protocol/page-budget.ts';
import { bitCount, fillSlot } from './pool.ts';
import type { PageSpace } from './space.ts';
import { faultOf, makeMemory, type TestMemory } from './testing/memory.ts';

const PAGE_SIZE = 8;

/** Writes inputs whose values are their positions. */
function write({ device }: TestMemory, space: PageSpace, pages: readonly number[], positions: readonly number[]): void {
  for (const [i, { page, slot }] of space.emptySlots(Uint32Array.from(pages), positions.length).entries()) {
    const position = positions[i]!;
    device.write(page.frame * PAGE_SIZE + slot, position, position);
    fillSlot(page, slot, position);
  }
}

test('a request larger than the pool or the limit claims nothing and ends no inferlet', () => {
  const kit = makeMemory({ pages: 4 });
  const other = kit.open();
  other.allocate(1, 1);
  const space = kit.open({ arrival: -1, maxPages: 3 });
  assert.match(faultOf(() => space.allocate(1, 4)).error.val, /3 is the invocation's limit/);
  const wide = kit.open({ arrival: -2, maxPages: 100 });
  const larger = faultOf(() => wide.allocate(1, 5)).error;
  assert.equal(larger.tag, 'limit-exceeded');
  assert.match(larger.val, /the whole pool has 4/);
  assert.deepEqual(kit.memory.pool.counts(), { free: 3, cached: 0, owned: 1, total: 4, swappedOut: 0 });
  assert.equal(other.heldPages, 1);
});

test('addresses that are not held are refused by name, and calls that need a failed allocation fail with its cause', () => {
  const space = makeMemory({ pages: 4 }).open();
  const queue = {};
  assert.deepEqual(
    faultOf(() => space.mapping(7)).error,
    handlerError('not-owned', 'page 7 is not held: never allocated, or freed'),
  );
  space.failures.markRange(10, 3, handlerError('limit-exceeded', 'no room'), queue);
  const dependent = faultOf(() => space.mapping(12)).error;
  assert.equal(dependent.tag, 'dependency-failed');
  assert.match(dependent.val, /limit-exceeded: no room/);
  space.failures.clear({});
  assert.equal(faultOf(() => space.mapping(12)).error.tag, 'dependency-failed', 'the failure of `queue` stays');
  space.failures.clear(queue);
  assert.equal(faultOf(() => space.mapping(12)).error.tag, 'not-owned');
  space.allocate(20, 1);
  assert.equal(faultOf(() => space.allocate(19, 2)).error.tag, 'invalid-argument', 'an address in use');
  assert.equal(faultOf(() => space.allocate(0xffff_ffff, 2)).error.tag, 'invalid-argument');
  assert.equal(faultOf(() => space.free(Uint32Array.of(20, 20))).error.tag, 'invalid-argument');
});

test('a free gives back all pages that are held, even when it also names addresses without a page', () => {
  const kit = makeMemory({ pages: 4 });
  const space = kit.open();
  const queue = {};
  space.allocate(1, 3);
  space.failures.markRange(4, 2, handlerError('limit-exceeded', 'no room'), queue);
  assert.equal(faultOf(() => space.free(Uint32Array.of(1, 4, 4))).error.tag, 'invalid-argument');
  assert.equal(space.heldPages, 3, 'an address named twice frees nothing');
  space.free(Uint32Array.of(1, 4));
  space.failures.clear(queue);
  space.free(Uint32Array.of(5, 2));
  assert.equal(space.heldPages, 1);
  const refused = faultOf(() => space.free(Uint32Array.of(99, 3))).error;
  assert.deepEqual(refused, handlerError('not-owned', 'page 99 is not held: never allocated, or freed'));
  assert.deepEqual([space.heldPages, kit.memory.pool.free], [0, 4]);
  kit.memory.audit();
});

test('calls that read a page whose content was never computed fail until the failure is reported or the page is freed', () => {
  const space = makeMemory({ pages: 4 }).open();
  const queue = {};
  space.allocate(1, 2);
  space.fail(Uint32Array.of(2, 99), handlerError('invalid-argument', 'bad token'), queue);
  assert.equal(faultOf(() => space.share(Uint32Array.of(1, 2), 10)).error.tag, 'dependency-failed');
  assert.equal(faultOf(() => space.snapshot(Uint32Array.of(2))).error.tag, 'dependency-failed');
  assert.equal(faultOf(() => space.peek(10)).error.tag, 'not-owned');
  space.free(Uint32Array.of(2));
  assert.equal(faultOf(() => space.mapping(2)).error.tag, 'not-owned');
  space.fail(Uint32Array.of(1), handlerError('invalid-argument', 'bad token'), queue);
  space.failures.clear(queue);
  assert.equal(space.mapping(1).masked, 0);
});

test('an inferlet has a bounded number of addresses, also of pages that it shares or imports again and again', () => {
  const kit = makeMemory({ pages: 2 });
  const space = kit.open();
  space.allocate(1, 1);
  const snapshot = space.snapshot(Uint32Array.of(1));
  space.share(new Uint32Array(MAX_PAGE_ADDRESSES - 2).fill(1), 2);
  space.importSnapshot(MAX_PAGE_ADDRESSES, snapshot);
  const past = MAX_PAGE_ADDRESSES + 1;
  for (const more of [
    () => space.importSnapshot(past, snapshot),
    () => space.share(Uint32Array.of(1), past),
    () => space.allocate(past, 1),
  ])
    assert.match(faultOf(more).error.val, /at most 1048576 page addresses/);
  space.free(Uint32Array.of(2));
  space.importSnapshot(past, snapshot);
  assert.equal(space.heldPages, 1);
});

test('a mask belongs to one address of a page, and a new address starts with the mask of its source', () => {
  const space = makeMemory({ pages: 4 }).open();
  space.allocate(1, 1);
  space.share(Uint32Array.of(1), 2);
  space.mask(1, 0b101);
  assert.equal(space.mapping(2).masked, 0);
  space.share(Uint32Array.of(1), 3);
  assert.equal(space.mapping(3).masked, 0b101, 'a new address starts with its source’s mask');
  assert.equal(faultOf(() => space.mask(1, 1 << PAGE_SIZE)).error.tag, 'invalid-argument');
});

test('a write through a shared address copies first, and the last holder writes in place', () => {
  const kit = makeMemory({ pages: 3 });
  const space = kit.open();
  space.allocate(1, 1);
  write(kit, space, [1], [11, 12]);
  space.share(Uint32Array.of(1), 2);
  assert.equal(space.heldPages, 1);
  write(kit, space, [2], [13]);
  assert.equal(space.heldPages, 2);
  assert.notEqual(space.mapping(1).page, space.mapping(2).page);
  assert.equal(bitCount(space.mapping(1).page.filled), 2);
  const before = space.mapping(1).page;
  write(kit, space, [1], [14]);
  assert.equal(space.mapping(1).page, before);
});

test('copies count against the limit, and a write to one page through two addresses needs one copy', () => {
  const kit = makeMemory({ pages: 4 });
  const space = kit.open({ maxPages: 2 });
  space.allocate(1, 1);
  space.share(Uint32Array.of(1, 1), 2);
  write(kit, space, [1], [0]);
  assert.equal(space.heldPages, 2);
  assert.equal(faultOf(() => space.emptySlots(Uint32Array.of(2, 3), 16)).error.tag, 'limit-exceeded');
  assert.equal(space.mapping(2).page, space.mapping(3).page, 'nothing was moved');
  space.free(Uint32Array.of(1));
  assert.equal(space.emptySlots(Uint32Array.of(2, 3), 16).length, 16);
  assert.equal(space.heldPages, 2);
  kit.memory.audit();
});

test('the members of a family share a limit that includes copies, and a member that leaves gives its part back', () => {
  const kit = makeMemory({ pages: 16 });
  const family = { name: 'root', epoch: 1, maxPages: 6 };
  const [one, two, stranger, restarted] = [
    kit.open({ family }),
    kit.open({ family }),
    kit.open({ family: { ...family, name: 'x' } }),
    kit.open({ family: { ...family, epoch: 2 } }),
  ];
  one.allocate(1, 3);
  two.allocate(1, 1);
  write(kit, two, [1], [0]);
  two.share(Uint32Array.of(1, 1, 1), 2);
  assert.equal(two.hasRoom, true);
  write(kit, two, [2], [1]);
  write(kit, two, [3], [1]);
  assert.equal(two.hasRoom, false);
  const refused = faultOf(() => two.emptySlots(Uint32Array.of(4), 1)).error;
  assert.match(refused.val, /6 pages are held by an invocation and its children together and 1 more/);
  assert.equal(faultOf(() => one.allocate(9, 1)).error.tag, 'limit-exceeded');
  stranger.allocate(1, 6);
  restarted.allocate(1, 4);

  two.free(Uint32Array.of(2));
  write(kit, two, [4], [1]);
  two.leaveLimits();
  assert.equal(two.heldPages, 3, 'a device step may still use the pages');
  one.allocate(9, 3);
  kit.memory.closeSpace(two);
  assert.equal(faultOf(() => one.allocate(20, 1)).error.tag, 'limit-exceeded');
  kit.memory.closeSpace(one);
  const heir = kit.open({ family });
  heir.allocate(1, 6);
  kit.memory.audit();
});

test('a space that leaves its limits gives back the pages that it has reserved of its tenant’s quota', () => {
  const kit = makeMemory({ pages: 8 });
  const tenantPages = { pages: 4, readAt: 0 };
  const [one, two] = [kit.open({ tenantPages }), kit.open({ tenantPages })];
  one.limits.reserve();
  one.limits.reserve();
  assert.equal(faultOf(() => two.allocate(1, 3)).error.tag, 'limit-exceeded');
  one.leaveLimits();
  two.allocate(1, 4);
  assert.equal(two.heldPages, 4);
});

test('out-pages are filled in order; too few slots and a page named twice are refused', () => {
  const kit = makeMemory({ pages: 4 });
  const space = kit.open();
  space.allocate(1, 2);
  write(kit, space, [1], [0, 1, 2, 3, 4, 5]);
  const slots = space.emptySlots(Uint32Array.of(1, 2), 4);
  assert.deepEqual(
    slots.map(({ page, slot }) => [page === space.mapping(1).page ? 1 : 2, slot]),
    [
      [1, 6],
      [1, 7],
      [2, 0],
      [2, 1],
    ],
  );
  assert.equal(faultOf(() => space.emptySlots(Uint32Array.of(1, 2), 11)).error.tag, 'context-overflow');
  assert.equal(faultOf(() => space.emptySlots(Uint32Array.of(2, 2), 9)).error.tag, 'invalid-argument');
});

test('a snapshot keeps the content and the masks of the moment when it was taken, and an import maps it copy-on-write', () => {
  const kit = makeMemory({ pages: 6 });
  const { memory } = kit;
  const space = kit.open();
  space.allocate(1, 2);
  write(kit, space, [1, 2], [0, 1, 2, 3, 4, 5, 6, 7, 40]);
  space.mask(1, 0b11);
  const snapshot = space.snapshot(Uint32Array.of(1, 2));
  assert.equal(snapshot.tokens, 9);
  assert.equal(snapshot.nextPosition, 41);
  memory.snapshots.retain(snapshot);
  assert.equal(faultOf(() => space.snapshot(Uint32Array.of(1, 1))).error.tag, 'invalid-argument');
  write(kit, space, [2], [41]);
  assert.equal(bitCount(snapshot.pages[1]!.page.filled), 1, 'a later write copies');
  memory.closeSpace(space);
  const other = kit.open({ maxPages: 2 });
  other.importSnapshot(5, snapshot);
  other.importSnapshot(9, snapshot);
  assert.equal(other.mapping(5).masked, 0b11);
  assert.equal(other.heldPages, 2, 'a page counts once');
  other.allocate(20, 0);
  assert.equal(faultOf(() => other.allocate(20, 1)).error.tag, 'limit-exceeded');
  const narrow = kit.open({ maxPages: 1 });
  assert.equal(faultOf(() => narrow.importSnapshot(5, snapshot)).error.tag, 'limit-exceeded');
  assert.equal(narrow.heldPages, 0);
  memory.snapshots.release(snapshot);
  assert.throws(() => memory.snapshots.release(snapshot), /unknown snapshot/);
  memory.closeSpace(other);
  memory.audit();
  assert.equal(memory.pool.free, 6);
});

test('a release reports, once for all pages, how many more frames a request can take', () => {
  const freed: number[] = [];
  const kit = makeMemory({ pages: 16, prefixCache: true, freed: (_, frames) => freed.push(frames) });
  const [one, two] = [kit.open(), kit.open()];
  one.allocate(1, 5);
  write(kit, one, [1], [0, 1]);
  one.share(Uint32Array.of(1, 1), 10);
  // A write through a shared address moves the address to a copy, and frees nothing.
  write(kit, one, [10], [2]);
  two.importSnapshot(1, one.snapshot(Uint32Array.of(2)));
  assert.deepEqual(freed, []);
  one.free(Uint32Array.of(1, 2, 3, 4));
  assert.deepEqual(freed, [2], 'page 1 is also mapped at 11, and the other space holds page 2');
  one.releaseAll();
  two.free(Uint32Array.of(1));
  two.releaseAll();
  assert.deepEqual(freed, [2, 3, 1]);
  kit.memory.audit();
});

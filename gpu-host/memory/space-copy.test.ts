import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fillSlot } from './pool.ts';
import type { PageSpace } from './space.ts';
import { TokenCopying } from './space-snapshot.ts';
import { copyTokens, faultOf, makeMemory, type TestMemory } from './testing/memory.ts';

const PAGE_SIZE = 8;

/** A space with pages 1 to `pages`, the first of which hold `values` at positions 0, 1, … */
function setUp(pages: number, values: readonly number[], rotates = true): { kit: TestMemory; space: PageSpace } {
  const kit = makeMemory({ pages: 8, rotates });
  const space = kit.open();
  space.allocate(1, pages);
  const addresses = Uint32Array.from({ length: pages }, (_, i) => i + 1);
  for (const [position, { page, slot }] of space.emptySlots(addresses, values.length).entries()) {
    kit.device.write(page.frame * PAGE_SIZE + slot, values[position]!, position);
    fillSlot(page, slot, position);
  }
  return { kit, space };
}

/** Value, position and rotation of each slot of a page; undefined for an empty slot. */
function slotsOf({ device }: TestMemory, space: PageSpace, address: number): (number[] | undefined)[] {
  const { page } = space.mapping(address);
  return Array.from({ length: PAGE_SIZE }, (_, slot) => {
    if ((page.filled & (1 << slot)) === 0) return undefined;
    const { value, rotation } = device.read(page.frame * PAGE_SIZE + slot);
    return [value, page.positions[slot]!, rotation];
  });
}

/** Page and slot to copy from, page and slot to copy to, number of slots, and the shift of their positions. */
type SlotCopyArguments = readonly [
  source: number,
  sourceOffset: number,
  destination: number,
  destinationOffset: number,
  count: number,
  shift: number,
];

function slotCopy([source, sourceOffset, destination, destinationOffset, count, shift]: SlotCopyArguments) {
  return { source, sourceOffset, destination, destinationOffset, count, shift };
}

/** A copy of the tokens at `indices`, counted over all of `sources`. Without `positions` each token keeps its position. */
function tokenCopy(sources: number[], indices: number[], destinations: number[], positions: number[] = []) {
  return {
    sources: Uint32Array.from(sources),
    indices: Uint32Array.from(indices),
    destinations: Uint32Array.from(destinations),
    positions: Uint32Array.from(positions),
  };
}

test('slots are copied with all their flags, and their keys are rotated by the shift', () => {
  const { kit, space } = setUp(2, [10, 11, 12]);
  // Hides slot 1 of page 1. The fourth slot to copy is empty.
  space.mask(1, 0b010);
  space.copySlots(slotCopy([1, 0, 2, 3, 4, 100]));
  assert.deepEqual(slotsOf(kit, space, 2), [
    undefined,
    undefined,
    undefined,
    [10, 100, 100],
    [11, 101, 101],
    [12, 102, 102],
    undefined,
    undefined,
  ]);
  assert.equal(space.mapping(2).masked, 0b010_000);
  assert.equal(space.mapping(2).page.maxPosition, 102, 'the bound on the positions includes the shift');
});

test('a page copied onto itself reads all slots before it writes any', () => {
  const { kit, space } = setUp(1, [10, 11, 12, 13]);
  space.copySlots(slotCopy([1, 0, 1, 1, 3, 0]));
  assert.deepEqual(slotsOf(kit, space, 1).slice(0, 4), [
    [10, 0, 0],
    [10, 0, 0],
    [11, 1, 1],
    [12, 2, 2],
  ]);
  space.copySlots(slotCopy([1, 1, 1, 0, 3, 0]));
  assert.deepEqual(
    slotsOf(kit, space, 1)
      .slice(0, 4)
      .map((slot) => slot?.[0]),
    [10, 11, 12, 12],
  );
});

test('a copy to a shared page does not change what the other address of the page holds', () => {
  const { kit, space } = setUp(2, [10, 11]);
  space.share(Uint32Array.of(2), 3);
  space.copySlots(slotCopy([1, 0, 2, 0, 2, 0]));
  assert.deepEqual(slotsOf(kit, space, 3), new Array(PAGE_SIZE).fill(undefined));
  assert.equal(slotsOf(kit, space, 2)[1]?.[0], 11);
});

test('invalid copies are refused and change nothing', () => {
  const { kit, space } = setUp(2, [10, 11]);
  const before = [slotsOf(kit, space, 1), slotsOf(kit, space, 2)];
  for (const [copy, tag, problem] of [
    [[1, 0, 2, 0, 9, 0], 'invalid-argument', 'more slots than a page has'],
    [[1, 5, 2, 0, 4, 0], 'invalid-argument', 'slots past the end of the source'],
    [[1, 0, 2, 0, 2, -1], 'invalid-argument', 'a negative position'],
    [[1, 0, 2, 0, 2, 0x7fff_ffff], 'invalid-argument', 'a position past the largest'],
    [[1, 0, 77, 0, 2, 0], 'not-owned', 'an unknown destination'],
    [[77, 0, 2, 0, 2, 0], 'not-owned', 'an unknown source'],
  ] as const) {
    assert.equal(faultOf(() => space.copySlots(slotCopy(copy))).error.tag, tag, problem);
  }
  const nineTokens = new Array<number>(PAGE_SIZE + 1).fill(0);
  for (const [copy, tag, problem] of [
    [tokenCopy([1], [2], [2]), 'invalid-argument', 'an index past the two tokens of page 1'],
    [tokenCopy([1], [0, 1], [2], [5]), 'invalid-argument', 'fewer positions than tokens'],
    [tokenCopy([1], nineTokens, [2]), 'context-overflow', 'more tokens than empty slots'],
    [tokenCopy([1], nineTokens, [2, 2]), 'invalid-argument', 'a destination that is named twice'],
    // No index is looked up when the destinations have too few slots.
    [tokenCopy([1], nineTokens.with(0, 2), [2]), 'context-overflow', 'too many tokens, one of which does not exist'],
    [tokenCopy([1], [0], [2], [0x8000_0000]), 'invalid-argument', 'a position past the largest'],
    [tokenCopy([9], [0], [2]), 'not-owned', 'an unknown source'],
  ] as const) {
    assert.equal(faultOf(() => copyTokens(space, copy)).error.tag, tag, problem);
  }
  assert.deepEqual([slotsOf(kit, space, 1), slotsOf(kit, space, 2)], before);
});

test('a model that cannot rotate keys copies slots and tokens only without a change of position', () => {
  const { kit, space } = setUp(2, [10, 11], false);
  assert.equal(faultOf(() => space.copySlots(slotCopy([1, 0, 2, 0, 2, 1]))).error.tag, 'unsupported');
  assert.equal(faultOf(() => copyTokens(space, tokenCopy([1], [0], [2], [1]))).error.tag, 'unsupported');
  space.copySlots(slotCopy([1, 0, 2, 0, 1, 0]));
  // Token 1 is at position 1 already.
  copyTokens(space, tokenCopy([1], [1], [2], [1]));
  assert.deepEqual(slotsOf(kit, space, 2).slice(0, 2), [
    [10, 0, 0],
    [11, 1, 1],
  ]);
});

test('copied tokens fill the empty slots of the destinations in order, and keep their masks', () => {
  const { kit, space } = setUp(4, [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
  // Hides 19.
  space.mask(2, 0b10);
  // Leaves only slot 7 of page 3 empty.
  space.copySlots(slotCopy([1, 0, 3, 0, 7, 0]));
  // Page 2 holds tokens 0 (18) and 1 (19), and page 1 the following ones.
  copyTokens(space, tokenCopy([2, 1], [1, 0, 2], [3, 4], [50, 51, 52]));
  assert.deepEqual(slotsOf(kit, space, 3)[7], [19, 50, 50]);
  assert.deepEqual(slotsOf(kit, space, 4).slice(0, 3), [[18, 51, 51], [10, 52, 52], undefined]);
  assert.equal(space.mapping(3).masked, 0b1000_0000, 'a hidden token stays hidden');
  assert.equal(space.mapping(4).masked, 0, 'the others stay visible');
});

test('tokens can be copied within a page, and the other address of the page does not get the copies', () => {
  const { kit, space } = setUp(1, [10, 11, 12]);
  space.share(Uint32Array.of(1), 2);
  copyTokens(space, tokenCopy([1], [2, 0], [1]));
  assert.deepEqual(slotsOf(kit, space, 1).slice(0, 6), [
    [10, 0, 0],
    [11, 1, 1],
    [12, 2, 2],
    [12, 2, 2],
    [10, 0, 0],
    undefined,
  ]);
  assert.equal(slotsOf(kit, space, 2)[3], undefined);
});

test('token indices count filled slots only, and count the slots of a page that is named twice again', () => {
  const { kit, space } = setUp(4, [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
  // Empties slot 2 of page 1: the copied slot of page 3 is empty.
  space.copySlots(slotCopy([3, 0, 1, 2, 1, 0]));
  space.mask(2, 0b10);
  // Page 1 holds 10, 11, 13 … 17, and page 2 holds 18 and a hidden 19. So the sources hold 0 + 7 + 0 + 2 + 7 tokens.
  copyTokens(space, tokenCopy([3, 1, 3, 2, 1], [0, 2, 6, 7, 8, 9, 15], [4]));
  assert.deepEqual(
    slotsOf(kit, space, 4).map((slot) => slot?.[0]),
    [10, 13, 17, 18, 19, 10, 17, undefined],
  );
  assert.equal(space.mapping(4).masked, 0b10_000, '19 stays hidden');
  const tooLarge = faultOf(() => copyTokens(space, tokenCopy([3, 1, 3, 2, 1], [16], [4]))).error;
  assert.equal(tooLarge.tag, 'invalid-argument');
  assert.match(tooLarge.val, /token index 16 is too large: the source pages hold 16 tokens/);
  const withoutSources = faultOf(() => copyTokens(space, tokenCopy([], [0], [4]))).error;
  assert.equal(withoutSources.tag, 'invalid-argument');
});

test('a copy to one page under very many addresses is refused, in time linear in the number of addresses', () => {
  const { kit, space } = setUp(2, [10, 11]);
  const many = 100_000;
  space.share(new Uint32Array(many).fill(1), 10);
  const addresses = Uint32Array.from({ length: many }, (_, i) => 10 + i);
  const copy = {
    sources: addresses,
    indices: new Uint32Array(many),
    destinations: addresses,
    positions: Uint32Array.of(),
  };
  // Each address would need a page of its own. A scan of all earlier addresses for each one would take minutes here.
  const refused = faultOf(() => copyTokens(space, copy)).error;
  assert.equal(refused.tag, 'limit-exceeded');
  assert.match(refused.val, /more than 8 pages to write/);
  assert.equal(faultOf(() => space.emptySlots(addresses, many)).error.tag, 'limit-exceeded');
  const namedTwice = faultOf(() => space.emptySlots(Uint32Array.of(10, 11, 10), 20)).error;
  assert.equal(namedTwice.tag, 'invalid-argument');
  assert.equal(kit.memory.pool.counts().owned, 2, 'no page was copied');
});

test('a copy into many shared pages goes in parts, and copies no token before the last page is writable', () => {
  const [maxPagesPerPart, maxTokensPerPart] = [16, 128];
  const kit = makeMemory({ pages: 400 });
  const space = kit.open({ maxPages: 400 });
  const count = 150;
  // Pages 1 to 150, each with a second address that is larger by 1000. Page 1 holds one token.
  space.allocate(1, count);
  const [firstSlot] = space.emptySlots(Uint32Array.of(1), 1);
  kit.device.write(firstSlot!.page.frame * PAGE_SIZE, 10, 0);
  fillSlot(firstSlot!.page, 0, 0);
  const all = Uint32Array.from({ length: count }, (_, i) => i + 1);
  space.share(all, 1001);
  const secondAddresses = Array.from(all, (address) => address + 1000);
  // Seven tokens fill the copy of page 1, and eight each of the others.
  const request = tokenCopy([1], new Array<number>(7 + (count - 1) * PAGE_SIZE).fill(0), secondAddresses);
  const unsharedCount = () =>
    secondAddresses.filter((address) => space.peek(address).page !== space.peek(address - 1000).page).length;
  const copying = new TokenCopying(space, request);
  let parts = 0;
  for (let countBefore = 0; unsharedCount() < count; countBefore = unsharedCount(), parts++) {
    assert.deepEqual(slotsOf(kit, space, 1002), new Array(PAGE_SIZE).fill(undefined), 'no token is copied yet');
    assert.equal(copying.next(), true);
    assert.ok(unsharedCount() - countBefore <= maxPagesPerPart, 'a part makes at most 16 pages writable');
  }
  while (copying.next()) parts++;
  const minParts = count / maxPagesPerPart + request.indices.length / maxTokensPerPart;
  assert.ok(parts >= minParts, `${parts} parts of 16 pages or 128 tokens`);
  for (const address of secondAddresses)
    assert.equal(slotsOf(kit, space, address).filter((found) => found?.[0] === 10).length, PAGE_SIZE);
  assert.deepEqual(slotsOf(kit, space, 2), new Array(PAGE_SIZE).fill(undefined), 'the first address stays empty');
});

test('a copy into more shared pages than the limit allows changes nothing', () => {
  const kit = makeMemory({ pages: 400 });
  const space = kit.open({ maxPages: 200 });
  // With a copy of each, the inferlet would hold 300 pages.
  space.allocate(1, 150);
  const [firstSlot] = space.emptySlots(Uint32Array.of(1), 1);
  fillSlot(firstSlot!.page, 0, 0);
  const all = Uint32Array.from({ length: 150 }, (_, i) => i + 1);
  space.share(all, 1001);
  const secondAddresses = Array.from(all, (address) => address + 1000);
  // As many tokens as the pages have empty slots: page 1 has seven, and 149 others have eight.
  const request = tokenCopy([1], new Array<number>(7 + 149 * PAGE_SIZE).fill(0), secondAddresses);
  assert.equal(faultOf(() => copyTokens(space, request)).error.tag, 'limit-exceeded');
  assert.equal(space.heldPages, 150);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { handlerError } from '../protocol/errors.ts';
import { KnownText } from './known-text.ts';
import { fillSlot } from './pool.ts';
import type { PageSpace } from './space.ts';
import { faultOf, makeMemory, type TestMemory } from './testing/memory.ts';

const PAGE_SIZE = 4;
const ADDRESSES = [1, 2, 3, 4, 5];
/** Three and a half pages. */
const TOKENS = 14;

/** Writes a text to pages 1 to 4 of a new space, whose page 5 stays empty. */
function writeText(adapter?: string): { kit: TestMemory; space: PageSpace } {
  const kit = makeMemory({ pages: 8, pageSize: PAGE_SIZE, prefixCache: true, swapMemoryPages: 8 });
  const space = kit.open();
  space.allocate(1, ADDRESSES.length);
  const pages = Uint32Array.from(ADDRESSES);
  const positions = Uint32Array.from({ length: TOKENS }, (_, i) => i);
  const tokens = positions.map((position) => 100 + position);
  const run = space.beginPrefix({ inPages: pages, outPages: pages, positions, tokens, keep: 1, causal: true, adapter });
  for (const [i, { page, slot }] of space.emptySlots(pages, TOKENS).entries()) fillSlot(page, slot, i);
  run?.reserve(tokens);
  run?.commit();
  run?.keep();
  return { kit, space };
}

/**
 * Addresses of the pages that the next call over `pages` finds known. That call does not give its text back, so a later
 * call finds none.
 */
function knownPages(space: PageSpace, pages: readonly number[] = ADDRESSES, adapter?: string): number[] {
  const { text, rest } = space.takePages(Uint32Array.from(pages), adapter);
  const mappings = [...text.mappings, ...rest];
  assert.deepEqual(
    mappings.map(({ address }) => address),
    pages,
    'all pages are returned, in order',
  );
  for (const mapping of mappings) assert.equal(space.peek(mapping.address), mapping, 'each mapping still exists');
  assert.deepEqual(
    [...text.slots(0).subarray(0, text.mappings.length * PAGE_SIZE)],
    text.mappings.flatMap(({ page }) => Array.from({ length: PAGE_SIZE }, (_, slot) => page.frame * PAGE_SIZE + slot)),
  );
  return text.mappings.map(({ address }) => address);
}

test('the next call over a text finds its full pages known, and a second call at the same time does not', () => {
  const { space } = writeText();
  assert.deepEqual(knownPages(space), [1, 2, 3]);
  assert.deepEqual(knownPages(space), [], 'the first call still has them');
});

test('a call finds the pages that it names from the first one on, and only with the adapter that computed them', () => {
  assert.deepEqual(knownPages(writeText().space, [1, 2]), [1, 2]);
  assert.deepEqual(knownPages(writeText().space, [1, 3, 4]), [1]);
  assert.deepEqual(knownPages(writeText().space, [2, 3, 4]), []);
  assert.deepEqual(knownPages(writeText().space, ADDRESSES, 'x'), []);
  assert.deepEqual(knownPages(writeText('x').space), []);
  assert.deepEqual(knownPages(writeText('x').space, ADDRESSES, 'x'), [1, 2, 3]);
});

test('a page that was masked, written, given back or replaced is unknown, and so are all pages after it', () => {
  const masked = writeText().space;
  masked.mask(2, 1);
  assert.deepEqual(knownPages(masked), [1]);
  const copy = { source: 1, sourceOffset: 0, destination: 3, destinationOffset: 0, count: 1, shift: 0 };
  const copied = writeText().space;
  copied.copySlots(copy);
  assert.deepEqual(knownPages(copied), [1, 2], 'the address has moved to a copy of the page');
  const { kit, space: evicted } = writeText();
  // Takes pages 1 to 3 out of the prefix tree, so that page 3 is written itself and not copied.
  kit.memory.uncache(evicted.peek(1).page);
  evicted.copySlots(copy);
  assert.deepEqual(knownPages(evicted), [1, 2], 'the address still has the page, with other content');
  const again = writeText().space;
  again.free(Uint32Array.of(2));
  assert.equal(faultOf(() => again.takePages(Uint32Array.from(ADDRESSES), undefined)).error.tag, 'not-owned');
  const other = writeText().space;
  other.free(Uint32Array.of(2));
  other.allocate(2, 1);
  assert.deepEqual(knownPages(other), [1]);
  const first = writeText().space;
  first.free(Uint32Array.of(1));
  first.allocate(1, 1);
  assert.deepEqual(knownPages(first), []);
});

test('a page that is full, but ends with other content than text, is not added', () => {
  const { space } = writeText();
  const [full, mixed] = [space.peek(1), space.peek(4)];
  for (let at = TOKENS; at < 4 * PAGE_SIZE; at++) fillSlot(mixed.page, at % PAGE_SIZE, at);
  assert.equal(mixed.page.filled, space.pool.fullBits);
  const text = new KnownText(space.pool);
  assert.deepEqual([text.add(full), text.add(mixed), text.last], [true, false, full.page]);
});

test('a page that failed or came back in another frame is unknown', () => {
  const { kit, space } = writeText();
  const frames = () => [1, 2, 3].map((address) => space.peek(address).page.frame);
  const before = frames();
  space.waiting = true;
  const other = kit.open();
  other.allocate(1, 8);
  assert.ok(space.peek(1).page.frame < 0);
  space.waiting = false;
  other.releaseAll();
  space.makeResident(space.peekAll(Uint32Array.from(ADDRESSES)));
  const moved = frames().findIndex((frame, i) => frame !== before[i]);
  assert.ok(moved >= 0, `${frames()} were ${before}`);
  assert.deepEqual(knownPages(space), ADDRESSES.slice(0, moved));
  const failed = writeText().space;
  failed.fail(Uint32Array.of(2), handlerError('internal', 'it broke'), {});
  assert.equal(faultOf(() => failed.takePages(Uint32Array.from(ADDRESSES), undefined)).error.tag, 'dependency-failed');
  kit.memory.audit();
});

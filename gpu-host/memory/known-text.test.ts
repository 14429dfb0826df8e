import assert from 'node:assert/strict';
import { test } from 'node:test';
import { handlerError } from '../protocol/errors.ts';
import { KnownText } from './known-text.ts';
import { fillSlot } from './pool.ts';
import type { PageSpace } from './space.ts';
import { faultOf, makeMemory, type TestMemory } from './testing/memory.ts';

const PAGE_SIZE = 4;
/** Addresses of the five pages of a space. */
const ADDRESSES = [1, 2, 3, 4, 5];
/** Tokens of the text: it fills pages 1 to 3, and half of page 4. */
const TOKENS = 14;

/** Writes a text to a new space, as a call does that keeps its known text for the next call. Page 5 stays empty. */
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
 * Takes the known text, as a call over `pages` does, and returns the addresses of the known pages. The text is never put back, so the next call of
 * this function finds no known page.
 */
function takeKnownPages(space: PageSpace, pages: readonly number[] = ADDRESSES, adapter?: string): number[] {
  const { text, rest } = space.takePages(Uint32Array.from(pages), adapter);
  const mappings = [...text.mappings, ...rest];
  assert.deepEqual(
    mappings.map(({ address }) => address),
    pages,
    'known and unknown pages together are all pages, in order',
  );
  for (const mapping of mappings) assert.equal(space.peek(mapping.address), mapping, 'each mapping still exists');
  assert.deepEqual(
    [...text.slots(0).subarray(0, text.mappings.length * PAGE_SIZE)],
    text.mappings.flatMap(({ page }) => Array.from({ length: PAGE_SIZE }, (_, slot) => page.frame * PAGE_SIZE + slot)),
  );
  return text.mappings.map(({ address }) => address);
}

test('the next call over a text finds the full pages known; a second call at the same time finds no known page', () => {
  const { space } = writeText();
  assert.deepEqual(takeKnownPages(space), [1, 2, 3]);
  assert.deepEqual(takeKnownPages(space), [], 'the first call has taken the known text and not put it back');
});

test('a call knows its pages up to the first one that differs from the text, and none with another adapter than the text', () => {
  assert.deepEqual(takeKnownPages(writeText().space, [1, 2]), [1, 2]);
  assert.deepEqual(takeKnownPages(writeText().space, [1, 3, 4]), [1]);
  assert.deepEqual(takeKnownPages(writeText().space, [2, 3, 4]), []);
  assert.deepEqual(takeKnownPages(writeText().space, ADDRESSES, 'x'), []);
  assert.deepEqual(takeKnownPages(writeText('x').space), []);
  assert.deepEqual(takeKnownPages(writeText('x').space, ADDRESSES, 'x'), [1, 2, 3]);
});

test('a page that was masked, written, freed or replaced is unknown, and so are all pages after it', () => {
  const masked = writeText().space;
  masked.mask(2, 1);
  assert.deepEqual(takeKnownPages(masked), [1]);
  const copyToPage3 = { source: 1, sourceOffset: 0, destination: 3, destinationOffset: 0, count: 1, shift: 0 };
  const copied = writeText().space;
  copied.copySlots(copyToPage3);
  assert.deepEqual(takeKnownPages(copied), [1, 2], 'address 3 has moved to a copy of its page');
  const { kit, space: uncached } = writeText();
  // The first page leaves the prefix tree with the pages after it. The copy then writes page 3 in place.
  kit.memory.uncache(uncached.peek(1).page);
  uncached.copySlots(copyToPage3);
  assert.deepEqual(takeKnownPages(uncached), [1, 2], 'address 3 still has its page, with other content');
  const freed = writeText().space;
  freed.free(Uint32Array.of(2));
  assert.equal(faultOf(() => freed.takePages(Uint32Array.from(ADDRESSES), undefined)).error.tag, 'not-owned');
  const secondReplaced = writeText().space;
  secondReplaced.free(Uint32Array.of(2));
  secondReplaced.allocate(2, 1);
  assert.deepEqual(takeKnownPages(secondReplaced), [1]);
  const firstReplaced = writeText().space;
  firstReplaced.free(Uint32Array.of(1));
  firstReplaced.allocate(1, 1);
  assert.deepEqual(takeKnownPages(firstReplaced), []);
});

test('a full page that ends with other content than text is not added to the known pages', () => {
  const { space } = writeText();
  const [full, mixed] = [space.peek(1), space.peek(4)];
  // Fills the rest of page 4, without adding its tokens to the text.
  for (let at = TOKENS; at < 4 * PAGE_SIZE; at++) fillSlot(mixed.page, at % PAGE_SIZE, at);
  assert.equal(mixed.page.filled, space.pool.fullBits);
  const text = new KnownText(space.pool);
  assert.deepEqual([text.add(full), text.add(mixed), text.last], [true, false, full.page]);
});

test('a page that came back from swap in another frame is unknown, and a page whose call failed is refused', () => {
  const { kit, space } = writeText();
  const textFrames = () => [1, 2, 3].map((address) => space.peek(address).page.frame);
  const framesBefore = textFrames();
  // Another space takes all 8 frames, so the pages of the waiting space go to swap.
  space.waiting = true;
  const other = kit.open();
  other.allocate(1, 8);
  assert.ok(space.peek(1).page.frame < 0);
  space.waiting = false;
  other.releaseAll();
  space.makeResident(space.peekAll(Uint32Array.from(ADDRESSES)));
  const firstMoved = textFrames().findIndex((frame, i) => frame !== framesBefore[i]);
  assert.ok(firstMoved >= 0, `${textFrames()} were ${framesBefore}`);
  assert.deepEqual(takeKnownPages(space), ADDRESSES.slice(0, firstMoved));
  const failed = writeText().space;
  failed.fail(Uint32Array.of(2), handlerError('internal', 'it broke'), {});
  assert.equal(faultOf(() => failed.takePages(Uint32Array.from(ADDRESSES), undefined)).error.tag, 'dependency-failed');
  kit.memory.audit();
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  bitCount,
  fillSlot,
  largestPosition,
  type Page,
  PageAccount,
  PagePool,
  PagePrefix,
  slotBits,
  unfillSlot,
} from './pool.ts';
import type { SwapTicket } from './swap/store.ts';

const ACCOUNT = new PageAccount('tenant');

test('each slot of a page has a bit, and a pool refuses pages of more than 32 slots', () => {
  assert.equal(slotBits(8), 0xff);
  assert.equal(slotBits(32), 0xffffffff);
  assert.equal(bitCount(0xffffffff), 32);
  assert.equal(bitCount(0b1011), 3);
  assert.throws(() => new PagePool(33, 1, () => {}), RangeError);
});

test('a page is owned, cached or swapped out, and its frame or ticket is given back with its last reference', () => {
  const dropped: SwapTicket[] = [];
  const pool = new PagePool(4, 2, (ticket) => dropped.push(ticket));
  const page = pool.take(ACCOUNT) as Page;
  fillSlot(page, 0, 0);
  pool.adopt(page);
  assert.deepEqual(pool.counts(), { free: 1, cached: 0, owned: 1, total: 2, swappedOut: 0 });
  pool.release(page);
  assert.deepEqual(pool.counts(), { free: 1, cached: 1, owned: 0, total: 2, swappedOut: 0 });
  // The last reference is the prefix tree's, which only `abandon` gives back.
  assert.throws(() => pool.release(page), /prefix tree/);
  assert.throws(() => pool.adopt(page), /already/);
  const ticket: SwapTicket = { place: 'memory' };
  pool.swapOut(page, ticket);
  assert.deepEqual(pool.counts(), { free: 2, cached: 0, owned: 0, total: 2, swappedOut: 1 });
  pool.retain(page);
  pool.swapIn(page);
  assert.deepEqual(pool.counts(), { free: 1, cached: 0, owned: 1, total: 2, swappedOut: 0 });
  pool.swapOut(page, ticket);
  // `abandon` gives back the tree's reference, `release` that of `retain`, which is the last.
  pool.abandon(page);
  assert.deepEqual(dropped, []);
  pool.release(page);
  assert.deepEqual(dropped, [ticket]);
  assert.deepEqual(pool.counts(), { free: 2, cached: 0, owned: 0, total: 2, swappedOut: 0 });
  assert.deepEqual([page.frame, page.swapped, page.filled], [-1, undefined, 0], 'nothing of the page is left');
  assert.throws(() => pool.release(page), /twice/);
  assert.throws(() => pool.retain(page), /gone/);
  assert.throws(() => pool.adopt(page), /gone/);
  assert.throws(() => pool.swapIn(page), /only a page without a frame/);
  assert.throws(() => pool.swapOut(page, undefined), /only a page with a frame/);
  pool.check();
});

test('a page that is about to be released can give its frame to a swapped-out page', () => {
  const pool = new PagePool(4, 1, () => {});
  const page = pool.take(ACCOUNT) as Page;
  pool.swapOut(page, { place: 'disk' });
  const donor = pool.take(ACCOUNT) as Page;
  assert.throws(() => pool.swapIn(page), /without a free frame/);
  pool.swapIn(page, donor);
  assert.throws(() => pool.swapIn(page), /only a page without a frame/);
  assert.deepEqual([page.frame, donor.frame], [0, -1]);
  pool.release(donor);
  assert.deepEqual(pool.counts(), { free: 0, cached: 0, owned: 1, total: 1, swappedOut: 0 });
});

test('a slot whose reservation is undone is empty, and the identity of its page ends before that slot', () => {
  const pool = new PagePool(4, 1, () => {});
  const page = pool.take(ACCOUNT) as Page;
  const prefix = new PagePrefix('tenant', undefined, undefined, 4);
  page.prefix = prefix;
  for (const [slot, token] of [7, 8, 9].entries()) {
    fillSlot(page, slot, slot);
    prefix.tokens[slot] = token;
    prefix.known = slot + 1;
  }
  // The key and value of slot 2 are not computed yet.
  prefix.computed = 2;
  unfillSlot(page, 2);
  assert.equal(page.filled, 0b11);
  assert.equal(page.maxPosition, 1);
  assert.deepEqual([page.prefix?.known, page.prefix?.computed, [...(page.prefix?.tokens ?? [])]], [2, 2, [7, 8, 0, 0]]);
  assert.equal(prefix.known, 3, 'the former identity stays as it is, because later pages may name it as their parent');
  fillSlot(page, 3, 900);
  unfillSlot(page, 3);
  assert.equal(page.prefix?.known, 2, 'a slot after the known tokens leaves the identity as it is');
  unfillSlot(page, 0);
  unfillSlot(page, 1);
  assert.equal(page.prefix, undefined, 'no token is left');
  assert.equal(largestPosition(page), -1);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addresses, PageBudget, SharedPages } from './page-budget.ts';

test('pages past the limit or the pool are refused, and the error gives the numbers', () => {
  const budget = new PageBudget(10, 100);
  budget.allocate(1, 8);
  assert.match(budget.refuse(3)?.val ?? '', /8 pages are held and 3 more were requested; .* limit is 10 /);
  assert.match(budget.refuse(101)?.val ?? '', /the whole pool has 100/);
  assert.equal(budget.refuse(2), undefined);
});

test('a shared page counts once, until its last address is given back', () => {
  const budget = new PageBudget(10, 100);
  budget.allocate(1, 2);
  budget.share(Uint32Array.of(1), 3);
  budget.share(Uint32Array.of(3), 4);
  assert.equal(budget.held, 2);
  budget.free(Uint32Array.of(1, 3));
  assert.equal(budget.held, 2);
  budget.free(Uint32Array.of(4));
  assert.equal(budget.held, 1);
  // Address 4 is free already, and 77 was never held: neither counts.
  budget.free(Uint32Array.of(4, 2, 77));
  assert.equal(budget.held, 0);
});

test('pages that are imported again count once, until their last address is given back', () => {
  const shared = new SharedPages('family', 100);
  const budget = new PageBudget(60, 1000, shared, 'm');
  // Each address 2000 + i has the page of address 1000 + i.
  for (const first of [1000, 2000]) budget.import('export a', first, 40);
  assert.deepEqual([budget.held, budget.refuse(20)], [40, undefined]);
  budget.import('export b', 3000, 5);
  budget.share(Uint32Array.of(2000), 9000);
  budget.free(addresses(1000, 40));
  assert.equal(budget.held, 45, '40 pages of export a at 2000, and 5 of export b');
  budget.free(addresses(2000, 40));
  assert.equal(budget.held, 6, '5 pages of export b, and the first page of export a at 9000');
  // Export a has 41 pages by now. The first of them is held already.
  budget.import('export a', 4000, 41);
  assert.equal(budget.held, 6 + 40);
  budget.free(Uint32Array.of(9000));
  budget.free(addresses(4000, 41));
  budget.free(addresses(3000, 5));
  assert.deepEqual([budget.held, shared.held('m'), [...shared.peak]], [0, 0, [['m', 46]]]);
});

test('pages of budgets with a common limit count together, until their budget is closed', () => {
  const shared = new SharedPages('family', 10);
  const [first, second] = [1, 2].map(() => new PageBudget(8, 100, shared, 'm'));
  assert.ok(first && second);
  first.allocate(1, 6);
  assert.equal(second.refuse(4), undefined);
  assert.match(second.refuse(5)?.val ?? '', /hold 6 pages together, and 5 more were requested; their limit is 10 /);
  assert.equal(new PageBudget(8, 100, shared, 'other').refuse(8), undefined, 'each model has a count of its own');
  second.allocate(1, 4);
  first.free(Uint32Array.of(1));
  assert.equal(shared.held('m'), 9);
  first.close();
  // An import may be answered after the close. Its pages no longer count.
  first.allocate(9, 1);
  assert.equal(shared.held('m'), 4, 'the pages of the second budget');
  assert.deepEqual([...shared.peak], [['m', 10]]);
});

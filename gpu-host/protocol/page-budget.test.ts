import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PageBudget } from './page-budget.ts';

test('pages past the limit or the pool are refused at once, with the numbers', () => {
  const budget = new PageBudget(10, 100);
  budget.allocate(1, 8);
  assert.match(budget.refuse(3)?.val ?? '', /8 pages are held and 3 more were asked; 10 is/);
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
  budget.free(Uint32Array.of(4, 2, 77));
  assert.equal(budget.held, 0);
});

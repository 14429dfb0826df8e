import assert from 'node:assert/strict';
import { test } from 'node:test';
import { seeded } from '../memory/testing/random.ts';
import { EncodeQueue, type Waiting } from './queue.ts';

interface Call extends Waiting {
  readonly number: number;
}

const call = (number: number, tenant: string, ...lengths: number[]): Call => ({
  ...{ number, tenant, lengths: Uint32Array.from(lengths), taken: 0 },
});

test('every text is taken once, in order, and no batch is larger than it may be', () => {
  for (let seed = 1; seed <= 200; seed++) {
    const below = seeded(seed);
    const upTo = (most: number) => 1 + below(most);
    const random = () => below(1000) / 1000;
    const queue = new EncodeQueue<Call>();
    const taken = new Map<Call, number[]>();
    const removed = new Set<Call>();
    const maxTokens = upTo(1000);
    for (let number = 0; number < 60; number++) {
      if (random() < 0.7) {
        const lengths = Array.from({ length: upTo(6) }, () => upTo(100));
        const added = call(number, `tenant-${upTo(4)}`, ...lengths);
        taken.set(added, []);
        queue.add(added);
      }
      if (random() < 0.1) {
        const victim = [...taken.keys()].find((each) => each.taken < each.lengths.length && !removed.has(each));
        if (victim) {
          queue.remove(victim);
          removed.add(victim);
        }
      }
      const waits = [...taken.keys()].some((each) => each.taken < each.lengths.length && !removed.has(each));
      assert.equal(queue.isEmpty, !waits, `seed ${seed}`);
      if (random() < 0.6 || number === 59) {
        do {
          const batch = queue.take(maxTokens);
          const lengths = batch.map((pick) => pick.call.lengths[pick.index] ?? 0);
          const padded = batch.length * Math.max(0, ...lengths);
          const tokens = lengths.reduce((sum, length) => sum + length, 0);
          assert.ok(batch.length <= 1 || padded <= maxTokens, `seed ${seed}`);
          assert.ok(padded - tokens <= Math.max(128, padded / 2), `seed ${seed}: ${lengths}`);
          for (const { call: of, index } of batch) {
            assert.ok(!removed.has(of));
            taken.get(of)?.push(index);
          }
        } while (number === 59 && !queue.isEmpty);
      }
    }
    for (const [each, indices] of taken) {
      if (!removed.has(each)) assert.deepEqual(indices, [...each.lengths.keys()], `seed ${seed}`);
    }
  }
});

test('tenants have equal parts of a batch, whatever they send', () => {
  const queue = new EncodeQueue<Call>();
  queue.add(call(1, 'many', ...new Array<number>(1000).fill(10)));
  queue.add(call(2, 'few', ...new Array<number>(1000).fill(10)));
  queue.add(call(3, 'one', 10));
  const tenants = queue.take(300).map((pick) => pick.call.tenant);
  const count = (name: string) => tenants.filter((tenant) => tenant === name).length;
  assert.equal(tenants.length, 30);
  assert.equal(count('one'), 1);
  assert.ok(count('few') >= 10 && count('many') >= 10);
});

test('the oldest workflow goes first, and other calls find the same texts ahead of them', () => {
  const queue = new EncodeQueue<Call>();
  const of = (query: number, added: Call): Call => ({ ...added, query });
  queue.add(of(2, call(1, 'a', 10, 10)));
  queue.add(of(3, call(2, 'a', 10)));
  queue.add(of(1, call(3, 'a', 10)));
  queue.add(call(4, 'a', 10));
  queue.add(of(0, call(5, 'a', 10)));
  const order: number[] = [];
  while (!queue.isEmpty) for (const pick of queue.take(10)) order.push(pick.call.number);
  assert.deepEqual(order, [3, 1, 1, 2, 4, 5]);
});

test('a workflow is overtaken by so many calls only', () => {
  const queue = new EncodeQueue<Call>();
  queue.add({ ...call(0, 'a', 10), query: 1 });
  for (let number = 1; number <= 200; number++) queue.add({ ...call(number, 'a', 10), query: 0 });
  let before = 0;
  while (queue.take(10)[0]?.call.number !== 0) before++;
  assert.equal(before, 64);
});

test('a tenant with long texts does not keep others from their turn', () => {
  const queue = new EncodeQueue<Call>();
  queue.add(call(1, 'long', ...new Array<number>(50).fill(100)));
  queue.add(call(2, 'short', ...new Array<number>(50).fill(1)));
  const first = queue.take(100);
  const second = queue.take(100);
  assert.deepEqual(
    [first, second].map((batch) => new Set(batch.map((pick) => pick.call.tenant))),
    [new Set(['long']), new Set(['short'])],
  );
});

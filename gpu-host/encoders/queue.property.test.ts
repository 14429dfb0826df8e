import assert from 'node:assert/strict';
import { test } from 'node:test';
import { seeded } from '#test/harness/random.ts';
import { EncodeQueue, type Waiting } from './queue.ts';

interface Call extends Waiting {
  readonly number: number;
}

const call = (number: number, tenant: string, ...lengths: number[]): Call => ({
  number,
  tenant,
  lengths: Uint32Array.from(lengths),
  taken: 0,
});

test('every text is taken once, in order, and no batch is larger than it may be', () => {
  const rounds = 60;
  for (let seed = 1; seed <= 200; seed++) {
    const below = seeded(seed);
    const upTo = (most: number) => 1 + below(most);
    const random = () => below(1000) / 1000;
    const queue = new EncodeQueue<Call>();
    const taken = new Map<Call, number[]>();
    const removed = new Set<Call>();
    const maxTokens = upTo(1000);
    for (let number = 0; number < rounds; number++) {
      const isLast = number === rounds - 1;
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
      if (random() < 0.6 || isLast) {
        do {
          const batch = queue.take(maxTokens);
          const lengths = batch.map((pick) => pick.call.lengths[pick.index] ?? 0);
          const padded = batch.length * Math.max(0, ...lengths);
          const tokens = lengths.reduce((sum, length) => sum + length, 0);
          assert.ok(batch.length <= 1 || padded <= maxTokens, `seed ${seed}`);
          assert.ok(padded - tokens <= Math.max(128, padded / 2), `seed ${seed}: ${lengths}`);
          for (const { call: owner, index } of batch) {
            assert.ok(!removed.has(owner));
            taken.get(owner)?.push(index);
          }
        } while (isLast && !queue.isEmpty);
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
  const ofQuery = (query: number, added: Call): Call => ({ ...added, query });
  queue.add(ofQuery(2, call(1, 'a', 10, 10)));
  queue.add(ofQuery(3, call(2, 'a', 10)));
  queue.add(ofQuery(1, call(3, 'a', 10)));
  queue.add(call(4, 'a', 10));
  queue.add(ofQuery(0, call(5, 'a', 10)));
  const order: number[] = [];
  while (!queue.isEmpty) for (const pick of queue.take(10)) order.push(pick.call.number);
  assert.deepEqual(order, [3, 1, 1, 2, 4, 5]);
});

test('later calls overtake a group of waiting workflows by 64 batches of work in all, not by 64 for each of them', () => {
  const queue = new EncodeQueue<Call>();
  for (let number = 1; number <= 3; number++) queue.add({ ...call(number, 'a', 10), query: number });
  const batches: (number | undefined)[] = [];
  for (let number = 4; number <= 200; number++) {
    queue.add({ ...call(number, 'a', 5, 5), query: 0 });
    batches.push(queue.take(10)[0]?.call.number);
  }
  assert.deepEqual(
    [1, 2, 3].map((number) => batches.indexOf(number)),
    [64, 65, 66],
  );
});

test('in any mix of tenants, work that came later delays no call by more than the bound', () => {
  let [mostLate, overtaken] = [0, 0];
  for (let seed = 1; seed <= 60; seed++) {
    const below = seeded(seed);
    const queue = new EncodeQueue<Call>();
    const maxTokens = 20 + below(40);
    const tenants = 1 + below(2);
    /** Tokens taken per tenant. */
    const taken = new Map<string, number>();
    /** For each waiting call, the tokens that its tenant will have taken when the call is done, if no other call overtakes it. */
    const due = new Map<Call, number>();
    const remainingTokens = ({ lengths, taken: from }: Call) =>
      lengths.subarray(from).reduce((sum, length) => sum + length, 0);
    const take = () => {
      for (const { call: owner, index } of queue.take(maxTokens)) {
        const takenTokens = (taken.get(owner.tenant) ?? 0) + (owner.lengths[index] ?? 0);
        taken.set(owner.tenant, takenTokens);
        if (index < owner.lengths.length - 1) continue;
        const batchesLate = (takenTokens - (due.get(owner) ?? 0)) / maxTokens;
        due.delete(owner);
        // 64 batches may overtake a call of a workflow; the batch that reaches this bound may exceed it by its own size.
        const bound = owner.query === undefined ? 0 : 65;
        assert.ok(batchesLate <= bound, `seed ${seed}: ${owner.number} is ${batchesLate} batches late`);
        mostLate = Math.max(mostLate, batchesLate);
        if (batchesLate > 0) overtaken++;
      }
    };
    const send = (number: number) => {
      const isOutsideWorkflows = seed % 2 === 0 && below(12) === 0;
      // Most work is that of old workflows, so that young ones are overtaken as long as they may be.
      const randomQuery = () => (below(3) === 0 ? number : below(4));
      const query = isOutsideWorkflows ? undefined : randomQuery();
      const lengths = Array.from({ length: 1 + below(4) }, () => 1 + below(15));
      const added = { ...call(number, `tenant-${below(tenants)}`, ...lengths), query };
      const ahead = [...due.keys()].reduce(
        (sum, each) => sum + (each.tenant === added.tenant ? remainingTokens(each) : 0),
        0,
      );
      due.set(added, (taken.get(added.tenant) ?? 0) + ahead + remainingTokens(added));
      queue.add(added);
    };
    for (let number = 0; number < 600; number++) {
      send(number);
      if (below(3) === 0) take();
      if (below(40) > 0) continue;
      const victim = [...due.keys()][below(due.size)];
      if (victim) queue.remove(victim);
      if (victim) due.delete(victim);
    }
    while (!queue.isEmpty) take();
    assert.equal(due.size, 0, `seed ${seed}`);
  }
  assert.ok(mostLate > 60 && overtaken > 1000, `${overtaken} calls, ${mostLate} batches at most`);
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

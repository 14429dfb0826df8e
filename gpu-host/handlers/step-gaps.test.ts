import assert from 'node:assert/strict';
import test from 'node:test';
import { StepGaps } from './step-gaps.ts';

const payer = { charge: () => undefined };

/** Returns true when the work has `parts` more parts. */
const partsOf = (parts: number, done: () => void) => () => {
  done();
  return --parts > 0;
};

/** A part that takes longer than a gap. */
function longPart(): void {
  for (const start = performance.now(); performance.now() - start < 3; );
}

test('short work is done in one gap', async () => {
  let wanted = 0;
  const gaps = new StepGaps(
    () => wanted++,
    () => undefined,
  );
  let [one, two] = [0, 0];
  const works = [
    gaps.work(
      partsOf(5, () => one++),
      payer,
    ),
    gaps.work(
      partsOf(1, () => two++),
      payer,
    ),
  ];
  assert.deepEqual([wanted, gaps.isWaiting, one], [2, true, 0]);
  assert.equal(gaps.run(), false);
  assert.deepEqual([one, two, gaps.isWaiting], [5, 1, false]);
  await Promise.all(works);
});

test('long work does a part a gap, in turns, and its inferlet pays', async () => {
  const paid = new Map<unknown, number>();
  const gaps = new StepGaps(
    () => undefined,
    (ms, by) => paid.set(by, (paid.get(by) ?? 0) + ms),
  );
  const order: string[] = [];
  const payers = [{ ...payer }, { ...payer }] as const;
  const long = (name: string) => () => {
    order.push(name);
    longPart();
  };
  const works = [gaps.work(partsOf(3, long('a')), payers[0]), gaps.work(partsOf(2, long('b')), payers[1])];
  let runs = 1;
  while (gaps.run()) runs++;
  assert.deepEqual([runs, order.join('')], [5, 'ababa']);
  await Promise.all(works);
  assert.ok((paid.get(payers[0]) ?? 0) > (paid.get(payers[1]) ?? 0), 'three parts cost more than two');
});

test('work that fails ends alone', async () => {
  const gaps = new StepGaps(
    () => undefined,
    () => undefined,
  );
  const failing = gaps.work(() => {
    throw new TypeError('a bug');
  }, payer);
  let done = 0;
  const other = gaps.work(
    partsOf(2, () => done++),
    payer,
  );
  const refused = assert.rejects(failing, TypeError);
  assert.equal(gaps.run(), false);
  await Promise.all([refused, other]);
  assert.equal(done, 2);
});

import assert from 'node:assert/strict';
import test from 'node:test';
import { DeviceTime, type Payer } from './meter.ts';
import { StepGaps } from './step-gaps.ts';
import { ThreadShare } from './thread-share.ts';

const payer = { charge: () => undefined };

/** Returns true when the work has `parts` more parts. */
const partsOf = (parts: number, done: () => void) => () => {
  done();
  return --parts > 0;
};

const PART_MS = 3;

/** A part that takes longer than a gap. */
function longPart(): void {
  for (const start = performance.now(); performance.now() - start < PART_MS; );
}

test('short work is done in one gap', async () => {
  let wanted = 0;
  const gaps = new StepGaps(() => wanted++, new DeviceTime(), new ThreadShare());
  let [one, two] = [0, 0];
  const works = [
    gaps.work(
      partsOf(5, () => one++),
      'a',
      payer,
    ),
    gaps.work(
      partsOf(1, () => two++),
      'b',
      payer,
    ),
  ];
  assert.deepEqual([wanted, gaps.isDue, one], [2, true, 0]);
  assert.equal(gaps.run(), false);
  assert.deepEqual([one, two, gaps.isDue], [5, 1, false]);
  await Promise.all(works);
});

/** A payer that counts what it pays. */
function counting(): Payer & { ns: number } {
  return {
    ns: 0,
    charge(ns) {
      this.ns += ns;
    },
  };
}

test('long work does a part a gap, tenants take turns, and its inferlet pays', async () => {
  const gaps = new StepGaps(() => undefined, new DeviceTime(), new ThreadShare());
  const order: string[] = [];
  const payers = [counting(), counting()] as const;
  const long = (name: string) => () => {
    order.push(name);
    longPart();
  };
  const works = [
    gaps.work(partsOf(2, long('a')), 'a', payers[0]),
    gaps.work(partsOf(2, long('A')), 'a', payers[0]),
    gaps.work(partsOf(2, long('b')), 'b', payers[1]),
  ];
  let runs = 1;
  while (gaps.run()) runs++;
  assert.deepEqual([runs, order.join('')], [6, 'abAbaA']);
  await Promise.all(works);
  assert.ok(payers[0].ns >= 4 * PART_MS * 1e6 && payers[1].ns >= 2 * PART_MS * 1e6, JSON.stringify(payers));
});

test('time that a part has charged itself is not charged again', async () => {
  const time = new DeviceTime();
  const gaps = new StepGaps(() => undefined, time, new ThreadShare());
  const [copies, payer] = [counting(), counting()];
  const work = gaps.work(
    partsOf(1, () => {
      longPart();
      time.spendFor(3, copies);
    }),
    'a',
    payer,
  );
  const from = performance.now();
  gaps.run();
  const wallNs = (performance.now() - from) * 1e6;
  await work;
  assert.equal(copies.ns, 3e6);
  assert.ok(payer.ns + copies.ns <= wallNs, `${payer.ns} and ${copies.ns} of ${wallNs}`);
});

test('work that fails ends alone', async () => {
  const gaps = new StepGaps(() => undefined, new DeviceTime(), new ThreadShare());
  const failing = gaps.work(
    () => {
      throw new TypeError('a bug');
    },
    'a',
    payer,
  );
  let done = 0;
  const other = gaps.work(
    partsOf(2, () => done++),
    'b',
    payer,
  );
  const refused = assert.rejects(failing, TypeError);
  assert.equal(gaps.run(), false);
  await Promise.all([refused, other]);
  assert.equal(done, 2);
});

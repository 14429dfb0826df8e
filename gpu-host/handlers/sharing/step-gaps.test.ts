import assert from 'node:assert/strict';
import test from 'node:test';
import { DeviceTime, type Payer } from './meter.ts';
import { GAP_MS, StepGaps, ThreadShare } from './thread-share.ts';

const payer = { charge: () => undefined };

/** Work of `parts` parts. Each call does one part, and returns true while more are left. */
const workOf = (parts: number, doPart: () => void) => () => {
  doPart();
  return --parts > 0;
};

/** Duration of a part that takes longer than a gap. */
const PART_MS = GAP_MS + 1;

/** A clock that moves only when a part takes time. */
class TestClock {
  #ms = 1000;

  readonly now = (): number => this.#ms;

  longPart(): void {
    this.#ms += PART_MS;
  }
}

const gapsBy = ({ now }: TestClock, time = new DeviceTime(), wanted: () => void = () => undefined) =>
  new StepGaps(wanted, time, new ThreadShare(now), now);

test('short work is done in one gap', async () => {
  let wanted = 0;
  const gaps = gapsBy(new TestClock(), new DeviceTime(), () => void wanted++);
  let [one, two] = [0, 0];
  const works = [
    gaps.work(
      workOf(5, () => one++),
      'a',
      payer,
    ),
    gaps.work(
      workOf(1, () => two++),
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
function countingPayer(): Payer & { ns: number } {
  return {
    ns: 0,
    charge(ns) {
      this.ns += ns;
    },
  };
}

test('long work does one part per gap, tenants take turns, and the inferlet of the work pays', async () => {
  const clock = new TestClock();
  const gaps = gapsBy(clock);
  const order: string[] = [];
  const payers = [countingPayer(), countingPayer()] as const;
  const long = (name: string) => () => {
    order.push(name);
    clock.longPart();
  };
  const works = [
    gaps.work(workOf(2, long('a')), 'a', payers[0]),
    gaps.work(workOf(2, long('A')), 'a', payers[0]),
    gaps.work(workOf(2, long('b')), 'b', payers[1]),
  ];
  let runs = 1;
  while (gaps.run()) runs++;
  assert.deepEqual([runs, order.join('')], [6, 'abAbaA']);
  await Promise.all(works);
  assert.deepEqual([payers[0].ns, payers[1].ns], [4 * PART_MS * 1e6, 2 * PART_MS * 1e6]);
});

test('time that a part charges by itself is not charged again', async () => {
  const [clock, time] = [new TestClock(), new DeviceTime()];
  const gaps = gapsBy(clock, time);
  const [copyPayer, payer] = [countingPayer(), countingPayer()];
  const work = gaps.work(
    workOf(1, () => {
      clock.longPart();
      time.spendFor(1, copyPayer);
    }),
    'a',
    payer,
  );
  gaps.run();
  await work;
  assert.deepEqual([copyPayer.ns, payer.ns], [1e6, (PART_MS - 1) * 1e6]);
});

test('work that fails does not stop other work', async () => {
  const gaps = gapsBy(new TestClock());
  const failing = gaps.work(
    () => {
      throw new TypeError('a bug');
    },
    'a',
    payer,
  );
  let done = 0;
  const other = gaps.work(
    workOf(2, () => done++),
    'b',
    payer,
  );
  const refused = assert.rejects(failing, TypeError);
  assert.equal(gaps.run(), false);
  await Promise.all([refused, other]);
  assert.equal(done, 2);
});

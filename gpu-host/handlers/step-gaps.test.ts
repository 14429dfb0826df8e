import assert from 'node:assert/strict';
import test from 'node:test';
import { DeviceTime, type Payer } from './meter.ts';
import { GAP_MS, StepGaps } from './step-gaps.ts';
import { ThreadShare } from './thread-share.ts';

const payer = { charge: () => undefined };

/** Returns true when the work has `parts` more parts. */
const partsOf = (parts: number, done: () => void) => () => {
  done();
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

test('long work does one part per gap, tenants take turns, and the inferlet of the work pays', async () => {
  const clock = new TestClock();
  const gaps = gapsBy(clock);
  const order: string[] = [];
  const payers = [counting(), counting()] as const;
  const long = (name: string) => () => {
    order.push(name);
    clock.longPart();
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
  assert.deepEqual([payers[0].ns, payers[1].ns], [4 * PART_MS * 1e6, 2 * PART_MS * 1e6]);
});

test('time that a part has charged itself is not charged again', async () => {
  const [clock, time] = [new TestClock(), new DeviceTime()];
  const gaps = gapsBy(clock, time);
  const [copies, payer] = [counting(), counting()];
  const work = gaps.work(
    partsOf(1, () => {
      clock.longPart();
      time.spendFor(1, copies);
    }),
    'a',
    payer,
  );
  gaps.run();
  await work;
  assert.deepEqual([copies.ns, payer.ns], [1e6, (PART_MS - 1) * 1e6]);
});

test('work that fails ends alone', async () => {
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
    partsOf(2, () => done++),
    'b',
    payer,
  );
  const refused = assert.rejects(failing, TypeError);
  assert.equal(gaps.run(), false);
  await Promise.all([refused, other]);
  assert.equal(done, 2);
});

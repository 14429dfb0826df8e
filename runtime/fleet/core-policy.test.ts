import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  beginUse,
  type Change,
  type CoreUse,
  changesNow,
  inheritUse,
  MOST_CHANGES,
  nextUse,
  wantedWeight,
} from './core-watch.ts';

const SEED = 13;
const START: CoreUse = beginUse(0, { usedMs: 0, waitedMs: 0, ready: false });

/** One sample: the time since the last sample, and the cores used and waited for in that time (more than 1 for several threads). */
interface Step {
  readonly passedMs: number;
  readonly used: number;
  readonly waited: number;
}

const fraction = fc.double({ min: 0, max: 1, noNaN: true });
const step = (used: fc.Arbitrary<number> = fc.oneof(fraction, fc.constantFrom(0, 1, 3)), waited = fraction) =>
  fc.record({ passedMs: fc.integer({ min: 300, max: 900 }), used, waited });

/** Samples of a sandbox that never sleeps. */
const neverSleeping = (maxUsed: number) =>
  fc
    .record({ passedMs: fc.integer({ min: 300, max: 900 }), used: fraction.map((part) => part * maxUsed) })
    .map((each) => ({ ...each, waited: 1 - each.used }));

/** Sums the time of the last `windowMs` milliseconds; of each sample, only the fraction `fractionOf` counts. */
function sumWithin(steps: readonly Step[], windowMs: number, fractionOf: (step: Step) => number): number {
  let remainingMs = windowMs;
  let sumMs = 0;
  for (const each of steps.toReversed()) {
    const countedMs = Math.min(remainingMs, each.passedMs);
    sumMs += countedMs * fractionOf(each);
    remainingMs -= countedMs;
  }
  return sumMs;
}

const useAfter = (use: CoreUse, { passedMs, used, waited }: Step): CoreUse =>
  nextUse(use, use.atMs + passedMs, {
    usedMs: use.usedMs + used * passedMs,
    waitedMs: use.waitedMs + waited * passedMs,
    ready: false,
  });

const spin: Step = { passedMs: 500, used: 1, waited: 0 };
const useAfterSpinning = (): CoreUse => Array.from({ length: 20 }).reduce<CoreUse>((use) => useAfter(use, spin), START);

/** The policy demotes a sandbox when it sets `heavy`, and restores it when it clears `heavy`. */
describe('the core policy', () => {
  it('demotes only after 1.3 s of a core in 10 s, or after 0.19 s with under 0.35 s of sleep in the last 2 s', () => {
    const history = fc.array(fc.oneof(step(), neverSleeping(1), neverSleeping(0.2)), {
      minLength: 10,
      maxLength: 120,
      size: 'max',
    });
    let demotions = 0;
    fc.assert(
      fc.property(history, (steps) => {
        let use = START;
        for (const [i, each] of steps.entries()) {
          const before = use;
          use = useAfter(use, each);
          if (before.heavy || !use.heavy) continue;
          demotions++;
          const past = steps.slice(0, i + 1);
          const receivedMs = sumWithin(past, 10_000, ({ used }) => Math.min(1, used));
          const sleptMs = sumWithin(past, 2000, ({ used, waited }) => Math.max(0, 1 - used - waited));
          assert.ok(receivedMs >= 1300 || (receivedMs >= 190 && sleptMs < 350));
        }
      }),
      { seed: SEED, numRuns: 500 },
    );
    assert.ok(demotions > 200, `${demotions} demotions were seen`);
  });

  it('demotes a sandbox within 4 s if it never sleeps, however many processes share its core', () => {
    const crowded = fc.array(
      fc.double({ min: 0.15, max: 1, noNaN: true }).map((used) => ({ passedMs: 500, used, waited: 1 - used })),
      { minLength: 8, maxLength: 8 },
    );
    fc.assert(
      fc.property(crowded, (steps) => assert.ok(steps.reduce(useAfter, START).heavy)),
      { seed: SEED, numRuns: 200 },
    );
  });

  it('keeps a sandbox demoted while it always computes, however little time it receives', () => {
    const starved = fc.array(
      fraction.map((used) => ({ passedMs: 500, used: used / 10, waited: 1 - used / 10 })),
      { minLength: 100, maxLength: 100 },
    );
    fc.assert(
      fc.property(starved, (steps) => {
        let use = [spin, spin, spin].reduce(useAfter, START);
        assert.ok(use.heavy);
        for (const each of steps) {
          use = useAfter(use, each);
          assert.ok(use.heavy);
        }
      }),
      { seed: SEED, numRuns: 200 },
    );
  });

  it('gives the weight `background` after 0.25 s of computing, and always the usual weight to a light sandbox', () => {
    const short = (used: number, waited: number): Step => ({ passedMs: 250, used, waited });
    assert.equal(wantedWeight(useAfter(START, short(1, 0))), 'background');
    assert.equal(wantedWeight([short(0.5, 0.5), short(0.5, 0.5)].reduce(useAfter, START)), 'background');
    const light = fc.array(
      fc.record({ used: fraction, waited: fraction }).map(({ used, waited }) => short(used * 0.35, waited * 0.6)),
      { maxLength: 40, size: 'max' },
    );
    fc.assert(
      fc.property(light, (steps) => {
        let use = START;
        for (const each of steps) {
          use = useAfter(use, each);
          assert.equal(wantedWeight(use), 'usual');
        }
      }),
      { seed: SEED, numRuns: 300 },
    );
  });

  it('keeps a burst while the sandbox never sleeps, and ends it within a second of sleep', () => {
    let use = useAfter(START, { passedMs: 250, used: 1, waited: 0 });
    for (let i = 0; i < 6; i++) {
      use = useAfter(use, { passedMs: 250, used: 0.05, waited: 0.95 });
      assert.notEqual(wantedWeight(use), 'usual');
    }
    use = [250, 250].reduce((previous, passedMs) => useAfter(previous, { passedMs, used: 1, waited: 0 }), START);
    assert.equal(wantedWeight(use), 'background');
    for (let i = 0; i < 4; i++) use = useAfter(use, { passedMs: 250, used: 0, waited: 0 });
    assert.equal(wantedWeight(use), 'usual');
  });

  it("starts a sandbox with the usual weight, or with its tenant's earlier use if that is at most 4 s old", () => {
    assert.equal(wantedWeight(START), 'usual');
    assert.equal(inheritUse(START, undefined), START);
    const others = useAfterSpinning();
    const startAfter = (ms: number) => inheritUse({ ...START, atMs: others.atMs + ms, usedMs: 7 }, others);
    assert.deepEqual(startAfter(4000), { ...others, atMs: others.atMs + 4000, usedMs: 7 });
    assert.equal(wantedWeight(startAfter(4001)), 'usual');
  });

  it('counts a wait that the kernel has not counted yet', () => {
    let use = useAfterSpinning();
    const { usedMs, waitedMs } = use;
    for (let i = 0; i < 20; i++) use = nextUse(use, use.atMs + 500, { usedMs, waitedMs, ready: true });
    assert.ok(use.heavy);
    // The kernel counts the wait now; the policy must not count it again.
    use = nextUse(use, use.atMs + 500, { usedMs, waitedMs: waitedMs + 10_000, ready: false });
    assert.ok(!use.heavy);
  });

  it('restores a sandbox at the first sample that is 1.9 s or more after it stopped, whatever its history', () => {
    const history = fc.array(step(), { maxLength: 60, size: 'max' });
    const silence = fc.array(step(fc.constant(0), fc.constant(0)), { minLength: 9, maxLength: 9 });
    fc.assert(
      fc.property(history, silence, (steps, silent) => {
        let use = steps.reduce(useAfter, useAfterSpinning());
        const stoppedAtMs = use.atMs;
        for (const each of silent) {
          use = useAfter(use, each);
          if (use.atMs - stoppedAtMs >= 1900) assert.ok(!use.heavy);
        }
        // Nine samples of at least 300 ms reach well beyond 1.9 s.
        assert.ok(use.atMs - stoppedAtMs >= 2500);
      }),
      { seed: SEED, numRuns: 500 },
    );
  });

  it('restores a sandbox within 4 s after it begins to compute little, although it waits long for a core', () => {
    const light = step(
      fraction.map((used) => used / 4),
      fraction.map((waited) => waited * 0.6),
    );
    fc.assert(
      fc.property(fc.array(light, { minLength: 20, maxLength: 40, size: 'max' }), (steps) => {
        let use = useAfterSpinning();
        const changedAtMs = use.atMs;
        for (const each of steps) {
          use = useAfter(use, each);
          if (use.atMs - changedAtMs >= 4000) assert.ok(!use.heavy);
        }
      }),
      { seed: SEED, numRuns: 500 },
    );
  });

  it('changes a weight at most eight times a second, however often it samples', () => {
    const frequentStep = fc.record({
      passedMs: fc.integer({ min: 1, max: 100 }),
      used: fc.constantFrom(0, 0.1, 1),
      waited: fc.constantFrom(0, 0.9),
    });
    fc.assert(
      fc.property(fc.array(frequentStep, { minLength: 100, maxLength: 400, size: 'max' }), (steps) => {
        let use = START;
        const changedAtMs: number[] = [];
        for (const each of steps) {
          const before = wantedWeight(use);
          use = useAfter(use, each);
          if (wantedWeight(use) !== before) changedAtMs.push(use.atMs);
          assert.ok(changedAtMs.filter((atMs) => use.atMs - atMs < 1000).length <= 8);
        }
      }),
      { seed: SEED, numRuns: 300 },
    );
  });
});

describe('the weight changes of one sample', () => {
  const change = (sandbox: number): fc.Arbitrary<Change<number>> =>
    fc.record({
      sandbox: fc.constant(sandbox),
      weight: fc.constantFrom('usual', 'background', 'heavy'),
      triedAtMs: fc.integer({ min: -1, max: 50 }),
    });
  const wanted = fc
    .integer({ min: 0, max: 40 })
    .chain((n) => fc.tuple(...Array.from({ length: n }, (_, i) => change(i))));

  it('are bounded, and changes back to the usual weight come first', () => {
    fc.assert(
      fc.property(wanted, (changes) => {
        const chosenChanges = changesNow(changes);
        assert.equal(chosenChanges.length, Math.min(MOST_CHANGES, changes.length));
        const changesBack = changes.filter(({ weight }) => weight === 'usual').length;
        assert.equal(
          chosenChanges.filter(({ weight }) => weight === 'usual').length,
          Math.min(MOST_CHANGES, changesBack),
        );
      }),
      { seed: SEED },
    );
  });

  it('make a sandbox heavy before they give others the weight `background`', () => {
    const bursts = Array.from({ length: 9 }, () => ({ sandbox: 0, weight: 'background' as const, triedAtMs: -1 }));
    const [first] = changesNow([...bursts, { sandbox: 1, weight: 'heavy' as const, triedAtMs: 50 }]);
    assert.equal(first?.sandbox, 1);
  });

  it('try each sandbox in turn although the kernel refuses all changes', () => {
    const changes = Array.from({ length: 18 }, (_, sandbox) => ({ sandbox, weight: 'heavy' as const, triedAtMs: -1 }));
    const tried = new Set<number>();
    for (let sample = 0; sample < Math.ceil(changes.length / MOST_CHANGES); sample++) {
      for (const { sandbox } of changesNow(changes)) {
        tried.add(sandbox);
        changes[sandbox] = { sandbox, weight: 'heavy', triedAtMs: sample };
      }
    }
    assert.equal(tried.size, changes.length);
  });
});

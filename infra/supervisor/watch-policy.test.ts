import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { beginWatch, type Look, look, type Verdict, type WatchLimits } from './watch-policy.ts';

const BEAT_MS = 100;
const LIMITS: WatchLimits = { everyMs: BEAT_MS, computingMs: 500, stillMs: 3000 };

/** Activity of the child's main thread. `turns`: its event loop turns, so the child beats. */
type Doing = 'turns' | 'computes' | 'queues' | 'stands still';
interface Stretch {
  readonly doing: Doing;
  readonly ms: number;
  /** Pause of the whole machine, the supervisor included, before the stretch. */
  readonly machinePausesMs: number;
}

interface Result {
  readonly verdict: Verdict;
  /** Part of the silence in which the thread stood still, without pauses of the machine. */
  readonly stoodMs: number;
  /** Part of the silence in which the thread computed, without pauses of the machine. */
  readonly computingMs: number;
}

/**
 * Plays stretches to the policy until the policy decides. The supervisor checks every 100 ms, each time up to `lateness()` later; a pause of
 * the machine advances only the supervisor's clock. Like the kernel, `play` counts a wait for a processor when the wait ends.
 */
function play(stretches: readonly Stretch[], lateness: () => number): Result {
  let clock = 0;
  let computedMs = 0;
  let queuedMs = 0;
  let waitingMs = 0;
  let ready = true;
  let hasBeaten = true;
  const readLook = (): Look => {
    const now = { atMs: clock, hasBeaten, thread: { computedMs, queuedMs, ready } };
    hasBeaten = false;
    return now;
  };
  let silence = beginWatch(readLook());
  let stoodMs = 0;
  let computingMs = 0;
  let untilLookMs = BEAT_MS;
  for (const { doing, ms, machinePausesMs } of stretches) {
    clock += machinePausesMs;
    for (let remainingMs = ms; remainingMs > 0; ) {
      const step = Math.min(remainingMs, untilLookMs);
      remainingMs -= step;
      untilLookMs -= step;
      clock += step;
      ready = doing === 'computes' || doing === 'queues';
      if (doing === 'queues') waitingMs += step;
      else [queuedMs, waitingMs] = [queuedMs + waitingMs, 0];
      if (doing === 'turns') {
        hasBeaten = true;
        stoodMs = 0;
        computingMs = 0;
        computedMs += step / 2;
      } else if (doing === 'computes') {
        computedMs += step;
        computingMs += step;
      } else if (doing === 'stands still') stoodMs += step;
      if (untilLookMs > 0) continue;
      untilLookMs = BEAT_MS + lateness();
      const next = look(silence, readLook(), LIMITS);
      silence = next.silence;
      if (next.verdict !== 'alive') return { verdict: next.verdict, stoodMs, computingMs };
    }
  }
  return { verdict: 'alive', stoodMs, computingMs };
}

const stretch = (doing: fc.Arbitrary<Doing>, maxMs: number) =>
  fc.record({
    doing,
    ms: fc.integer({ min: 1, max: maxMs }),
    machinePausesMs: fc.oneof({ weight: 4, arbitrary: fc.constant(0) }, fc.integer({ min: 1, max: 60_000 })),
  });
const anyStretch = stretch(fc.constantFrom<Doing>('turns', 'computes', 'queues', 'stands still'), 2000);
/** Longest delay of the supervisor's timer in the property tests. */
const MAX_LATE_MS = 120;
const latenesses = fc.array(fc.integer({ min: 0, max: MAX_LATE_MS }), { minLength: 1, maxLength: 20, size: 'max' });
const cycle = (values: readonly number[]) => {
  let i = 0;
  return () => values[i++ % values.length] ?? 0;
};
const RUN = { seed: 20_261_121, numRuns: 400 };
const unpaused = (doing: Doing, ms: number): Stretch => ({ doing, ms, machinePausesMs: 0 });

describe('the watch over a child', () => {
  test('does not kill a child within the limits of silence, even if the machine pauses', () => {
    const property = fc.property(
      fc.array(anyStretch, { maxLength: 60, size: 'max' }),
      latenesses,
      (stretches, lateMs) => {
        const { verdict, stoodMs, computingMs } = play(stretches, cycle(lateMs));
        if (verdict === 'computing') assert.ok(computingMs >= LIMITS.computingMs - 1e-6, `${computingMs}`);
        if (verdict === 'still') assert.ok(stoodMs >= LIMITS.stillMs - 1e-6, `${stoodMs}`);
      },
    );
    fc.assert(property, RUN);
  });

  test('kills a child that stands still within two checks after the limit', () => {
    const property = fc.property(fc.array(anyStretch, { maxLength: 10 }), latenesses, (stretches, lateMs) => {
      const stuck = [
        ...stretches,
        unpaused('turns', 300),
        unpaused('stands still', LIMITS.stillMs + 2 * (BEAT_MS + MAX_LATE_MS)),
      ];
      assert.notEqual(play(stuck, cycle(lateMs)).verdict, 'alive');
    });
    fc.assert(property, RUN);
  });

  test('kills a child in an endless loop within two checks after the limit', () => {
    const property = fc.property(fc.array(anyStretch, { maxLength: 10 }), latenesses, (stretches, lateMs) => {
      const spins = [
        ...stretches,
        unpaused('turns', 300),
        unpaused('computes', LIMITS.computingMs + 2 * (BEAT_MS + MAX_LATE_MS)),
      ];
      assert.notEqual(play(spins, cycle(lateMs)).verdict, 'alive');
    });
    fc.assert(property, RUN);
  });

  test('kills a child that stands still although each check by the supervisor comes late', () => {
    assert.equal(play([unpaused('stands still', 300_000)], () => 900).verdict, 'still');
  });

  test('does not kill a child that waits for a processor, however late the kernel counts the wait', () => {
    assert.equal(play([unpaused('queues', 600_000)], () => 0).verdict, 'alive');
    const starving = Array.from({ length: 100 }, () => [unpaused('queues', 10_000), unpaused('computes', 4)]).flat();
    assert.equal(play(starving, () => 30).verdict, 'alive');
  });

  test('uses silence alone when thread times are missing', () => {
    let silence = beginWatch({ atMs: 0, hasBeaten: true, thread: null });
    let verdict: Verdict = 'alive';
    let atMs = 0;
    while (verdict === 'alive') {
      atMs += BEAT_MS;
      ({ silence, verdict } = look(silence, { atMs, hasBeaten: false, thread: null }, LIMITS));
    }
    assert.deepEqual([verdict, atMs], ['still', LIMITS.stillMs]);
  });

  test('needs no thread times at a check that finds a beat', () => {
    // Without thread times at the first check, the interval after it does not count as computing.
    let silence = beginWatch({ atMs: 0, hasBeaten: true, thread: null });
    let verdict: Verdict = 'alive';
    let atMs = 0;
    while (verdict === 'alive') {
      atMs += BEAT_MS;
      const thread = { computedMs: 5000 + atMs, queuedMs: 0, ready: true };
      ({ silence, verdict } = look(silence, { atMs, hasBeaten: false, thread }, LIMITS));
    }
    assert.deepEqual([verdict, atMs], ['computing', BEAT_MS + LIMITS.computingMs]);
  });

  test('says what the main thread did for most of the last interval, and for how long the child has been silent', () => {
    const part = fc.integer({ min: 0, max: 1000 });
    const property = fc.property(part, part, part, (computed, queued, still) => {
      const totalMs = Math.max(1, computed + queued + still);
      const scale = BEAT_MS / totalMs;
      const first = beginWatch({ atMs: 0, hasBeaten: true, thread: { computedMs: 5, queuedMs: 7, ready: false } });
      const thread = { computedMs: 5 + computed * scale, queuedMs: 7 + queued * scale, ready: false };
      const { silence } = look(first, { atMs: BEAT_MS, hasBeaten: false, thread }, LIMITS);
      const parts = { computing: computed, starved: queued, stopped: still };
      const state = silence.state as keyof typeof parts;
      if (computed + queued + still > 0) assert.equal(parts[state], Math.max(computed, queued, still));
      assert.equal(silence.silentMs, BEAT_MS);
    });
    fc.assert(property, RUN);
    const beat = beginWatch({ atMs: 0, hasBeaten: true, thread: null });
    assert.deepEqual([beat.state, beat.silentMs], ['scheduled', 0]);
  });
});

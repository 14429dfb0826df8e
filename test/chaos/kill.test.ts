import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Platform } from '#test/harness/platform.ts';
import { untilNoneLeft } from './invocations.ts';
import { type KillRun, killRun, PHASES, type Phase, phaseOf, startPlatform } from './kill-runs.ts';

/** One run for each phase; 200 runs with PIE_TEST_ALL. */
const RUNS = process.env.PIE_TEST_ALL ? 200 : PHASES.length;
const SEED = 1;

let platform: Platform;
before(async () => {
  platform = await startPlatform();
});
after(() => platform?.[Symbol.asyncDispose]());

/**
 * Maximum number of further runs of a phase in which no kill has hit an invocation yet. On a busy machine, a kill may come after all invocations have
 * ended.
 */
const MAX_REPEATS = 5;

// A run takes 5 s, and 30 s on a busy machine.
const options = { timeout: (RUNS + PHASES.length * MAX_REPEATS) * 60_000 };

test(
  `after each of ${RUNS} runtime kills, every invocation ends once, its usage counts the stored tokens, and only restartable ones rerun`,
  options,
  async (t) => {
    const runs: KillRun[] = [];
    for (let seed = SEED; seed < SEED + RUNS; seed++) runs.push(await killRun(platform, seed));
    const isHit = (wanted: Phase) => runs.some(({ phase, hit }) => phase === wanted && hit > 0);
    let seed = SEED + RUNS;
    for (let repeat = 0; repeat < MAX_REPEATS; repeat++) {
      // The phase of a run follows from its seed, so these seeds have each phase once.
      const endSeed = seed + PHASES.length;
      for (; seed < endSeed; seed++) if (!isHit(phaseOf(seed))) runs.push(await killRun(platform, seed));
    }
    const hitsByPhase = JSON.stringify(runs.map(({ phase, hit }) => [phase, hit]));
    t.diagnostic(`invocations that lost an attempt: ${hitsByPhase}`);
    for (const phase of PHASES)
      assert.ok(isHit(phase), `a kill hit an invocation in the phase ${phase}: ${hitsByPhase}`);
    await untilNoneLeft(platform);
  },
);

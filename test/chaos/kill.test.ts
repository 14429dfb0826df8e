import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Platform } from '#test/harness/platform.ts';
import { untilNoneLeft } from './invocations.ts';
import { type KillRun, killRun, PHASES, startPlatform } from './kill-runs.ts';

/** Each phase once; 200 runs with PIE_TEST_ALL. */
const RUNS = process.env.PIE_TEST_ALL ? 200 : PHASES.length;
const SEED = 1;

let platform: Platform;
before(async () => {
  platform = await startPlatform();
});
after(() => platform?.[Symbol.asyncDispose]());

test(`after each of ${RUNS} runtime kills, invocations end once, with usage of stored tokens and no second run`, async (t) => {
  const runs: KillRun[] = [];
  for (let seed = SEED; seed < SEED + RUNS; seed++) runs.push(await killRun(platform, seed));
  assert.equal(new Set(runs.map(({ phase }) => phase)).size, PHASES.length);
  const hitsByPhase = JSON.stringify(runs.map(({ phase, hit }) => [phase, hit]));
  t.diagnostic(`invocations that lost an attempt: ${hitsByPhase}`);
  // On a machine under load, the kills of some runs may come after their invocations have ended.
  assert.ok(runs.filter(({ hit }) => hit > 0).length > RUNS / 2, `most kills hit an invocation: ${hitsByPhase}`);
  await untilNoneLeft(platform);
});

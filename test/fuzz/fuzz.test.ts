import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fuzz } from './fuzz.ts';

test('mutated frames affect only the connections that send them', async (context) => {
  const frames = Number(process.env.PIE_FUZZ_FRAMES ?? (process.env.PIE_TEST_ALL ? 20_000 : 6_000));
  const seed = Number(process.env.PIE_FUZZ_SEED ?? 1);
  context.diagnostic(`seed ${seed}; again: PIE_FUZZ_SEED=${seed} PIE_FUZZ_FRAMES=${frames}`);
  const report = await fuzz({ frames, seed });
  context.diagnostic(JSON.stringify(report));
  assert.deepEqual(report.problems, []);
  assert.equal(report.frames >= frames, true);
  assert.equal(report.neighbourRounds >= 12, true);
  assert.ok(report.keptCopyBytes > 0, 'the host kept no complete copy of pages');
  assert.ok(report.swapsOut > 0, 'no page was swapped out');
  for (const code of ['truncated', 'oversized', 'version', 'malformed', 'unexpected']) {
    assert.ok((report.endings[code] ?? 0) > 0, `no connection ended with ${code}`);
  }
  for (const answer of ['ok', 'invalid-argument', 'not-owned', 'limit-exceeded', 'dependency-failed']) {
    assert.ok((report.answers[answer] ?? 0) > 0, `no call returned ${answer}`);
  }
});

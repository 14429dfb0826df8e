import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { Usage } from '#scheduler/invocations/types.ts';
import { QUIET_MS, type Reporting, UsageReports } from './usage.ts';

class Attempt implements Reporting {
  lastCallAt = 0;
  reported: Usage | null = null;
  busy = false;
  usage: Usage = { cpuMs: 1 };
  reports = 0;

  report(usage: Usage): boolean {
    if (this.busy) return false;
    this.reports++;
    this.reported = usage;
    return true;
  }
}

it('reports only attempts that called the store long ago and have used more since', () => {
  const reports = new UsageReports();
  const attempt = new Attempt();
  const unwatch = reports.watch(attempt, () => attempt.usage);
  reports.look(QUIET_MS - 1);
  assert.equal(attempt.reports, 0, 'the attempt may still send usage along with events');
  attempt.busy = true;
  reports.look(QUIET_MS);
  attempt.busy = false;
  reports.look(QUIET_MS);
  assert.equal(attempt.reports, 1);
  reports.look(2 * QUIET_MS);
  assert.equal(attempt.reports, 1, 'the usage is unchanged');
  attempt.usage = { cpuMs: 1, wallMs: 5000 };
  reports.look(2 * QUIET_MS);
  assert.equal(attempt.reports, 1, 'elapsed time alone is not reported');
  attempt.usage = { cpuMs: 1, gpuMs: 0.5, wallMs: 5000 };
  attempt.lastCallAt = 2 * QUIET_MS;
  reports.look(2 * QUIET_MS + 1);
  assert.equal(attempt.reports, 1, 'the last call is 1 ms old');
  reports.look(3 * QUIET_MS);
  assert.equal(attempt.reports, 2);
  unwatch();
  attempt.usage = { cpuMs: 9 };
  reports.look(9 * QUIET_MS);
  assert.equal(attempt.reports, 2, 'an unwatched attempt is not reported');
});

it('reports an attempt with tokens that it does not use after a quarter of a second, though its usage is unchanged', () => {
  const reports = new UsageReports();
  const attempt = new Attempt();
  attempt.reported = attempt.usage;
  let hasSurplus = true;
  const unwatch = reports.watch(
    attempt,
    () => attempt.usage,
    () => hasSurplus,
  );
  reports.look(QUIET_MS / 4 - 1);
  assert.equal(attempt.reports, 0);
  reports.look(QUIET_MS / 4);
  assert.equal(attempt.reports, 1);
  hasSurplus = false;
  reports.look(QUIET_MS);
  assert.equal(attempt.reports, 1, 'the report has returned the tokens');
  unwatch();
});

it('spreads the reports of many attempts over several rounds, so that each attempt gets its turn', () => {
  const reports = new UsageReports();
  const idle = Array.from({ length: 300 }, () => new Attempt());
  const busy = Array.from({ length: 500 }, () => new Attempt());
  const unwatch = [
    ...idle.map((attempt) => reports.watch(attempt, () => ({}))),
    ...busy.map((attempt) => reports.watch(attempt, () => ({ cpuMs: attempt.reports + 1 }))),
  ];
  for (let round = 1; round <= 5; round++) {
    reports.look(QUIET_MS);
    const counts = busy.map(({ reports: count }) => count);
    // A round sends at most 200 reports.
    assert.equal(
      counts.reduce((sum, count) => sum + count, 0),
      round * 200,
    );
    assert.ok(Math.max(...counts) - Math.min(...counts) <= 1);
  }
  for (const end of unwatch) end();
});

it('checks by its own timer while it watches an attempt', (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const reports = new UsageReports();
  const [ended, running] = [new Attempt(), new Attempt()];
  const [unwatchEnded, unwatch] = [ended, running].map((attempt) => reports.watch(attempt, () => attempt.usage));
  running.lastCallAt = performance.now() - QUIET_MS;
  unwatchEnded?.();
  t.mock.timers.tick(250);
  assert.equal(running.reports, 1);
  unwatch?.();
});

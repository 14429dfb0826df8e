import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { spanNumber, spanStart } from '#scheduler/quotas/windows.ts';
import { deployWith } from '#test/harness/deploy.ts';
import { json, say } from '#test/harness/events.ts';
import { Platform, until } from '#test/harness/platform.ts';
import { checkEnded, messageCount, type Watched, watch } from './invocations.ts';

const HOUR_MS = 3_600_000;
/** The clock steps back and forward again, then forward and back again. */
const STEPS_MS = [-HOUR_MS, 0, HOUR_MS, 0];
const TOKENS = 6;
const LISTEN_AT = 3;
const PRELOAD = new URL('./stepping-clock.ts', import.meta.url);

describe('a wall clock that steps by an hour and back', () => {
  let clocks: string;
  let platform: Platform;
  let begun = 0;
  let steps = 0;
  before(async () => {
    clocks = await mkdtemp(path.join(os.tmpdir(), 'pie-clocks-'));
    const env = { NODE_OPTIONS: `--import=${PRELOAD}`, PIE_TEST_CLOCKS: clocks };
    platform = await Platform.start({ functions: false, env });
    await deployWith(platform, 'counted', {});
    const limit = await platform.fetch('/v1/quotas', {
      method: 'PUT',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ quota: 'requests-per-month', limit: 1000 }),
    });
    assert.equal(limit.status, 200);
  });
  after(async () => {
    await platform?.[Symbol.asyncDispose]();
    await rm(clocks, { recursive: true, force: true });
  });

  async function step(name: string, ms: number): Promise<void> {
    const file = path.join(clocks, name);
    const number = ++steps;
    await writeFile(`${file}.new`, `${number} ${ms}`);
    await rename(`${file}.new`, file);
    const logs = () => globSync(`${platform.home}/logs/${name}*.log`).map((log) => readFileSync(log, 'utf8'));
    await until(`the clock of ${name} has stepped`, () => logs().some((log) => log.includes(`clock step ${number}.`)));
  }

  /** Begins an invocation that has run a child, has sent three tokens and waits for its client. */
  async function begin(): Promise<Watched> {
    const input = { mark: `run-${begun++}`, tokens: TOKENS, listenAt: LISTEN_AT, child: true };
    const watched = await watch(platform, input, { restartable: false });
    const isOver = () => ['result', 'error'].includes(watched.events.at(-1)?.event ?? '');
    await until('it waits for its client', () => messageCount(watched) === LISTEN_AT || isOver());
    assert.equal(isOver(), false, JSON.stringify(watched.events.at(-1)));
    return watched;
  }

  async function end(watched: Watched): Promise<void> {
    await say(platform, watched.id, { text: 'go on' });
    await watched.ended;
    assert.equal(await checkEnded(platform, watched), 'result');
  }

  for (const name of ['gateway', 'runtime'])
    it(`of the ${name} ends and delays no invocation, and each is counted once`, async () => {
      const startedAt = Date.now();
      const count = async () => {
        const from = new Date(startedAt - 3 * HOUR_MS).toISOString();
        const to = new Date(startedAt + 3 * HOUR_MS).toISOString();
        const { usage } = await json(await platform.fetch(`/v1/usage?by=hour&from=${from}&to=${to}`));
        const { quotas } = await json(await platform.fetch('/v1/quotas'));
        const quota = quotas.find((each: { quota: string }) => each.quota === 'requests-per-month');
        const sum = (field: string): number =>
          usage.reduce((total: number, row: Record<string, number>) => total + (row[field] ?? 0), 0);
        const hours: string[] = usage.map(({ at }: { at: string }) => at);
        return { counts: [quota.used, sum('requests'), sum('succeeded'), sum('outputTokens')], hours };
      };
      const { counts: before } = await count();
      const invocations: Watched[] = [await begin()];
      const open = [...invocations];
      for (const ms of STEPS_MS) {
        await step(name, ms);
        const next = await begin();
        invocations.push(next);
        open.push(next);
        // End an invocation that began before the step.
        await end(open.shift() as Watched);
      }
      for (const each of open) await end(each);
      const { counts, hours } = await count();
      // Each invocation launches a child, which is no request and makes as many tokens; `checkEnded` makes one more request for each.
      const requests = 2 * invocations.length;
      const added = counts.map((value, i) => value - (before[i] ?? 0));
      assert.deepEqual(added, [requests, requests, 3 * invocations.length, 2 * TOKENS * invocations.length]);
      const hour = (at: number) => spanStart('hour', spanNumber('hour', at));
      for (const at of hours) assert.ok(Date.parse(at) >= hour(startedAt) && Date.parse(at) <= hour(Date.now()), at);
    });
});

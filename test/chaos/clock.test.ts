import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { spanNumber, spanStart } from '#scheduler/quotas/names.ts';
import { deployWith } from '#test/harness/deploy.ts';
import { json, say } from '#test/harness/events.ts';
import { Platform, until } from '#test/harness/platform.ts';
import { checkEnded, messageCount, type Watched, watch } from './invocations.ts';

const HOUR_MS = 3_600_000;
/** Successive offsets of the clock from the real time. The clock steps back and forward again, then forward and back again. */
const OFFSETS_MS = [-HOUR_MS, 0, HOUR_MS, 0];
/** Tokens that each invocation, and each child, generates. */
const TOKENS = 6;
/** An invocation sends this many tokens before it waits for its client. */
const LISTEN_AT = 3;
const PRELOAD = new URL('./stepping-clock.ts', import.meta.url);

describe('a wall clock that steps by an hour and back', () => {
  /** Folder of the files that `stepping-clock.ts` polls. */
  let clocks: string;
  let platform: Platform;
  let startedAt: number;
  let begunCount = 0;
  let stepCount = 0;
  before(async () => {
    startedAt = Date.now();
    clocks = await mkdtemp(path.join(os.tmpdir(), 'pie-clocks-'));
    const env = { NODE_OPTIONS: `--import=${PRELOAD}`, PIE_TEST_CLOCKS: clocks };
    platform = await Platform.start({ functions: false, env });
    await deployWith(platform, 'counted', {});
    // The test reads how much of this quota is used, and never reaches the limit.
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

  /** Steps the clock of a process, and waits until the process has noticed. */
  async function step(name: string, offsetMs: number): Promise<void> {
    const file = path.join(clocks, name);
    const number = ++stepCount;
    await writeFile(`${file}.new`, `${number} ${offsetMs}`);
    await rename(`${file}.new`, file);
    const logs = () => globSync(`${platform.home}/logs/${name}*.log`).map((log) => readFileSync(log, 'utf8'));
    await until(`the clock of ${name} has stepped`, () => logs().some((log) => log.includes(`clock step ${number}.`)));
  }

  /** Begins an invocation. Resolves when it has run a child, has sent its first tokens and waits for its client. */
  async function begin(): Promise<Watched> {
    const input = { mark: `run-${begunCount++}`, tokens: TOKENS, listenAt: LISTEN_AT, child: true };
    // Not restartable: a second attempt would hide that a step of the clock ended the first one.
    const watched = await watch(platform, input, { restartable: false });
    const isOver = () => ['result', 'error'].includes(watched.events.at(-1)?.event ?? '');
    await until('it waits for its client', () => messageCount(watched) === LISTEN_AT || isOver());
    assert.equal(isOver(), false, JSON.stringify(watched.events.at(-1)));
    return watched;
  }

  async function end(watched: Watched): Promise<void> {
    await say(platform, watched.id, { text: 'go on' });
    // `ended` rejects after a few minutes. The test therefore fails if a step back by an hour makes an invocation wait for that hour.
    await watched.ended;
    assert.equal(await checkEnded(platform, watched), 'result');
  }

  for (const name of ['gateway', 'runtime'])
    it(`in the ${name} neither ends invocations nor holds them up, and the platform counts each of them once`, async () => {
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
      const { counts: countsBefore } = await count();
      const invocations: Watched[] = [await begin()];
      const open = [...invocations];
      for (const offsetMs of OFFSETS_MS) {
        await step(name, offsetMs);
        const next = await begin();
        invocations.push(next);
        open.push(next);
        // End an invocation that began before the step.
        await end(open.shift() as Watched);
      }
      for (const each of open) await end(each);
      const { counts, hours } = await count();
      const roots = invocations.length;
      // A root is an invocation that the test has requested. Each root has run one child. A child does not count as a request and generates as many
      // tokens as its root.
      const children = roots;
      // For each root, `checkEnded` makes one more request: an invocation that reads a number and generates no token.
      const checks = roots;
      const requests = roots + checks;
      const succeeded = roots + children + checks;
      const outputTokens = TOKENS * (roots + children);
      const added = counts.map((value, i) => value - (countsBefore[i] ?? 0));
      assert.deepEqual(added, [requests, requests, succeeded, outputTokens]);
      // All usage belongs to real hours, and none to an hour that only a stepped clock has shown.
      const hour = (at: number) => spanStart('hour', spanNumber('hour', at));
      for (const at of hours) assert.ok(Date.parse(at) >= hour(startedAt) && Date.parse(at) <= hour(Date.now()), at);
    });
});

import assert from 'node:assert/strict';
import { copyFile, mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { deployWith } from '#test/harness/deploy.ts';
import { type Client, clientWith, json } from '#test/harness/events.ts';
import { newHome, Platform, type ProgramResult, ROOT, runProgram, until } from '#test/harness/platform.ts';
import { createTenant } from '#test/harness/tenants.ts';

const SECRET = 'a secret of acme';
const TEXT = 'Once upon a time there was a little dog';

let directory: string;
let file: string;
let home: string;
before(async () => {
  directory = await mkdtemp(path.join(os.tmpdir(), 'pie-bk-'));
  file = path.join(directory, 'backup');
  home = await newHome();
});
after(async () => {
  for (const each of [directory, home]) await rm(each, { recursive: true, force: true, maxRetries: 10 });
});

/** The `pie` command in a home, without a platform. */
const pie = (homeDirectory: string, ...args: string[]): Promise<ProgramResult> =>
  runProgram(process.execPath, [path.join(ROOT, 'gateway/cli/bin.js'), ...args], {
    env: { PATH: process.env.PATH, HOME: process.env.HOME, PIE_HOME: homeDirectory },
    cwd: ROOT,
  });

// biome-ignore lint/suspicious/noExplicitAny: the test reads what the wire says
async function run(tenant: Client, input: object): Promise<any> {
  const response = await tenant.fetch('/v1/functions/kept/invocations', {
    method: 'POST',
    headers: { 'content-type': 'application/json', prefer: 'wait=60' },
    body: JSON.stringify(input),
  });
  const outcome = await json(response);
  assert.equal(response.status, 200, JSON.stringify(outcome));
  return outcome.output ?? outcome;
}

test('a backup restores a platform that was destroyed', async () => {
  // biome-ignore lint/suspicious/noExplicitAny: the test reads what the wire says
  let expected: any;
  let usage: readonly { inputTokens: number }[] = [];
  let quota = { used: 0 };
  let acmeKey = '';
  let operatorKey = '';
  const usageOf = async (tenant: Client) => (await json(await tenant.fetch('/v1/usage?by=month'))).usage;
  const quotaOf = async (tenant: Client) =>
    (await json(await tenant.fetch('/v1/quotas'))).quotas.find(
      ({ quota }: { quota: string }) => quota === 'tokens-per-month',
    );
  {
    await using platform = await Platform.start({ home, keepHome: true, functions: false });
    operatorKey = platform.apiKey;
    const acme = await createTenant(platform, 'acme');
    acmeKey = acme.apiKey;
    const asAcme = async (args: string[], input?: string) => {
      const result = await platform.pie(args, { apiKey: acmeKey, ...(input !== undefined && { input }) });
      assert.equal(result.code, 0, result.stderr);
    };
    await asAcme(['secrets', 'set', 'TOKEN'], SECRET);
    await deployWith(platform, 'kept', {}, acmeKey);
    assert.equal((await platform.pie(['quota', 'set', 'tokens-per-month', '5000000', '--tenant', 'acme'])).code, 0);
    await asAcme(['schedule', 'create', 'nightly', 'kept', '--cron', '0 3 * * *', '--input', '{"act":"read"}']);
    await run(acme, { act: 'keep', text: TEXT });
    expected = await run(acme, { act: 'read' });
    // A GPU host may report the last usage of an invocation after its end. A backup between two equal readings contains the usage that they show.
    await until('a backup is written while the usage stands still', async () => {
      usage = await usageOf(acme);
      quota = await quotaOf(acme);
      await rm(file, { force: true });
      const written = await platform.pie(['backup', file]);
      assert.equal(written.code, 0, written.stderr);
      assert.match(written.stdout, /^Wrote .*: \d+ records and 2 files/);
      return isDeepStrictEqual([await usageOf(acme), await quotaOf(acme)], [usage, quota]);
    });
    assert.ok(usage.some(({ inputTokens }) => inputTokens > 0) && quota.used > 0, JSON.stringify([usage, quota]));
    assert.equal((await stat(file)).mode & 0o777, 0o600);
    const running = await pie(home, 'restore', file, '--force');
    assert.equal(running.code, 2);
    assert.match(running.stderr, /in use by a running platform/);
  }
  const bytes = await readFile(file);
  for (const hidden of [acmeKey, operatorKey, SECRET]) assert.equal(bytes.includes(hidden), false);
  await copyFile(path.join(home, 'master.key'), path.join(directory, 'master.key'));
  await rm(home, { recursive: true, maxRetries: 10 });

  const keyless = await pie(home, 'restore', file);
  assert.equal(keyless.code, 2);
  assert.match(keyless.stderr, /sealed under the master key/);
  await assert.rejects(stat(home), 'a refusal leaves nothing behind');
  home = await newHome();
  await copyFile(path.join(directory, 'master.key'), path.join(home, 'master.key'));
  const restored = await pie(home, 'restore', file);
  assert.equal(restored.code, 0, restored.stderr);
  assert.match(restored.stdout, /^Restored \d+ records and 2 files/);
  assert.match((await pie(home, 'restore', file)).stderr, /There is a platform already/);

  await using platform = await Platform.start({ home, keepHome: true, functions: false });
  // Both keys were issued before the backup.
  const [acme, operator] = [acmeKey, operatorKey].map((key) => clientWith(platform.url, key)) as [Client, Client];
  assert.deepEqual(await usageOf(acme), usage, 'the usage');
  assert.deepEqual(await quotaOf(acme), quota, 'the quota and its use');
  const restoredAnswer = await run(acme, { act: 'read' });
  assert.deepEqual([restoredAnswer.secret, restoredAnswer.stored, restoredAnswer.nearest], [SECRET, TEXT, 'near']);
  assert.deepEqual(
    [restoredAnswer.tokens, restoredAnswer.next.tokens],
    [expected.tokens, expected.next.tokens],
    'the saved context',
  );
  assert.equal(restoredAnswer.next.logProbabilities.length, 3);
  for (const [i, logProbability] of restoredAnswer.next.logProbabilities.entries())
    assert.ok(
      Math.abs(logProbability - expected.next.logProbabilities[i]) < 1e-3,
      JSON.stringify([restoredAnswer, expected]),
    );
  await until('the schedule has a next time', async () => {
    const { schedules } = await json(await acme.fetch('/v1/schedules'));
    return schedules?.[0]?.name === 'nightly' && schedules[0].nextAt !== null;
  });
  const { status } = await operator.fetch('/v1/tenants');
  assert.equal(status, 200, 'the operator’s key works');
  const audit = await json(await operator.fetch('/v1/audit?tenant=acme'));
  assert.match(JSON.stringify(audit), /tokens-per-month/);
});

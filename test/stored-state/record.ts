/** Records the state that this version stores: `node test/stored-state/record.ts VERSION`. See ../README.md. */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { loadConfig } from '#infra/config.ts';
import { connectRedis } from '#infra/redis.ts';
import { spanNumber } from '#scheduler/quotas/names.ts';
import { deploySource } from '../harness/deploy.ts';
import { invoke, json, readEvents } from '../harness/events.ts';
import { newHome, Platform, until } from '../harness/platform.ts';
import { createTenant } from '../harness/tenants.ts';
import { KEEP, keeper } from './guest.ts';
import { answersOf, type Expected, FOLDER, readRecords } from './stored.ts';

const SECRET = 'the secret of the fixture';
/** This key need not be secret: it seals only the values of the fixture. */
const MASTER_KEY = `${createHash('sha256').update('the stored state').digest('base64')}\n`;

const [version] = process.argv.slice(2);
if (!version) throw new Error('usage: node test/stored-state/record.ts VERSION');
const folder = path.join(FOLDER, version);
if (existsSync(folder)) throw new Error(`${folder} is there: the state of a version is recorded once.`);
const home = await newHome();
const work = await mkdtemp(path.join(os.tmpdir(), 'pie-record-'));
await writeFile(path.join(home, 'master.key'), MASTER_KEY, { mode: 0o600 });
try {
  await using platform = await Platform.start({ home, functions: false, env: { PIE_MACHINE: 'fixture' } });
  const acme = await createTenant(platform, 'acme');
  const { apiKey } = acme;
  const put = async (route: string, body: object, client: Pick<Platform, 'fetch'> = acme) => {
    const headers = { 'content-type': 'application/json' };
    const response = await client.fetch(route, { method: 'PUT', headers, body: JSON.stringify(body) });
    if (!response.ok) throw new Error(`${route}: ${await response.text()}`);
  };
  await put('/v1/secrets/TOKEN', { value: SECRET });
  await put('/v1/quotas', { tenant: 'acme', quota: 'requests-per-month', limit: 5000 }, platform);
  const component = path.join(work, 'keeper.wasm');
  await writeFile(component, await keeper());
  const deploy = (edition: string) => {
    const manifest = { secrets: ['TOKEN'], environment: { EDITION: edition }, grants: { store: true } };
    return deploySource(platform, component, { name: 'keeper', manifest, apiKey });
  };
  const first = await deploy('first');
  await deploy('second');
  await put('/v1/functions/keeper/aliases/early', { shares: [{ version: first, weight: 100 }] });
  await put('/v1/schedules/nightly', { function: 'keeper', cron: '0 3 1 1 *', input: 'read' });
  await json(await acme.fetch('/v1/webhooks/secret'));
  await invoke(acme, 'keeper', KEEP);
  // Redis keeps the counts of the latest minute apart from the counts of earlier minutes. The state must have both.
  const minute = spanNumber('minute', Date.now());
  await until('another minute begins', () => spanNumber('minute', Date.now()) !== minute, 70_000);
  const [start] = await invoke(acme, 'keeper', KEEP);
  const invocation = String(start?.data.invocation);
  const events = await readEvents(await acme.fetch(`/v1/invocations/${invocation}/events`));
  const answers = await answersOf(acme, invocation);
  await mkdir(folder);
  const written = await platform.pie(['backup', path.join(folder, 'backup')]);
  if (written.code !== 0) throw new Error(written.stderr);
  const redis = connectRedis(loadConfig(platform.environment));
  const records = await readRecords(redis, 'acme').finally(() => redis.disconnect());
  const expected: Expected = { operatorKey: platform.apiKey, tenantKey: apiKey, invocation, events, answers };
  const text = (value: unknown) => `${JSON.stringify(value, null, 2)}\n`;
  await writeFile(path.join(folder, 'invocations.json'), text(records));
  await writeFile(path.join(folder, 'expected.json'), text(expected));
  await writeFile(path.join(folder, 'master.key'), MASTER_KEY);
} catch (error) {
  // The next attempt refuses a folder that exists.
  await rm(folder, { recursive: true, force: true });
  throw error;
} finally {
  await rm(work, { recursive: true });
}

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { mkdtemp, readdir, readFile, stat } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { loadConfig } from '#infra/config.ts';
import { openConnection } from '#scheduler/store/connection.ts';
import { schemaFaults } from '#scheduler/testing/schema.ts';
import { Platform, ROOT, until } from '#test/harness/platform.ts';

const FUNCTION = path.join(ROOT, 'test/inferlets/secrets');
const [firstToken, secondToken] = [18, 12].map((bytes) => `tok-${randomBytes(bytes).toString('hex')}`) as [
  string,
  string,
];

let platform: Platform;
/** Environment of the function in its pie.json. */
const { environment } = JSON.parse(readFileSync(path.join(FUNCTION, 'pie.json'), 'utf8')) as {
  environment: { ZONE: string };
};
/** Texts that must not appear anywhere outside the function. */
const hidden = [firstToken, secondToken, environment.ZONE];

before(async () => {
  // Homes of other tests link to shared artifacts. This home has its own, so that the last test reads only the artifacts of this platform.
  const home = await mkdtemp(path.join(os.tmpdir(), 'pie-'));
  platform = await Platform.start({ home, functions: false });
});
after(() => platform?.[Symbol.asyncDispose]());

async function pie(args: readonly string[], options: { input?: string; apiKey?: string } = {}) {
  const result = await platform.pie(args, options);
  assert.equal(result.code, 0, `pie ${args.join(' ')}: ${result.stderr}`);
  return result;
}

const secretLength = async () => {
  const { stdout } = await pie(['invoke', 'secrets', '--input', '{}', '--json']);
  const output = /"output":(\{[^}]*\})/.exec(stdout)?.[1] ?? '{}';
  return (JSON.parse(output) as { length?: number }).length;
};

test('a function has the secret values of its deploy, and a rollback restores the earlier ones', async () => {
  const unknown = await platform.pie(['deploy', FUNCTION]);
  assert.notEqual(unknown.code, 0);
  assert.match(unknown.stderr, /TOKEN[\s\S]*pie secrets set TOKEN[\s\S]*unknown-secret/);
  assert.match(
    (await pie(['secrets', 'set', 'TOKEN'], { input: `${firstToken}\n` })).stdout,
    /Stored TOKEN, revision \d+/,
  );
  await pie(['deploy', FUNCTION]);
  assert.equal(await secretLength(), firstToken.length);
  const { stderr } = await pie(['secrets', 'set', 'TOKEN'], { input: secondToken });
  assert.match(stderr, /secrets still has an older value.*pie deploy/);
  assert.equal(await secretLength(), firstToken.length);
  await pie(['deploy', FUNCTION]);
  assert.equal(await secretLength(), secondToken.length);
  await pie(['rollback', 'secrets', '--yes']);
  assert.equal(await secretLength(), firstToken.length);
  const shown = [
    await pie(['deploy', FUNCTION, '--dry-run', '--json']),
    await pie(['list', '--json']),
    await pie(['versions', 'secrets', '--json']),
  ];
  for (const { stdout } of shown) {
    assert.match(stdout, /"ZONE":\s*"\(sealed\)"/);
    assert.ok(!stdout.includes(environment.ZONE));
  }
  const removal = await platform.pie(['secrets', 'remove', 'TOKEN']);
  assert.match(removal.stderr, /used by secrets@/);
});

test('log lines and errors show the name of a secret instead of its value', async () => {
  await pie(['invoke', 'secrets', '--input', '{"act":"log"}']);
  const failed = await platform.pie(['invoke', 'secrets', '--input', '{"act":"fail"}']);
  assert.match(failed.stderr, /refused with \[TOKEN\] in \[ZONE\]/);
  const { stdout } = await pie(['logs', 'secrets']);
  assert.match(stdout, /the token \[TOKEN\] \{ token: "\[TOKEN\]" \}/);
  assert.match(stdout, /warn.*\[TOKEN\]$/m);
  assert.match(stdout, /the zone \[ZONE\]$/m);
});

test('keys are created and rotated, a tenant is suspended and resumed, and the audit log has each act', async () => {
  const createKey = async (...args: string[]) => {
    const key = JSON.parse((await pie(['keys', 'create', ...args, '--json'])).stdout) as { id: string; apiKey: string };
    hidden.push(key.apiKey);
    return key;
  };
  const status = async (apiKey: string) =>
    (await platform.fetch('/v1/functions', { headers: { authorization: `Bearer ${apiKey}` } })).status;
  await pie(['tenants', 'create', 'acme', '--weight', '20']);
  const admin = await createKey('first', '--tenant', 'acme', '--scopes', 'admin');
  const printed = (await pie(['keys', 'create', 'ci', '--expires', '30d'], { apiKey: admin.apiKey })).stdout;
  assert.match(printed, /^pie_\w{32}\n$/, 'the key alone, for a script');
  hidden.push(printed.trim());
  const rotated = await pie(['keys', 'rotate', admin.id, '--tenant', 'acme', '--grace', '0s', '--json']);
  const next = JSON.parse(rotated.stdout) as { apiKey: string };
  hidden.push(next.apiKey);
  await until('the rotated key is refused', async () => (await status(admin.apiKey)) === 401);
  assert.equal(await status(next.apiKey), 200);
  await pie(['tenants', 'suspend', 'acme']);
  await until('the key of the suspended tenant is refused', async () => (await status(next.apiKey)) === 403);
  await pie(['tenants', 'resume', 'acme']);
  assert.equal(await status(next.apiKey), 200);
  const { stdout } = await pie(['audit', '--json']);
  const acts = new Set((JSON.parse(stdout) as { action: string }[]).map(({ action }) => action));
  for (const act of [
    'function.deploy',
    'alias.rollback',
    'secret.set',
    'key.create',
    'key.rotate',
    'tenant.create',
    'tenant.suspend',
    'tenant.resume',
  ]) {
    assert.ok(acts.has(act), `${act} is missing in ${[...acts].join()}`);
  }
});

test('every Redis key of the platform is in the table of keys.ts, with its type and lifetime', async () => {
  const { redis: settings } = loadConfig(platform.environment);
  assert.ok(settings.kind === 'private');
  const redis = openConnection(settings.socket);
  try {
    assert.deepEqual(await schemaFaults(redis, 'pie'), []);
  } finally {
    redis.disconnect();
  }
});

test('no secret, environment variable or API key is in Redis, in a log or in any other file of the home', async () => {
  const { redis: settings } = loadConfig(platform.environment);
  assert.ok(settings.kind === 'private');
  const redis = openConnection(settings.socket);
  try {
    await redis.config('SET', 'rdbcompression', 'no');
    const keys = await redis.keys('*');
    assert.ok(keys.length > 20);
    for (const key of keys) {
      const dump = Buffer.concat([Buffer.from(key), (await redis.dumpBuffer(key)) ?? Buffer.alloc(0)]);
      for (const text of hidden) assert.ok(!dump.includes(text), `${key} holds a secret`);
    }
  } finally {
    redis.disconnect();
  }
  const keyFiles = ['credentials.json', 'master.key'];
  const folders = new Map<string, number>();
  for (const entry of await readdir(platform.home, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || keyFiles.includes(entry.name)) continue;
    const file = path.join(entry.parentPath, entry.name);
    const [folder = ''] = path.relative(platform.home, file).split(path.sep);
    folders.set(folder, (folders.get(folder) ?? 0) + 1);
    const content = await readFile(file).catch(() => Buffer.alloc(0));
    for (const text of hidden) assert.ok(!content.includes(text), `${file} holds a secret`);
  }
  for (const folder of ['artifacts', 'logs', 'redis']) assert.ok((folders.get(folder) ?? 0) > 0, `${folder} has files`);
  assert.equal((await stat(path.join(platform.home, 'master.key'))).mode & 0o777, 0o600);
});

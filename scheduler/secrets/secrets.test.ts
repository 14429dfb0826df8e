import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Blobs, Functions } from '../functions/functions.ts';
import type { FunctionVersion } from '../functions/types.ts';
import { StoreError } from '../store/errors.ts';
import { Store } from '../store/store.ts';
import { Tenants } from '../tenants/tenants.ts';
import { TestRedis } from '../testing/redis.ts';
import { WebhookSecrets } from '../webhooks/secrets.ts';
import { Environments } from './environments.ts';
import { openMasterKeys, seal, sealedUnder, unseal } from './master-keys.ts';
import { MAX_SECRET_BYTES, MAX_SECRETS } from './rules.ts';
import { type Secret, SecretError, Secrets } from './secrets.ts';

const newKey = () => randomBytes(32).toString('base64');
const masterKeysOf = (...keys: string[]) =>
  openMasterKeys('/nowhere', { create: false, environment: { PIE_MASTER_KEY: keys.join('\n') } });

describe('secrets of tenants', () => {
  let redis: TestRedis;
  let home: string;
  let now = 1_000_000;
  const masterKey = newKey();
  /** The versions that may still run; they refer to secrets. */
  let runnable: Pick<FunctionVersion, 'secrets'>[] = [];
  const open = (keys = masterKeysOf(masterKey)) =>
    new Secrets(
      new Store(redis.connect(), { clock: () => now }),
      { runnableVersions: async () => runnable as FunctionVersion[] },
      keys,
    );
  const set = async (secrets: Secrets, tenant: string, name: string, value: string) => {
    const secret = await secrets.set(tenant, name, value, 'key_1');
    assert.equal(typeof secret, 'object');
    return secret as Secret;
  };
  const valueKeys = async (tenant: string) => (await redis.connect().hkeys(`pie:secrets:${tenant}:values`)).sort();
  before(async () => {
    redis = await TestRedis.start();
    home = await mkdtemp(path.join(tmpdir(), 'pie-secrets-'));
  });
  after(async () => {
    await redis.stop();
    await rm(home, { recursive: true });
  });

  it('a version gets the values of secrets with which it was deployed, also after later changes', async () => {
    const secrets = open();
    const first = await set(secrets, 'acme', 'TOKEN', 'the first value');
    await set(secrets, 'acme', 'OTHER', 'another value');
    const pinned = await secrets.pin('acme', ['TOKEN', 'OTHER', 'TOKEN']);
    assert.ok(pinned.ok);
    const second = await set(secrets, 'acme', 'TOKEN', 'the second value');
    assert.ok(second.revision > first.revision);
    assert.deepEqual(
      await secrets.open('acme', pinned.revisions),
      new Map([
        ['OTHER', 'another value'],
        ['TOKEN', 'the first value'],
      ]),
    );
    const current = await secrets.current('acme', ['TOKEN']);
    assert.deepEqual(current, { ok: true, revisions: { TOKEN: second.revision } });
    assert.deepEqual(await secrets.pin('acme', ['TOKEN', 'NONE', 'NOR_THIS']), {
      ok: false,
      unknown: ['NONE', 'NOR_THIS'],
    });
    assert.deepEqual(await secrets.pin('other', ['TOKEN']), { ok: false, unknown: ['TOKEN'] });
    assert.deepEqual(await secrets.open('acme', {}), new Map());
    await assert.rejects(
      new Secrets(new Store(redis.connect()), { runnableVersions: async () => [] }).open('acme', pinned.revisions),
      (error) =>
        error instanceof SecretError &&
        error.message === 'The secret OTHER cannot be opened: This process has no master key.',
    );
  });

  it('a value is kept as long as a deploy or a version needs it', async () => {
    const secrets = open();
    const { revision } = await set(secrets, 'kept', 'TOKEN', 'one');
    assert.ok((await secrets.pin('kept', ['TOKEN'])).ok);
    const second = await set(secrets, 'kept', 'TOKEN', 'two');
    assert.deepEqual(await valueKeys('kept'), [`TOKEN@${revision}`, `TOKEN@${second.revision}`]);
    runnable = [{ secrets: { TOKEN: revision } }];
    // Past the hour for which `pin` keeps the values.
    now += 3_600_001;
    assert.equal(await secrets.release({ tenant: 'kept' }), 0);
    assert.equal(await secrets.remove('kept', 'TOKEN'), true);
    assert.equal(await secrets.remove('kept', 'TOKEN'), false);
    assert.deepEqual(await valueKeys('kept'), [`TOKEN@${revision}`]);
    assert.equal((await secrets.open('kept', { TOKEN: revision })).get('TOKEN'), 'one');
    runnable = [];
    assert.equal(await secrets.release({ tenant: 'kept' }), 1);
    await assert.rejects(secrets.open('kept', { TOKEN: revision }), SecretError);
    const third = await set(secrets, 'kept', 'TOKEN', 'three');
    assert.ok(third.revision > second.revision, 'a revision is never reused');
    // The pin of the first value has ended, but is still stored.
    const client = redis.connect();
    await client.config('SET', 'maxmemory', '1');
    await assert.rejects(
      secrets.pin('kept', ['TOKEN']).finally(() => client.config('SET', 'maxmemory', '0')),
      (error) => error instanceof StoreError && error.full,
      'a full Redis takes no pin',
    );
    assert.deepEqual(await client.hkeys('pie:secrets:kept:pins'), [`TOKEN@${revision}`]);
    assert.ok((await secrets.pin('kept', ['TOKEN'])).ok);
    assert.deepEqual(await client.hkeys('pie:secrets:kept:pins'), [`TOKEN@${third.revision}`]);
  });

  it('an invalid name or value and a secret past the limit are refused, and nothing is stored', async () => {
    const secrets = open();
    for (const name of ['', 'token', 'A-B', '1A', `A${'B'.repeat(64)}`, 'A@1', 'A\n']) {
      await assert.rejects(secrets.set('bad', name, 'value', 'key_1'), StoreError, name);
    }
    for (const value of ['', '\ud800', 'é'.repeat(MAX_SECRET_BYTES / 2 + 1)]) {
      await assert.rejects(secrets.set('bad', 'NAME', value, 'key_1'), StoreError);
    }
    // There is no master key, and this process may not create one.
    await assert.rejects(open(openMasterKeys(home, { create: false, environment: {} })).set('bad', 'NAME', 'v', 'k'));
    assert.deepEqual(await redis.connect().keys('pie:secrets:bad*'), []);
    for (let i = 0; i < MAX_SECRETS; i++) await set(secrets, 'many', `S${i}`, 'value');
    assert.equal(await secrets.set('many', 'ONE_MORE', 'value', 'key_1'), 'too-many-secrets');
    await set(secrets, 'many', 'S0', 'again');
    assert.equal((await secrets.list('many')).length, MAX_SECRETS);
  });

  it('a sealed value opens only for its tenant and name', async () => {
    const keys = masterKeysOf(masterKey);
    const owner = { tenant: 'acme', name: 'TOKEN' };
    const sealed = seal(await keys.first(), owner, 'value');
    assert.equal(await unseal(keys, owner, sealed), 'value');
    assert.notEqual(seal(await keys.first(), owner, 'value'), sealed);
    await assert.rejects(unseal(keys, { ...owner, tenant: 'other' }, sealed));
    await assert.rejects(unseal(keys, { ...owner, name: 'OTHER' }, sealed));
    await assert.rejects(unseal(masterKeysOf(newKey()), owner, sealed), /not known here/);
    const flipped = `${sealed.slice(0, 20)}${sealed[20] === 'A' ? 'B' : 'A'}${sealed.slice(21)}`;
    for (const broken of ['', sealed.slice(0, 12), flipped]) await assert.rejects(unseal(keys, owner, broken));
  });

  it('the master key is created once with mode 0600, and can be rotated without a restart', async () => {
    const file = path.join(home, 'master.key');
    const makers = Array.from({ length: 8 }, () => openMasterKeys(home, { create: true, environment: {} }));
    const ids = await Promise.all(makers.map(async (keys) => (await keys.first()).id));
    assert.equal(new Set(ids).size, 1);
    assert.equal((await stat(file)).mode & 0o777, 0o600);
    const reader = open(openMasterKeys(home, { create: false, environment: {} }));
    const writer = open(openMasterKeys(home, { create: true, environment: {} }));
    const { revision } = await set(writer, 'turn', 'TOKEN', 'old');
    assert.equal((await reader.open('turn', { TOKEN: revision })).get('TOKEN'), 'old');
    const old = await readFile(file, 'utf8');
    await writeFile(file, `${newKey()}\n${old}`);
    const next = await set(writer, 'turn', 'LATER', 'new');
    const bothRevisions = { TOKEN: revision, LATER: next.revision };
    const opened = new Map([
      ['TOKEN', 'old'],
      ['LATER', 'new'],
    ]);
    assert.deepEqual(await reader.open('turn', bothRevisions), opened);
    // Only TOKEN is under the old key.
    assert.equal(await writer.reseal('turn'), 1);
    assert.equal(await writer.reseal('turn'), 0);
    const webhooks = (keys: ReturnType<typeof masterKeysOf>) => new WebhookSecrets(new Store(redis.connect()), keys);
    const signingSecret = await webhooks(
      openMasterKeys('', { create: false, environment: { PIE_MASTER_KEY: old } }),
    ).get('turn');
    await webhooks(openMasterKeys(home, { create: false, environment: {} })).reseal('turn');
    await writeFile(file, (await readFile(file, 'utf8')).replace(old, ''));
    assert.equal(await webhooks(openMasterKeys(home, { create: false, environment: {} })).get('turn'), signingSecret);
    assert.deepEqual(
      await open(openMasterKeys(home, { create: false, environment: {} })).open('turn', bothRevisions),
      opened,
    );
  });

  it('a value whose master key is lost does not keep the others from being resealed', async () => {
    const [old, next] = [newKey(), newKey()];
    const { revision: lost } = await set(open(masterKeysOf(newKey())), 'partly', 'LOST', 'gone');
    const { revision } = await set(open(masterKeysOf(old)), 'partly', 'TOKEN', 'kept');
    await assert.rejects(
      open(masterKeysOf(next, old)).reseal('partly'),
      (error) =>
        error instanceof SecretError && /^The secret LOST cannot be opened: .*not known here\.$/.test(error.message),
    );
    assert.equal((await open(masterKeysOf(next)).open('partly', { TOKEN: revision })).get('TOKEN'), 'kept');
    await assert.rejects(open(masterKeysOf(next)).open('partly', { LOST: lost }), SecretError);
  });

  it('a missing master key is not replaced while a value is sealed with it', async () => {
    const empty = await mkdtemp(path.join(home, 'other-'));
    const store = new Store(redis.connect(), { prefix: 'lost' });
    const functions = new Functions(store);
    const options = { create: true, sealedUnder: () => sealedUnder(store, functions), environment: {} };
    const masterKeys = openMasterKeys(empty, options);
    const { id } = await masterKeys.first();
    const file = path.join(empty, 'master.key');
    await rm(file);
    await new Tenants(store).ensure('acme');
    assert.notEqual((await masterKeys.first()).id, id, 'nothing was sealed');
    const key = await readFile(file);
    const first = (await masterKeys.first()).id;
    const webhooks = new WebhookSecrets(store, masterKeys);
    const secrets = new Secrets(store, { runnableVersions: async () => [] }, masterKeys);
    const deploy = async () => {
      const environments = new Environments(store, functions, masterKeys);
      const componentHash = await new Blobs(store).put('acme', new Uint8Array([1]));
      const { mark: version, ...sealed } = await environments.seal('acme', {
        name: 'story',
        environment: { ZONE: 'north' },
      });
      await functions.put({
        tenant: 'acme',
        name: 'story',
        version,
        componentHash,
        componentBytes: 1,
        createdAt: 1,
        ...(sealed as Pick<FunctionVersion, 'manifest' | 'environment'>),
      });
    };
    const clean = async () => {
      await store.call((connection) => connection.del('lost:webhook-secret:acme', 'lost:function:acme:story'));
    };
    for (const sealing of [
      webhooks.get.bind(webhooks, 'acme'),
      deploy,
      () => secrets.set('acme', 'TOKEN', 'value', 'k'),
    ]) {
      await sealing();
      await rm(file);
      // Both a start and a running process refuse.
      for (const keys of [masterKeys, openMasterKeys(empty, options)]) {
        const refusal = (error: Error) => error.message.includes(`master key ${first}`) && error.message.includes(file);
        await assert.rejects(keys.first(), refusal);
      }
      await assert.rejects(stat(file), 'nothing was written');
      await writeFile(file, key);
      assert.equal((await openMasterKeys(empty, options).first()).id, first);
      await clean();
    }
  });

  it('PIE_MASTER_KEY is taken out of the environment and must hold keys of 32 bytes', () => {
    const environment: NodeJS.ProcessEnv = { PIE_MASTER_KEY: newKey() };
    openMasterKeys(home, { create: true, environment });
    assert.deepEqual(environment, {});
    for (const wrong of ['short', randomBytes(31).toString('base64'), `${newKey()} x`, 'ä'.repeat(44)]) {
      assert.throws(() => masterKeysOf(wrong), /32 bytes in base64/);
    }
  });
});

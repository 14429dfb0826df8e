import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { type JoinToken, newJoinToken, openJoin, parseJoinToken, sealJoin } from '#scheduler/machines/join-tokens.ts';
import type { Role } from '#scheduler/machines/types.ts';
import { openMasterKeys } from '#scheduler/secrets/master-keys.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { GatewayPlatform } from '../testing/platform.ts';

const CERTIFICATE = Array(32).fill('AB').join(':');
const MASTER_KEY = randomBytes(32).toString('base64');

/** Versions of the exchange that the gateway speaks: those of a made-up next release. */
const VERSIONS = { oldest: 1, newest: 2 };

const masterKeys = openMasterKeys('', { create: false, environment: { PIE_MASTER_KEY: MASTER_KEY } });

describe('machines that join', () => {
  let platform: GatewayPlatform;
  before(async () => {
    platform = await GatewayPlatform.start({
      control: {
        joining: {
          redis: { url: 'rediss://operator:secret@redis.internal:6380/0', ca: 'CA' },
          masterKeys,
          settings: () => ({ drain_ms: 5 }),
          versions: VERSIONS,
        },
      },
    });
  });
  after(() => platform.stop());

  const token = async (roles?: readonly Role[]): Promise<JoinToken> => {
    const request = roles && { roles };
    const { token: text, expiresAt } = await platform.client().operations.createJoinToken(request);
    assert.ok(Date.parse(expiresAt) > Date.now());
    return parseJoinToken(text) ?? assert.fail(text);
  };
  const machine = (name: string, roles = ['runtime']) => ({ machine: name, roles, certificate: CERTIFICATE });
  const post = async ({ id, key }: JoinToken, request: object, version = VERSIONS.oldest) => {
    const response = await fetch(`${platform.url}/join`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        version,
        token: id,
        sealed: sealJoin(key, { direction: 'request', version }, request),
      }),
    });
    return (await response.json()) as { sealed?: string; code?: string; detail?: string };
  };
  const joinAs = async (used: JoinToken, request: object, version = VERSIONS.oldest) => {
    const { sealed, ...refusal } = await post(used, request, version);
    assert.ok(sealed, JSON.stringify(refusal));
    assert.ok(!sealed.includes('secret'));
    return openJoin(used.key, { direction: 'answer', version }, sealed) as {
      redis: { url: string; ca: string };
      masterKey: string | null;
      settings: unknown;
    };
  };
  const users = async () =>
    ((await platform.scheduler.store.redis.call('ACL', 'USERS')) as string[]).filter((user) => user !== 'default');

  it('a token that no gateway has made is refused', async () => {
    const { store } = platform.scheduler;
    const forged = newJoinToken();
    await store.redis.set(store.keys.joinToken(forged.id), forged.key.toString('base64'));
    assert.equal((await post(forged, machine('forged', ['gateway']))).code, 'join-refused');
    // Copies one token's entry to the id of another token.
    const real = await token();
    await store.redis.copy(store.keys.joinToken(real.id), store.keys.joinToken(forged.id), 'REPLACE');
    assert.equal((await post({ id: forged.id, key: real.key }, machine('forged', ['gateway']))).code, 'join-refused');
    assert.ok(!(await users()).some((user) => user.includes('forged')));
  });

  it('Redis keeps a token at least until the `expiresAt` that the gateway states', async (t) => {
    const { audit, store } = platform.scheduler;
    t.mock.method(audit, 'record', () => sleep(20));
    const { token: text, expiresAt } = await platform.client().operations.createJoinToken();
    const { id } = parseJoinToken(text) ?? assert.fail(text);
    assert.ok(Date.parse(expiresAt) <= Number(await store.redis.pexpiretime(store.keys.joinToken(id))));
  });

  it('a machine gets a Redis user of its own, the settings, and the master key if one of its roles opens secrets', async () => {
    const answer = await joinAs(await token(), machine('east'));
    const url = new URL(answer.redis.url);
    assert.deepEqual(
      [url.protocol, url.host, url.pathname, answer.redis.ca],
      ['rediss:', 'redis.internal:6380', '/0', 'CA'],
    );
    assert.equal(decodeURIComponent(url.username), 'pie-machine-east');
    assert.deepEqual([answer.masterKey, answer.settings], [`${MASTER_KEY}\n`, { drain_ms: 5 }]);
    assert.equal((await joinAs(await token(), machine('gpu', ['gpu-host']))).masterKey, null);
    assert.deepEqual((await users()).sort(), ['pie-machine-east', 'pie-machine-gpu']);
    const { store } = platform.scheduler;
    assert.equal(await store.redis.call('AUTH', 'pie-machine-east', url.password), 'OK');
    await store.redis.call('AUTH', 'default', '');
  });

  it('a token admits one machine; a wrong or expired token admits none, and a refusal leaves nothing behind', async () => {
    const [once, other] = [await token(), await token()];
    const before = await users();
    const assertRefused = async (usedToken: JoinToken, request: object = machine('north')) => {
      const { code } = await post(usedToken, request);
      assert.equal(code, 'join-refused');
      assert.deepEqual(await users(), before);
    };
    await assertRefused({ ...once, key: other.key });
    await assertRefused(newJoinToken());
    await assertRefused(once, { ...machine('north'), machine: 'No Name' });
    await assertRefused(once, { ...machine('north'), more: true });
    const { store } = platform.scheduler;
    await store.redis.pexpire(store.keys.joinToken(other.id), 1);
    await eventually(
      async () => (await platform.scheduler.joinTokens.find(masterKeys, other.id)) === null,
      'the token expires',
    );
    await assertRefused(other);
    const answers = await Promise.all([post(once, machine('north')), post(once, machine('north-2'))]);
    assert.deepEqual(answers.map(({ code = 'joined' }) => code).sort(), ['join-refused', 'joined']);
    assert.equal((await users()).length, before.length + 1);
  });

  it('two machines cannot have one name; a removed machine loses its Redis user, also before its first start', async () => {
    const certified = (letter: string) => ({
      ...machine('removed'),
      certificate: CERTIFICATE.replaceAll('B', letter),
    });
    await joinAs(await token(), certified('1'));
    const taken = await post(await token(), certified('1'));
    assert.match(taken.detail ?? '', /"removed" is already registered or has already joined/);
    assert.ok((await users()).includes('pie-machine-removed'));
    await platform.client().operations.removeMachine('removed');
    assert.ok(!(await users()).includes('pie-machine-removed'));
    const again = await post(await token(), certified('1'));
    assert.equal(again.code, 'conflict', 'the certificate of a removed machine stays refused');
    await joinAs(await token(), certified('2'));
  });

  it('a machine may speak any version of the exchange that the gateway states, and is told when it speaks another', async () => {
    const asked = await fetch(`${platform.url}/join`);
    assert.deepEqual(await asked.json(), { versions: VERSIONS });
    for (const version of [VERSIONS.oldest, VERSIONS.newest])
      assert.ok(
        await joinAs(
          await token(),
          { ...machine(`v${version}`), certificate: CERTIFICATE.replaceAll('B', 'D') },
          version,
        ),
      );
    const before = await users();
    const once = await token();
    const { code, detail } = await post(once, machine('v3'), 3);
    assert.equal(code, 'conflict');
    assert.match(detail ?? '', /^The gateway is too old for the joining machine: .* on the machine of the gateway\.$/);
    // A message of one version is invalid in any other.
    const sealed = sealJoin(once.key, { direction: 'request', version: 2 }, machine('v3'));
    const body = { version: 1, token: once.id, sealed };
    const headers = { 'content-type': 'application/json' };
    const mixed = await fetch(`${platform.url}/join`, { method: 'POST', headers, body: JSON.stringify(body) });
    assert.equal(((await mixed.json()) as { code: string }).code, 'join-refused');
    // The machine speaks version 2, and a third party made it use version 1.
    const old = sealJoin(once.key, { direction: 'request', version: 1 }, machine('v3'), 2);
    const lowered = await fetch(`${platform.url}/join`, {
      method: 'POST',
      headers,
      body: JSON.stringify({ version: 1, token: once.id, sealed: old }),
    });
    assert.match(((await lowered.json()) as { detail: string }).detail, /Both sides speak a newer version/);
    assert.deepEqual(await users(), before);
  });

  it('a machine joins only with roles that its token allows; the audit log names the roles and the operator', async () => {
    const limited = await token(['gpu-host', 'runtime']);
    const before = await users();
    const limitedMachine = {
      ...machine('limited', ['gateway', 'gpu-host']),
      certificate: CERTIFICATE.replaceAll('B', 'E'),
    };
    const { code, detail } = await post(limited, limitedMachine);
    assert.equal(code, 'join-refused');
    assert.equal(detail, 'The token allows the roles gpu-host, runtime; asked for: gateway, gpu-host.');
    assert.deepEqual(await users(), before);
    await joinAs(limited, { ...limitedMachine, roles: ['gpu-host'] });
    const { audit } = platform.scheduler;
    const acts = await audit.read({ limit: 100 });
    const [join] = acts.filter(({ action }) => action === 'machine.join');
    const [tokenEntry] = acts.filter(({ action }) => action === 'machine.token');
    assert.deepEqual(
      [join?.target, join?.details, join?.actor],
      ['limited', { roles: ['gpu-host'] }, tokenEntry?.actor],
    );
    assert.deepEqual(tokenEntry?.details.roles, ['gpu-host', 'runtime']);
  });

  it('a machine is listed from the moment it joins, also before its first start', async () => {
    await joinAs(await token(), { ...machine('unstarted'), certificate: CERTIFICATE.replaceAll('B', 'F') });
    const { machines } = await platform.client().operations.load();
    const { joinedAt, ...shown } = machines.find(({ name }) => name === 'unstarted') ?? assert.fail('not listed');
    assert.ok(Math.abs(Date.now() - Date.parse(joinedAt ?? '')) < 60_000);
    const absent = { host: null, version: null, startedAt: null };
    assert.deepEqual(shown, {
      name: 'unstarted',
      roles: ['runtime'],
      alive: false,
      ...absent,
      drained: false,
      running: 0,
    });
    const { drains } = platform.scheduler;
    await drains.drainMachine({ name: 'unstarted', gpuHosts: [] }, { by: 'key', force: true });
    const drained = (await platform.client().operations.load()).machines.filter((each) => each.drained);
    assert.deepEqual(
      drained.map(({ name }) => name),
      ['unstarted'],
      'its drain is shown although it does not run',
    );
    await platform.client().operations.removeMachine('unstarted');
    assert.ok(!(await platform.client().operations.load()).machines.some(({ name }) => name === 'unstarted'));
  });

  it('a gateway whose Redis user may not make other users makes no token', async () => {
    const { store } = platform.scheduler;
    await store.redis.call('ACL', 'SETUSER', 'weak', 'reset', 'on', '>pw', '~*', '&*', '+@all', '-@admin');
    await store.redis.call('AUTH', 'weak', 'pw');
    await assert.rejects(platform.client().operations.createJoinToken(), /may not create users for other machines/);
    await store.redis.call('AUTH', 'default', '');
    await store.redis.call('ACL', 'DELUSER', 'weak');
  });
});

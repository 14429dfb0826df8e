import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import diagnostics from 'node:diagnostics_channel';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, statSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { loadConfig } from '#infra/config.ts';
import { readCertificate } from '#infra/links/security.ts';
import { connectRedis } from '#infra/redis.ts';
import { newJoinToken } from '#scheduler/machines/join-tokens.ts';
import { openMasterKeys } from '#scheduler/secrets/master-keys.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { freePort } from '../local/platform.ts';
import { GatewayPlatform } from '../testing/platform.ts';
import { toFailure } from './failure.ts';
import { type JoinRequest, joinPlatform } from './join.ts';

const MASTER_KEY = randomBytes(32).toString('base64');

describe('joining a platform', () => {
  let platform: GatewayPlatform;
  let directory: string;
  let redisUrl = '';
  /** Versions of the exchange that the gateway speaks: first those of a made-up next release. */
  const next = { oldest: 1, newest: 2 };
  let versions = next;
  before(async () => {
    directory = await mkdtemp(path.join(os.tmpdir(), 'pie-join-'));
    const masterKeys = openMasterKeys('', { create: false, environment: { PIE_MASTER_KEY: MASTER_KEY } });
    const settings = () => ({ drain_ms: 1234, model: [{ name: 'stories15m' }] });
    // The address is known once Redis listens there.
    const redis = {
      get url() {
        return redisUrl;
      },
    };
    const joining = {
      redis,
      masterKeys,
      settings,
      get versions() {
        return versions;
      },
    };
    platform = await GatewayPlatform.start({ control: { joining } });
    const port = await freePort();
    await platform.scheduler.store.redis.config('SET', 'port', port);
    redisUrl = `redis://operator:secret@127.0.0.1:${port}`;
  });
  after(async () => {
    await platform.stop();
    await rm(directory, { recursive: true });
  });

  const token = async () => (await platform.client().operations.createJoinToken()).token;
  const join = (home: string, more: Partial<JoinRequest>) =>
    joinPlatform(
      { url: platform.url, token: '', home: path.join(directory, home), environment: {}, ...more },
      AbortSignal.timeout(240_000),
    );
  const assertRefused = async (home: string, more: Partial<JoinRequest>, why: RegExp) => {
    await assert.rejects(join(home, more), (error) =>
      why.test(`${toFailure(error).message} ${toFailure(error).advice}`),
    );
    assert.equal(existsSync(path.join(directory, home)), false, 'a refusal leaves nothing behind');
  };

  it('ends with the reason of its signal while it looks for the address of this machine', async () => {
    const reason = new Error('Ctrl-C');
    const request = {
      url: 'http://127.0.0.1:1',
      token: await token(),
      home: path.join(directory, 'left'),
      environment: {},
    };
    await assert.rejects(joinPlatform(request, AbortSignal.abort(reason)), reason);
  });

  it('writes a home with which the machine starts and uses its own Redis user', async () => {
    const joined = await join('east', { token: await token(), name: 'east', role: 'runtime,gpu-host' });
    const home = path.join(directory, 'east');
    assert.deepEqual(joined, { machine: 'east', roles: ['runtime', 'gpu-host'], address: '127.0.0.1', home });
    for (const file of ['pie.toml', 'master.key', 'machine.pem'])
      assert.equal(statSync(path.join(home, file)).mode & 0o777, 0o600, file);
    assert.equal(readFileSync(path.join(home, 'master.key'), 'utf8'), `${MASTER_KEY}\n`);
    assert.match(readCertificate(home)?.fingerprint ?? '', /^([0-9A-F]{2}:){31}[0-9A-F]{2}$/);
    const config = loadConfig({ PIE_HOME: home });
    assert.deepEqual(
      [config.machine.name, config.drainMs, config.gpuHosts[0]?.address, config.runtime.address],
      ['east', 1234, '127.0.0.1:7400', '127.0.0.1:7500'],
    );
    const redis = connectRedis(config);
    assert.equal(await redis.call('ACL', 'WHOAMI'), 'pie-machine-east');
    redis.disconnect();
    const again = await join('east', { token: await token(), name: 'east-2' }).catch(toFailure);
    assert.match('message' in again ? again.message : '', /is already the home of a machine: it contains pie\.toml/);
    const gpu = await join('gpu', { token: await token(), name: 'gpu', role: 'gpu-host', address: '10.0.0.9' });
    assert.deepEqual([gpu.address, existsSync(path.join(gpu.home, 'master.key'))], ['10.0.0.9', false]);
    // Variables as a service or a container sets them. The machine will start with them, too. An option wins over its variable.
    const environment = { PIE_MACHINE: 'host', PIE_ROLES: 'gpu-host', PIE_ADDRESS: '10.0.0.8' };
    const served = await join('service', { token: await token(), name: 'service', environment });
    assert.deepEqual([served.machine, served.roles, served.address], ['service', ['gpu-host'], '10.0.0.8']);
    assert.equal(existsSync(path.join(served.home, 'master.key')), false, 'a GPU host gets no master key');
    // An empty PIE_ROLES states no roles: the machine gets all three.
    const named = await join('named', { token: await token(), environment: { PIE_MACHINE: 'named', PIE_ROLES: '' } });
    assert.deepEqual([named.machine, named.roles.length], ['named', 3]);
  });

  it('leaves no file of a home behind when one of them cannot be written', async () => {
    const home = path.join(directory, 'full');
    const blockingFolder = path.join(home, 'machine.pem.new');
    mkdirSync(blockingFolder, { recursive: true });
    await assert.rejects(join('full', { token: await token(), name: 'full' }), (error) => {
      const { message, advice } = toFailure(error);
      assert.equal(message, `The home ${home} could not be written.`);
      assert.match(advice ?? '', /pie machines remove full/);
      return true;
    });
    assert.deepEqual(readdirSync(home), ['machine.pem.new']);
    rmdirSync(blockingFolder);
    await join('full', { token: await token(), name: 'full-2' });
  });

  it('leaves nothing behind when the token, the name or an option is refused', async () => {
    const used = await token();
    await join('north', { token: used, name: 'north' });
    await assertRefused('never', { token: used, name: 'north-2' }, /The token is unknown, used or expired/);
    await assertRefused(
      'never',
      { token: newJoinToken().text, name: 'south' },
      /The token is unknown, used or expired/,
    );
    await assertRefused('never', { token: 'pie-join.a.b', name: 'south' }, /not a join token/);
    const unused = await token();
    await assertRefused(
      'never',
      { token: unused, name: 'north' },
      /"north" is already registered or has already joined/,
    );
    await assertRefused('never', { token: unused, name: 'No Name' }, /^--name \(or PIE_MACHINE\): /);
    await assertRefused('never', { token: unused, name: 'south', role: 'runtimes' }, /^--role \(or PIE_ROLES\): /);
    await assertRefused(
      'never',
      { token: unused, name: 'south', address: '0.0.0.0' },
      /^--address \(or PIE_ADDRESS\): must be the address/,
    );
    await assertRefused('never', { token: unused, name: 'south', url: 'ftp://a' }, /not a valid gateway address/);
    await assertRefused('never', { token: unused, name: 'south', url: 'http://127.0.0.1:1' }, /cannot be reached/);
    const request = { url: platform.url, token: unused, name: 'south', home: path.join(directory, 'never') };
    const stopped = new Error('stopped');
    await assert.rejects(joinPlatform(request, AbortSignal.abort(stopped)), stopped);
    // Sends the beginning of an answer, and then nothing until the client leaves.
    const stalling = createServer((_, response) => {
      response.write('{');
      response.once('close', () => stalling.close());
    }).listen(0, '127.0.0.1');
    await once(stalling, 'listening');
    const url = `http://127.0.0.1:${(stalling.address() as AddressInfo).port}`;
    const stopping = new AbortController();
    // The client leaves while it waits for the rest of the answer's body.
    const onHeaders = () => setImmediate(() => stopping.abort(stopped));
    diagnostics.subscribe('undici:request:headers', onHeaders);
    await assert.rejects(joinPlatform({ ...request, url }, stopping.signal), stopped);
    diagnostics.unsubscribe('undici:request:headers', onHeaders);
    await join('south', { token: unused, name: 'south' });
  });

  it('joins through a gateway of a neighbouring release', async () => {
    const old = { oldest: 1, newest: 1 };
    const [olderToken, laterToken] = [await token(), await token()];
    await join('older', { token: olderToken, name: 'older', versions: old });
    await join('later', { token: laterToken, name: 'later', versions: { oldest: 2, newest: 3 } });
    versions = old;
    await join('next', { token: await token(), name: 'next', versions: next });
    const later = { oldest: 2, newest: 3 };
    const gatewayTooOld =
      /The gateway is too old .* speaks version 1 of the join exchange, the joining machine versions 2 to 3/;
    await assertRefused('never', { token: await token(), name: 'new', versions: later }, gatewayTooOld);
    const machineTooOld =
      /The joining machine is too old .* Install a newer release of Pie on the machine of the joining/;
    await assertRefused(
      'never',
      { token: await token(), name: 'new', versions: { oldest: 0, newest: 0 } },
      machineTooOld,
    );
    versions = next;
  });

  it('is refused when something on the path lowers the version of the exchange', async () => {
    const proxy = createServer(async (request, response) => {
      const headers = { 'content-type': 'application/json' };
      if (request.method === 'GET') return response.writeHead(200, headers).end('{"versions":{"oldest":1,"newest":1}}');
      const body = (await Array.fromAsync(request)).join('');
      const answer = await fetch(`${platform.url}/join`, { method: 'POST', headers, body });
      response.writeHead(answer.status, headers).end(await answer.text());
    }).listen(0, '127.0.0.1');
    await once(proxy, 'listening');
    const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
    const unused = await token();
    await assertRefused(
      'never',
      { url, token: unused, name: 'lowered', versions: next },
      /Both sides speak a newer version .* than 1\. .* gateways of two releases answer at this address/,
    );
    await join('lowered', { token: unused, name: 'lowered', versions: next });
    proxy.close();
  });

  it("waits until the gateway makes the machine's Redis user, which comes late after a loss of Redis", async () => {
    const { store, redisUsers } = platform.scheduler;
    const user = 'pie-machine-late';
    const gateway = createServer(async (request, response) => {
      const headers = { 'content-type': 'application/json' };
      const body = request.method === 'GET' ? null : (await Array.fromAsync(request)).join('');
      const answer = await fetch(`${platform.url}/join`, { method: request.method ?? 'GET', headers, body });
      if (request.method !== 'GET') await store.redis.call('ACL', 'DELUSER', user);
      response.writeHead(answer.status, headers).end(await answer.text());
    }).listen(0, '127.0.0.1');
    await once(gateway, 'listening');
    const url = `http://127.0.0.1:${(gateway.address() as AddressInfo).port}`;
    const isRefused = async () => JSON.stringify(await store.redis.call('ACL', 'LOG')).includes(user);
    const userMade = eventually(isRefused, 'Redis refuses the machine').then(() => redisUsers.reconcile());
    try {
      await Promise.all([join('late', { url, token: await token(), name: 'late' }), userMade]);
    } finally {
      gateway.close();
    }
  });

  it("names the platform's Redis when this machine cannot reach it", async () => {
    const originalUrl = redisUrl;
    redisUrl = 'redis://operator:secret@127.0.0.1:1';
    await assertRefused(
      'never',
      { token: await token(), name: 'west' },
      /Redis at 127\.0\.0\.1:1 cannot be used from here/,
    );
    redisUrl = originalUrl;
    await platform.client().operations.removeMachine('west');
    await join('west', { token: await token(), name: 'west' });
  });
});

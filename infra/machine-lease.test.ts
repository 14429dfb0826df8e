import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import type { Redis } from 'ioredis';
import { listMachines } from '#scheduler/machines/machines.ts';
import { Store } from '#scheduler/store/store.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { type Config, loadConfig } from './config.ts';
import { claimMachine } from './machine-lease.ts';

let redis: TestRedis;
let probe: Redis;
let config: Config;
const home = mkdtempSync(path.join(os.tmpdir(), 'pie-claim-'));
before(async () => {
  redis = await TestRedis.start();
  probe = redis.connect();
  config = loadConfig({ PIE_HOME: home, PIE_MACHINE: 'east', REDIS_URL: `unix:${redis.socket}` });
  mkdirSync(config.runDirectory, { recursive: true });
});
after(async () => {
  await redis.stop();
  rmSync(home, { recursive: true, force: true });
});

const onTaken = (error: Error) => assert.fail(error);
const claim = (signal = new AbortController().signal) => claimMachine(config, { onTaken, log: silentLog, signal });

/** Asserts that a claim has left no connection and no lease: either would keep the supervisor from ending. */
async function assertNothingLeft(): Promise<void> {
  const isProbeAlone = async () =>
    String(await probe.client('LIST'))
      .trim()
      .split('\n').length === 1;
  await eventually(isProbeAlone, 'the connections of the claim have ended');
  assert.deepEqual(await listMachines(new Store(probe)), []);
}

test('a claim that fails leaves neither a connection nor the name behind', async () => {
  // The claim cannot write the list of accepted certificates, because a folder has the name of its temporary file.
  const blockingFolder = path.join(config.runDirectory, 'peers.json.new');
  mkdirSync(blockingFolder);
  await assert.rejects(claim(), { code: 'EISDIR' });
  rmSync(blockingFolder, { recursive: true });
  await assertNothingLeft();

  const certificate = path.join(home, 'machine.pem');
  writeFileSync(certificate, 'not a certificate');
  await assert.rejects(claim(), { code: 'ERR_OSSL_PEM_NO_START_LINE' });
  rmSync(certificate);
  await assertNothingLeft();
});

test('a start that is stopped during its claim gives the name back', async () => {
  assert.equal(await claim(AbortSignal.abort()), null);
  await assertNothingLeft();
  const machine = await claim();
  assert.equal((await listMachines(new Store(probe))).length, 1);
  await machine?.release();
  await assertNothingLeft();
});

test('the proofs of models are in the description of the machine, which its renewals keep, and a new claim has none', async () => {
  const store = new Store(probe);
  const proofs = async () => (await listMachines(store))[0]?.proofs;
  const machine = await claim();
  await machine?.noteProof('first', { at: 1, fault: 'no answer' });
  await machine?.noteProof('second', { at: 2, fault: null });
  assert.deepEqual(await proofs(), { first: { at: 1, fault: 'no answer' }, second: { at: 2, fault: null } });
  await machine?.noteProof('first', { at: 3, fault: null });
  const last = { first: { at: 3, fault: null }, second: { at: 2, fault: null } };
  assert.deepEqual(await proofs(), last);
  await probe.del(store.keys.machine('east'));
  await eventually(async () => (await proofs()) !== undefined, 'the next renewal stores the description again');
  assert.deepEqual(await proofs(), last);
  await machine?.release();
  const next = await claim();
  assert.equal(await proofs(), undefined);
  await next?.release();
});

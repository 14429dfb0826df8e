import assert from 'node:assert/strict';
import { test } from 'node:test';
import { machineEntry } from '#scheduler/gpu-hosts/drains.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { CollectedLog, failingLog } from '#scheduler/testing/log.ts';
import { Draining, followHosts } from './gpu-hosts.ts';

test('a runtime that shares the work takes no invocations while no host is connected', async () => {
  for (const sharesWork of [false, true]) {
    const pauses: boolean[] = [];
    const stop = await followHosts({
      hosts: { list: [{ name: 'away', connected: false }], onChange: () => () => undefined },
      draining: new Draining(),
      drains: { names: async () => new Set(), onChange: async () => () => undefined },
      worker: { pause: async (paused) => void pauses.push(paused) },
      sharesWork,
      describe: async () => undefined,
      log: failingLog,
    });
    stop();
    assert.deepEqual(pauses, [sharesWork]);
  }
});

test('a runtime of a drained machine takes no invocations, although GPU hosts of other machines are connected', async () => {
  for (const machine of ['east', 'west']) {
    const pauses: boolean[] = [];
    const stop = await followHosts({
      hosts: { list: [{ name: 'gpu-host-1@west', connected: true }], onChange: () => () => undefined },
      draining: new Draining(),
      drains: { names: async () => new Set([machineEntry('east')]), onChange: async () => () => undefined },
      machine,
      worker: { pause: async (paused) => void pauses.push(paused) },
      describe: async () => undefined,
      log: failingLog,
    });
    stop();
    assert.deepEqual(pauses, [machine === 'east']);
  }
});

test('the loss of a host is reported again after the report failed', async () => {
  let notifyChange: () => void = () => undefined;
  let isAway = false;
  const callRedis = () => (isAway ? Promise.reject(new Error('Redis is away')) : Promise.resolve());
  const list = ['drained', 'open'].map((name) => ({ name, connected: true }));
  const reports: string[] = [];
  const log = new CollectedLog();
  const { errors } = log;
  const stop = await followHosts({
    hosts: {
      list,
      onChange: (listener) => {
        notifyChange = listener;
        return () => undefined;
      },
    },
    draining: new Draining(),
    drains: {
      names: async () => new Set(['drained']),
      onChange: async () => () => undefined,
    },
    worker: { pause: (paused) => callRedis().then(() => void reports.push(paused ? 'pauses' : 'goes on')) },
    describe: async () => void reports.push(list.map(({ connected }) => connected).join()),
    log,
  });
  isAway = true;
  const [, open] = list;
  if (open) open.connected = false;
  notifyChange();
  await eventually(() => errors.length > 0, 'the report fails');
  isAway = false;
  await eventually(() => reports.length === 4, 'the report is repeated');
  stop();
  assert.deepEqual(reports, ['goes on', 'true,true', 'pauses', 'true,false']);
  assert.equal(errors.length, 1);
});

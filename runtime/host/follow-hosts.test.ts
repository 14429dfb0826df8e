import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eventually } from '#scheduler/testing/fixture.ts';
import { Draining } from './draining.ts';
import { followHosts } from './follow-hosts.ts';

test('the loss of a host is reported again after the report failed', async () => {
  let lose: () => void = () => undefined;
  let isAway = false;
  const away = () => (isAway ? Promise.reject(new Error('Redis is away')) : Promise.resolve());
  const connections = ['drained', 'open'].map((name) => ({
    name,
    connected: true,
    onReady: () => () => undefined,
    onLost: (listener: (cause: string) => void) => {
      if (name === 'open') lose = () => listener('it died');
      return () => undefined;
    },
  }));
  const said: string[] = [];
  const errors: unknown[] = [];
  const stop = await followHosts({
    connections,
    draining: new Draining(),
    drains: {
      names: async () => new Set(['drained']),
      onChange: async () => () => undefined,
    },
    worker: { pause: (paused) => away().then(() => void said.push(paused ? 'pauses' : 'goes on')) },
    describe: async () => void said.push(connections.map(({ connected }) => connected).join()),
    onError: (error) => errors.push(error),
  });
  isAway = true;
  const [, open] = connections;
  if (open) open.connected = false;
  lose();
  await eventually(() => errors.length > 0, 'the report fails');
  isAway = false;
  await eventually(() => said.length === 4, 'the report is repeated');
  stop();
  assert.deepEqual(said, ['goes on', 'true,true', 'pauses', 'true,false']);
  assert.equal(errors.length, 1);
});

import assert from 'node:assert/strict';
import { it } from 'node:test';
import { OpenStreams } from './open-streams.ts';

it('OpenStreams bounds the open streams of a key, of a tenant and of the process', () => {
  // A tenant may have a quarter of the eight streams, and more while all tenants together have at most half, four.
  const streams = new OpenStreams({ streamsPerKey: 3, streams: 8 }, 'streams');
  const firstKey = { keyId: 'key_1', tenant: 'a' };
  const leaveFunctions = Array.from({ length: 3 }, () => streams.enter(firstKey));
  assert.throws(() => streams.enter(firstKey), { code: 'too-many-requests', message: /key_1 has 3 open streams/ });
  streams.enter({ keyId: 'key_2', tenant: 'a' });
  assert.throws(() => streams.enter({ keyId: 'key_2', tenant: 'a' }), {
    code: 'too-many-requests',
    message: /tenant a has/,
  });
  for (const [keyId, tenant] of [
    ['key_3', 'b'],
    ['key_3', 'b'],
    ['key_4', 'c'],
    ['key_4', 'c'],
  ] as const)
    streams.enter({ keyId, tenant });
  // All eight are open: four of tenant a, two of b, two of c.
  assert.throws(() => streams.enter({ keyId: 'key_5', tenant: 'd' }), { code: 'gateway-busy' });
  // The second call of a function frees nothing.
  leaveFunctions[0]?.();
  leaveFunctions[0]?.();
  assert.equal(streams.open, 7);
  streams.enter({ keyId: 'key_5', tenant: 'd' });
  assert.throws(() => streams.enter({ keyId: 'key_5', tenant: 'd' }), { code: 'gateway-busy' });
});

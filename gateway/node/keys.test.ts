import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Store } from '#scheduler/store/store.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { Keys } from './keys.ts';

describe('Keys', () => {
  let redis: TestRedis;
  let now = 1_000_000;
  const open = () => new Keys(new Store(redis.connect(), { clock: () => now }));
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());

  it('knows a key by its hash alone, with its tenant and scopes', async () => {
    const keys = open();
    const { apiKey, keyId } = await keys.create('acme', ['invoke']);
    assert.match(apiKey, /^pie_[0-9A-Za-z]{32}$/);
    assert.deepEqual(await keys.authenticate(apiKey), { tenant: 'acme', keyId, scopes: ['invoke'] });
    for (const wrong of ['', 'pie_', `${apiKey}0`, apiKey.toLowerCase(), `pie_${'0'.repeat(32)}`]) {
      assert.equal(await keys.authenticate(wrong), null, wrong);
    }
    const connection = redis.connect();
    const dump = await Promise.all(
      (await connection.keys('*')).map(async (key) => key + JSON.stringify(await connection.hgetall(key))),
    );
    assert.equal(dump.join().includes(apiKey.slice(4)), false);
  });

  it('refuses a removed key at once, and at another gateway after 2 s', async () => {
    const [here, there] = [open(), open()];
    const { apiKey } = await here.create('acme', ['invoke']);
    assert.ok(await there.authenticate(apiKey));
    assert.equal(await here.remove(apiKey), true);
    assert.equal(await here.authenticate(apiKey), null);
    assert.ok(await there.authenticate(apiKey));
    now += 2001;
    assert.equal(await there.authenticate(apiKey), null);
    assert.equal(await here.remove(apiKey), false);
  });

  it('never makes the same key twice', async () => {
    const keys = open();
    const made = await Promise.all(Array.from({ length: 50 }, () => keys.create('acme', ['admin'])));
    assert.equal(new Set(made.map(({ apiKey }) => apiKey)).size, 50);
  });
});

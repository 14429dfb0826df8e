import assert from 'node:assert/strict';
import { Resolver } from 'node:dns/promises';
import type { NetworkInterfaceInfo } from 'node:os';
import { test } from 'node:test';
import { Reach, RefusedAddress } from './reach.ts';

const { signal } = new AbortController();

test('addresses() returns public addresses only, and all addresses of a host that the operator lists', async () => {
  const lookup = async () => [
    { address: '10.0.0.1', family: 4 },
    { address: '8.8.8.8', family: 4 },
    { address: '::1', family: 6 },
  ];
  const reach = new Reach({ privateHosts: [{ host: 'tools.internal' }, { host: '127.0.0.1:8080' }], lookup });
  const addresses = async (url: string) =>
    (await reach.addresses(new URL(url), 'a', signal)).map(({ address }) => address);
  assert.deepEqual(await addresses('https://example.com/'), ['8.8.8.8']);
  assert.deepEqual(await addresses('http://tools.internal:99/'), ['10.0.0.1', '8.8.8.8', '::1']);
  assert.deepEqual(await addresses('http://127.0.0.1:8080/'), ['127.0.0.1']);
  for (const url of ['http://127.0.0.1/', 'http://[::1]/', 'http://0x7f.1/', 'https://169.254.169.254/'])
    await assert.rejects(addresses(url), RefusedAddress, url);
  const inside = new Reach({ lookup: async () => [{ address: '192.168.0.1', family: 4 }] });
  await assert.rejects(inside.addresses(new URL('https://example.com/'), 'a', signal), RefusedAddress);
});

test('addresses() refuses the public addresses of this machine, unless the operator lists them', async () => {
  const interfaces = () => ({
    eth0: ['8.8.8.8', '2620:fe::fe'].map((address) => ({ address }) as NetworkInterfaceInfo),
    eth1: undefined,
  });
  const lookup = async () => [
    { address: '8.8.8.8', family: 4 },
    { address: '9.9.9.9', family: 4 },
  ];
  const reach = new Reach({ privateHosts: [{ host: '8.8.8.8:8080' }], interfaces, lookup });
  const addresses = async (url: string) =>
    (await reach.addresses(new URL(url), 'a', signal)).map(({ address }) => address);
  for (const url of ['http://8.8.8.8/', 'http://[2620:fe:0::fe]/']) {
    await assert.rejects(addresses(url), RefusedAddress, url);
    assert.equal(reach.refuses(new URL(url), 'a'), true);
  }
  assert.deepEqual(await addresses('http://8.8.8.8:8080/'), ['8.8.8.8']);
  assert.deepEqual(await addresses('https://example.com/'), ['9.9.9.9']);
});

test('refuses() rejects a URL with a private address and accepts any host name', () => {
  const reach = new Reach({ privateHosts: [{ host: '[::1]' }] });
  const refuses = (url: string) => reach.refuses(new URL(url), 'a');
  assert.deepEqual(
    ['https://10.1.2.3/', 'https://[fe80::1]/', 'https://[::1]/', 'https://8.8.8.8/', 'https://localhost/'].map(
      refuses,
    ),
    [true, true, false, false, false],
  );
});

test('a private host can be limited to one tenant', async () => {
  const privateHosts = [{ host: '127.0.0.1:8080', tenant: 'a' }, { host: '10.0.0.1' }];
  const reach = new Reach({ privateHosts, option: '[webhooks] private_hosts' });
  const reaches = (url: string, tenant: string) => reach.trusts(new URL(url), tenant);
  assert.deepEqual(
    ['a', 'b'].map((tenant) => ['http://127.0.0.1:8080/', 'http://10.0.0.1/'].map((url) => reaches(url, tenant))),
    [
      [true, true],
      [false, true],
    ],
  );
  assert.equal(reach.refuses(new URL('http://127.0.0.1:8080/'), 'b'), true);
  await assert.rejects(reach.addresses(new URL('http://127.0.0.1:8080/'), 'b', signal), {
    name: 'RefusedAddress',
    message: /\[webhooks\] private_hosts/,
  });
});

test('when both DNS lookups fail, the caller gets an error other than "no address", if there is one', async (t) => {
  const outcomes = { four: '', six: '' };
  const settle = async (outcome: string) => {
    if (outcome.startsWith('E')) throw Object.assign(new Error(outcome), { code: outcome });
    return [outcome];
  };
  t.mock.method(Resolver.prototype, 'resolve4', () => settle(outcomes.four));
  t.mock.method(Resolver.prototype, 'resolve6', () => settle(outcomes.six));
  const resolve = (four: string, six: string) => {
    Object.assign(outcomes, { four, six });
    return new Reach().addresses(new URL('https://example.com/'), 'a', signal);
  };
  assert.deepEqual(await resolve('8.8.8.8', 'ESERVFAIL'), [{ address: '8.8.8.8', family: 4 }]);
  assert.deepEqual(await resolve('ESERVFAIL', '2620:fe::fe'), [{ address: '2620:fe::fe', family: 6 }]);
  for (const [four, six, code] of [
    ['ENODATA', 'ESERVFAIL', 'ESERVFAIL'],
    ['ENOTFOUND', 'ETIMEOUT', 'ETIMEOUT'],
    ['ETIMEOUT', 'ENODATA', 'ETIMEOUT'],
    ['ENODATA', 'ENODATA', 'ENODATA'],
    ['ENOTFOUND', 'ENOTFOUND', 'ENOTFOUND'],
  ] as const)
    await assert.rejects(resolve(four, six), { code }, `${four}, ${six}`);
});

test('an aborted signal prevents or ends a DNS lookup', { timeout: 60_000 }, async (t) => {
  const lookups: PromiseWithResolvers<string[]>[] = [];
  const look = () => {
    const lookup = Promise.withResolvers<string[]>();
    lookups.push(lookup);
    return lookup.promise;
  };
  t.mock.method(Resolver.prototype, 'resolve4', look);
  t.mock.method(Resolver.prototype, 'resolve6', look);
  t.mock.method(Resolver.prototype, 'cancel', () => {
    for (const { reject } of lookups) reject(Object.assign(new Error('cancelled'), { code: 'ECANCELLED' }));
  });
  const reason = new Error('not needed');
  const addresses = (signal: AbortSignal) => new Reach().addresses(new URL('https://example.com/'), 'a', signal);
  await assert.rejects(addresses(AbortSignal.abort(reason)), reason);
  assert.equal(lookups.length, 0);
  const stop = new AbortController();
  const found = addresses(stop.signal);
  assert.equal(lookups.length, 2);
  stop.abort(reason);
  await assert.rejects(found, { code: 'ECANCELLED' });
});

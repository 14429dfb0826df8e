import assert from 'node:assert/strict';
import http from 'node:http';
import { after, before, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import type { Redis } from 'ioredis';
import { loadConfig } from '#infra/config.ts';
import { connectRedis } from '#infra/redis.ts';
import { deployWith } from '#test/harness/deploy.ts';
import { json } from '#test/harness/events.ts';
import { Platform, until } from '#test/harness/platform.ts';

let platform: Platform;
let version: string;
before(async () => {
  platform = await Platform.start({ functions: false });
  const empty = await stored();
  version = await deployWith(platform, 'ticker', {});
  // The build's answer may come before the end of its job.
  await until('the job of the build has ended', async () => !Object.hasOwn(await stored(), 'pie:bull:builds:active'));
  assert.notDeepEqual(await stored(), empty, 'an accepted request changes the stored data');
  // Remove all times of expiry. Otherwise the records of the deployment may expire between two reads that a test compares.
  await withRedis(async (redis) => {
    for (const key of await storedKeys(redis)) await redis.persist(key);
  });
});
after(() => platform?.[Symbol.asyncDispose]());

/** Keys that change without requests: leases, capacity, metrics, repairs of accounts, searches for dead runtimes, marks of BullMQ's own checks. */
const TICKING = /:(alive|account-repairs|metrics|capacity|offers|looks)\b|^pie:bull:\w+:(stalled-check|events)$/;
/** Fields that change even if no request is accepted, by key: the progress of admission's periodic repair, and the last use of an API key. */
const TICKING_FIELDS = [
  { key: /:admission:state$/, fields: ['repairedAt', 'repairedTo', 'repairedTenants', 'countedAt'] },
  { key: /^pie:key:/, fields: ['lastUsedAt'] },
] as const;

/** Keys whose times of expiry grow without requests: the leases of machines. */
const RENEWED = /^pie:machine(s|:)/;

/** All stored data with its times of expiry, except for the keys, fields and times that change without requests. */
function stored(): Promise<Record<string, unknown>> {
  return withRedis(async (redis) => {
    const keys = await storedKeys(redis);
    const entries = await Promise.all(
      keys.map(
        async (key) => [key, await contents(redis, key), RENEWED.test(key) ? 0 : await redis.pexpiretime(key)] as const,
      ),
    );
    return Object.fromEntries(
      entries.filter(([, value]) => value !== null).map(([key, value, expiresAt]) => [key, { value, expiresAt }]),
    );
  });
}

/**
 * Makes a request, asserts that it changes no stored data, and returns its answer. On a busy machine, the lease of the runtime may lapse meanwhile.
 * This changes much stored data, so the request is then repeated.
 */
async function storingNothing<T>(request: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    const before = await stored();
    const answer = await request();
    const after = await stored();
    const isSameFleet = 'pie:runtimes' in after && isDeepStrictEqual(after['pie:runtimes'], before['pie:runtimes']);
    if (isSameFleet || attempt === MAX_ATTEMPTS) assert.deepEqual(after, before);
    if (isSameFleet) return answer;
  }
}

const MAX_ATTEMPTS = 10;

async function storedKeys(redis: Redis): Promise<string[]> {
  return (await redis.keys('pie:*')).sort().filter((key) => !TICKING.test(key));
}

async function withRedis<T>(use: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = connectRedis(loadConfig(platform.environment));
  try {
    return await use(redis);
  } finally {
    redis.disconnect();
  }
}

async function contents(redis: Redis, key: string): Promise<unknown> {
  const type = await redis.type(key);
  if (type !== 'hash') return (await redis.dumpBuffer(key))?.toString('base64') ?? null;
  const fields = await redis.hgetall(key);
  const ticking = TICKING_FIELDS.find(({ key: pattern }) => pattern.test(key));
  for (const field of ticking?.fields ?? []) delete fields[field];
  return Object.keys(fields).length === 0 ? null : fields;
}

interface BadRequest {
  readonly what: string;
  readonly method: string;
  readonly route: () => string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly code: string;
}

const LIVE = () => '/v1/functions/ticker/aliases/live';
const INVOKE = () => '/v1/functions/ticker/invocations';
const share = (weight: number, ofVersion?: string) => ({ version: ofVersion ?? version, weight });

/** Some bodies are getters, because they contain `version`, which is set before the first test. */
const BAD_REQUESTS: readonly BadRequest[] = [
  {
    what: 'weights that do not sum to 100',
    method: 'PUT',
    route: LIVE,
    get body() {
      return { shares: [share(90)] };
    },
    code: 'invalid-alias',
  },
  {
    what: 'a weight that is not a whole percentage',
    method: 'PUT',
    route: LIVE,
    get body() {
      return { shares: [share(99.5), share(0.5)] };
    },
    code: 'invalid-alias',
  },
  {
    what: 'a version named twice',
    method: 'PUT',
    route: LIVE,
    get body() {
      return { shares: [share(50), share(50)] };
    },
    code: 'invalid-alias',
  },
  {
    what: 'an unknown version',
    method: 'PUT',
    route: LIVE,
    body: { shares: [share(100, 'ffffffffffff')] },
    code: 'invalid-alias',
  },
  {
    what: 'an alias that looks like a version',
    method: 'PUT',
    route: () => '/v1/functions/ticker/aliases/0123456789ab',
    get body() {
      return { shares: [share(100)] };
    },
    code: 'invalid-alias',
  },
  {
    what: 'an unknown quota',
    method: 'PUT',
    route: () => '/v1/quotas',
    body: { quota: 'wishes-per-day', limit: 3 },
    code: 'invalid-quota',
  },
  {
    what: 'a negative limit',
    method: 'PUT',
    route: () => '/v1/quotas',
    body: { quota: 'kv-pages', limit: -1 },
    code: 'invalid-quota',
  },
  {
    what: 'an override with an expiry in the past',
    method: 'PUT',
    route: () => '/v1/quotas',
    body: { quota: 'kv-pages', limit: 1, expiresAt: '2020-01-01T00:00:00Z' },
    code: 'invalid-quota',
  },
  {
    what: 'a quota of an unknown tenant',
    method: 'PUT',
    route: () => '/v1/quotas',
    body: { tenant: 'nobody', quota: 'kv-pages', limit: 1 },
    code: 'unknown-tenant',
  },
  {
    what: 'a malformed tenant name',
    method: 'POST',
    route: () => '/v1/tenants',
    body: { name: 'No Name' },
    code: 'invalid-input',
  },
  {
    what: 'a key with an unknown scope',
    method: 'POST',
    route: () => '/v1/keys',
    body: { name: 'x', scopes: ['everything'] },
    code: 'invalid-input',
  },
  {
    what: 'a key with an expiry in the past',
    method: 'POST',
    route: () => '/v1/keys',
    body: { name: 'x', scopes: ['invoke'], expiresAt: '2020-01-01T00:00:00Z' },
    code: 'invalid-input',
  },
  {
    what: 'a malformed secret name',
    method: 'PUT',
    route: () => '/v1/secrets/lower-case',
    body: { value: 'x' },
    code: 'invalid-secret',
  },
  {
    what: 'a secret above the length limit',
    method: 'PUT',
    route: () => '/v1/secrets/LONG',
    body: { value: 'x'.repeat(17 * 1024) },
    code: 'invalid-secret',
  },
  {
    what: 'a webhook that is not a URL',
    method: 'POST',
    route: INVOKE,
    body: {},
    headers: { 'webhook-url': 'somewhere' },
    code: 'invalid-webhook',
  },
  {
    what: 'a webhook to this machine',
    method: 'POST',
    route: INVOKE,
    body: {},
    headers: { 'webhook-url': 'https://127.0.0.1/hook' },
    code: 'invalid-webhook',
  },
  {
    what: 'a webhook to a private network',
    method: 'POST',
    route: INVOKE,
    body: {},
    headers: { 'webhook-url': 'https://10.1.2.3/hook' },
    code: 'invalid-webhook',
  },
  {
    what: 'a webhook to the metadata address of clouds',
    method: 'POST',
    route: INVOKE,
    body: {},
    headers: { 'webhook-url': 'https://169.254.169.254/latest' },
    code: 'invalid-webhook',
  },
  {
    what: 'a webhook to a private IPv6 network',
    method: 'POST',
    route: INVOKE,
    body: {},
    headers: { 'webhook-url': 'https://[fd00::1]/hook' },
    code: 'invalid-webhook',
  },
  {
    what: 'a malformed cancel-after header',
    method: 'POST',
    route: INVOKE,
    body: {},
    headers: { 'cancel-after': 'soon' },
    code: 'invalid-input',
  },
];

for (const bad of BAD_REQUESTS) {
  test(`${bad.what} is refused with ${bad.code}, and nothing is stored`, async () => {
    const response = await storingNothing(() =>
      platform.fetch(bad.route(), {
        method: bad.method,
        headers: { 'content-type': 'application/json', ...bad.headers },
        body: JSON.stringify(bad.body),
      }),
    );
    const problem = await json(response);
    assert.equal(problem.code, bad.code, JSON.stringify(problem));
    assert.ok(response.status >= 400 && response.status < 500);
    assert.equal(response.headers.get('content-type'), 'application/problem+json');
    for (const member of ['type', 'title', 'detail', 'hint', 'requestId'])
      assert.equal(typeof problem[member], 'string', member);
  });
}

/** Header of a Wasm component. */
const COMPONENT = Uint8Array.of(0, 0x61, 0x73, 0x6d, 0x0d, 0, 1, 0);

for (const [what, manifest, field] of [
  ['an unknown field', { name: 'bad', wishes: 1 }, '/wishes'],
  ['negative expected pages', { name: 'bad', expectedPages: { stories15m: -1 } }, '/expectedPages/stories15m'],
  ['a malformed secret name', { name: 'bad', secrets: ['lower-case'] }, '/secrets/0'],
  ['an environment value that is not a string', { name: 'bad', environment: { A: 1 } }, '/environment/A'],
] as const) {
  test(`a manifest with ${what} is refused with its field, and nothing is stored`, async () => {
    const form = new FormData();
    form.set('manifest', JSON.stringify(manifest));
    form.set('component', new Blob([COMPONENT], { type: 'application/wasm' }), 'c.wasm');
    const response = await storingNothing(() => platform.fetch('/v1/functions/bad', { method: 'PUT', body: form }));
    const problem = await json(response);
    assert.equal(problem.code, 'invalid-manifest', JSON.stringify(problem));
    assert.equal(problem.field, field);
  });
}

test('headers that are too large are refused with 431 and a code, and nothing is stored', async () => {
  const { status, body } = await storingNothing(sendLargeHeaders);
  assert.equal(status, 431);
  assert.equal(JSON.parse(body).code, 'headers-too-large');
});

function sendLargeHeaders(): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const request = http.request(
      `${platform.url}/v1/functions`,
      { headers: { 'x-large': 'x'.repeat(64 * 1024) } },
      (response) => {
        let body = '';
        response.setEncoding('utf8').on('data', (text: string) => {
          body += text;
        });
        response.on('end', () => resolve({ status: response.statusCode ?? 0, body }));
      },
    );
    request.on('error', reject);
    request.end();
  });
}

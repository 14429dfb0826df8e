import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { RuntimePlatform } from '../../testing/platform.ts';

const SECRET = 'sk-live-4f9a"7c31\\é';

const SOURCE = `
  import { getVariable, listVariables } from 'pie:inferlet/environment@0.1.0';
  import { log } from 'pie:inferlet/runtime@0.1.0';
  import { send } from 'pie:inferlet/session@0.1.0';

  export async function run(input) {
    const key = getVariable('KEY');
    switch (JSON.parse(input)) {
      case 'read':
        return JSON.stringify({ names: listVariables(), mode: getVariable('MODE'), none: getVariable('NONE') ?? null, length: key?.length ?? null });
      case 'log':
        // The prelude's console logs in this way.
        log('info', ['the key', key, JSON.stringify({ key })].join(' '));
        log('info', [key.slice(0, 5), key.slice(5, 11), key.slice(11)].join(' '));
        log('error', String(new Error(key)));
        log('info', 'in ' + getVariable('ZONE') + ' ' + getVariable('TINY'));
        log('info', 'x'.repeat(16_380) + key);
        send({ tag: 'text', val: key });
        return JSON.stringify(key);
      case 'error':
        throw new Error('the server answered: ' + JSON.stringify({ authorization: key }));
      case 'long-error':
        throw new Error('x'.repeat(8000) + ' ' + key.repeat(40));
      case 'no-json':
        return 'it is ' + key;
    }
  }
`;

describe('the environment of a function', () => {
  let platform: RuntimePlatform;
  before(async () => {
    platform = await RuntimePlatform.start();
    await platform.scheduler.secrets.set('default', 'KEY', SECRET, 'key_1');
  });
  after(() => platform.stop());

  const manifest = { name: 'reader', secrets: ['KEY'], environment: { MODE: 'fast' } };

  it("has the manifest's variables with the values of the deploy, also after a later deploy", async () => {
    const first = await platform.deploy(SOURCE, manifest);
    const { end } = await platform.invoke(first, 'read');
    const output = { names: ['KEY', 'MODE'], mode: 'fast', none: null };
    assert.deepEqual(end.data.output, { ...output, length: SECRET.length });
    await platform.scheduler.secrets.set('default', 'KEY', 'short', 'key_1');
    const second = await platform.deploy(SOURCE, manifest);
    assert.notEqual(second.version, first.version);
    assert.deepEqual((await platform.invoke(second, 'read')).end.data.output, { ...output, length: 5 });
    assert.deepEqual((await platform.invoke(first, 'read')).end.data.output, { ...output, length: SECRET.length });
    await platform.scheduler.secrets.set('default', 'KEY', SECRET, 'key_1');
  });

  it('is redacted from logs and error messages, but not from messages to the client', async () => {
    const environment = { ZONE: 'eu-north-7', TINY: 'abc' };
    const version = await platform.deploy(SOURCE, { ...manifest, environment, name: 'teller' });
    const { logs, messages, end } = await platform.invoke(version, 'log');
    assert.deepEqual(logs.slice(0, 2), ['the key [KEY] {"key":"[KEY]"}', '[KEY]']);
    assert.equal(logs[2], 'Error: [KEY]');
    assert.equal(logs[3], 'in [ZONE] abc', 'a value of three characters is too common to redact');
    // A log line is cut after 16,384 characters, here within the value.
    assert.equal(logs[4], `${'x'.repeat(16_380)}[KEY]… (cut)`);
    assert.deepEqual([messages, end.data.output], [[SECRET], SECRET]);
    const failed = await platform.invoke(version, 'error');
    assert.equal(failed.end.data.code, 'inferlet-error');
    assert.match(failed.end.data.message ?? '', /the server answered: \{"authorization":"\[KEY\]"\}/);
    const long = (await platform.invoke(version, 'long-error')).end.data.message ?? '';
    // The rest of the last value is too short to distinguish from other text.
    assert.match(long.slice(7990), /^x+ (\[KEY\])+.{0,3}… \(cut\)$/);
    assert.match((await platform.invoke(version, 'no-json')).end.data.message ?? '', /"it is \[KEY\]"/);
    const lines = await platform.scheduler.logs.oldest('default', 'teller', { limit: 100 });
    assert.ok(lines.length > 4);
    for (const { data } of lines) assert.ok(!data.includes('4f9a') && !data.includes('7c31'), data);
  });

  it('ends the invocation with an error that names the secret that cannot be opened', async () => {
    const version = await platform.deploy(SOURCE, { ...manifest, name: 'unlucky' });
    const { redis, scheduler } = platform;
    const values = scheduler.store.keys.secretValues('default');
    const [field = ''] = await redis.connect().hkeys(values);
    const stored = (await redis.connect().hgetall(values)) as Record<string, string>;
    // A sealed value begins with the id of its master key, which has 8 characters. No key has the id 00000000.
    for (const name of Object.keys(stored))
      await redis.connect().hset(values, name, `00000000.${stored[field]?.slice(9)}`);
    const { end } = await platform.invoke(version, 'read');
    assert.equal(end.data.code, 'artifact-unavailable');
    assert.match(end.data.message ?? '', /The secret KEY cannot be opened: it is sealed under the master key 00000000/);
    await redis.connect().del(values);
    assert.match((await platform.invoke(version, 'read')).end.data.message ?? '', /KEY is not stored/);
  });

  it('is empty for a function that declares no variables', async () => {
    const version = await platform.deploy(SOURCE);
    const { end } = await platform.invoke(version, 'read');
    assert.deepEqual(end.data.output, { names: [], mode: null, none: null, length: null });
  });
});

import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { PieClient } from '#gateway/client/client.ts';
import { loadConfig } from '#infra/config.ts';
import { connectRedis } from '#infra/redis.ts';
import { findSource } from '#runtime/build/component/source.ts';
import { buildScript } from '#runtime/build/component/stage.ts';
import { installedEngine } from '#runtime/build/script/installed.ts';
import { readScriptFile, writeScriptFile } from '#scheduler/functions/script-file.ts';
import { openScheduler } from '#scheduler/scheduler.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { call, deploySource } from '#test/harness/deploy.ts';
import { invoke, terminal } from '#test/harness/events.ts';
import { functionsPlatform } from '#test/harness/functions.ts';
import type { Platform } from '#test/harness/platform.ts';

let platform: Platform;
let client: PieClient;
let folder: string;

before(async () => {
  platform = await functionsPlatform();
  client = new PieClient({ url: platform.url, apiKey: platform.apiKey });
  folder = await mkdtemp(path.join(os.tmpdir(), 'pie-scripts-'));
});
after(() => rm(folder, { recursive: true, force: true }));

const write = (name: string, text: string) => writeFile(path.join(folder, name), text);
const source = async (name: string) => (await buildScript(await findSource(path.join(folder, name)))).script;

describe('a script', () => {
  test('fails with the file, line and column of its author', async () => {
    await write(
      'index.ts',
      `import { total } from './total.ts';\n\ninterface Input { items: { price: number }[] | null }\nexport const run = async (text: string): Promise<string> => {\n  const input = JSON.parse(text) as Input;\n  console.error(new Error('é🙂'));\n  return String(total(input.items));\n};\n`,
    );
    await write(
      'total.ts',
      `import { priceOf } from './price.ts';\n// 🙂 é\nexport const total = (items: { price: number }[] | null): number => [0].map(() => priceOf(items))[0] ?? 0;\n`,
    );
    await write(
      'price.ts',
      `/** Not null. */\nexport function priceOf(items: { price: number }[] | null): number {\n  const text = "🙂é"; return text.length + items![0]!.price;\n}\n`,
    );
    await deploySource(platform, path.join(folder, 'index.ts'), { name: 'script-stack' });
    assert.equal(await call(platform, 'script-stack', { items: [{ price: 3 }] }), 6);
    const events = await invoke(platform, 'script-stack', { items: null });
    const { data } = terminal(events) ?? {};
    assert.equal(data?.code, 'inferlet-error');
    assert.match(data.message, /cannot read property '0' of null/);
    const frames = String(data.stack).split('\n');
    assert.match(frames[0] ?? '', /^priceOf \(price\.ts:3:\d+\)$/);
    assert.ok(
      frames.some((frame) => /\(total\.ts:3:\d+\)/.test(frame)),
      data.stack,
    );
    assert.ok(
      frames.some((frame) => /\(index\.ts:7:\d+\)/.test(frame)),
      data.stack,
    );
    const line = events.find(({ event, data: { level } }) => event === 'log' && level === 'error');
    assert.match(line?.data.message, /index\.ts:6:\d+/);
    const { stdout } = await platform.pie(['logs', 'script-stack', '--level', 'error']);
    assert.match(stdout, /price\.ts:3:\d+/);
  });

  test('keeps its engine when the platform gets another one, until it is deployed again', async () => {
    await write('kept.ts', 'let count = 40;\nexport const run = async (): Promise<string> => String(++count + 1);\n');
    const script = await source('kept.ts');
    const installed = await installedEngine();
    assert.ok(installed);
    // An engine of other bytes, such as another release has: a custom section changes nothing that it does.
    const other = Buffer.concat([installed.component, Buffer.from([0, 5, 4, 0x6f, 0x74, 0x68, 0x65])]);
    const scheduler = openScheduler({ log: silentLog, connect: () => connectRedis(loadConfig(platform.environment)) });
    try {
      const engine = await scheduler.blobs.putEngine(other);
      const file = readScriptFile(script);
      const named = writeScriptFile({ ...file, header: { ...file.header, engine } });
      const old = await client.deploy({ name: 'script-kept' }, named);
      assert.equal(old.engine, engine);
      assert.equal(await call(platform, 'script-kept', null), 42);
      const renewed = await client.deploy({ name: 'script-kept' }, new Uint8Array(script));
      assert.equal(renewed.engine, installed.hash);
      assert.notEqual(renewed.version, old.version);
      assert.equal(await call(platform, 'script-kept', null), 42);
      assert.equal(await call(platform, `script-kept@${old.version}`, null), 42);
      // The last version that names an engine takes it along.
      await client.removeVersion('script-kept', old.version);
      for (let tries = 0; await scheduler.blobs.has(engine); tries++)
        assert.ok(tries < 100, 'the engine is still stored');
      assert.ok(await scheduler.blobs.has(installed.hash));
    } finally {
      await scheduler.close();
    }
  });

  test('is refused when it is damaged, or names an engine that is not there, or a component of a tenant', async () => {
    await write('plain.ts', "export const run = async (): Promise<string> => '1';\n");
    const script = await source('plain.ts');
    const { header, payload } = readScriptFile(script);
    const refused = async (bytes: Uint8Array, message: RegExp) => {
      const deploying = client.deploy({ name: 'script-refused' }, new Uint8Array(bytes));
      await assert.rejects(deploying, (error: { code?: string; message?: string }) => {
        assert.equal(error.code, 'build-failed');
        assert.match(error.message ?? '', message);
        return true;
      });
    };
    // A tenant's own function is no engine, although its bytes are stored.
    const { componentHash } = await client.deploy({ name: 'script-refused' }, new Uint8Array(script));
    await refused(writeScriptFile({ header: { ...header, engine: componentHash }, payload }), /names the engine/);
    await client.removeFunction('script-refused');
    await refused(
      writeScriptFile({ header: { ...header, engine: 'a'.repeat(64) }, payload }),
      /names the engine aaaaaaaaaaaa/,
    );
    await refused(writeScriptFile({ header, payload: payload.subarray(0, payload.length - 9) }), /cannot be unpacked/);
    await refused(
      writeScriptFile({ header: { ...header, scriptBytes: header.scriptBytes + 1 }, payload }),
      /its header says/,
    );
    await refused(script.subarray(0, 20), /ends inside its header/);
    await assert.rejects(client.function('script-refused'));
  });
});

import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { describe, it } from 'node:test';
import { readWorld } from '#wit/generate/generate.ts';
import { parse } from '#wit/generate/parse.ts';
import { resolve } from '#wit/generate/resolve.ts';
import { world } from '#wit/generated/world.ts';
import { call, deploySource } from '../harness/deploy.ts';
import { functionsPlatform } from '../harness/functions.ts';
import { FOLDER, recordedCalls, recordedComponent, recordedContract } from './recorded.ts';
import { missingFrom } from './superset.ts';

const entries = await readdir(FOLDER, { withFileTypes: true });
const versions = entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);

describe('the current contract', () => {
  it('is compared with version 0.1.0, and each component of that version has recorded calls', async () => {
    assert.ok(versions.includes('0.1.0'));
    const calls = Object.values(await recordedCalls('0.1.0'));
    assert.ok(calls.length > 0 && calls.every((list) => list.length > 0));
  });

  for (const version of versions) {
    it(`contains everything of ${version}`, async () => {
      assert.deepEqual(missingFrom(world, await recordedContract(version)), []);
    });
  }

  it('is compared part by part: missing and changed parts are reported, added ones are not', async () => {
    const read = (text: string) =>
      resolve(
        [parse('test.wit', `package a:b@1.0.0; ${text} world w { import x; export run: async func(a: string); }`)],
        'w',
      );
    const old = read(
      'interface x { record r { a: u32 } variant v { one, two(r) } resource q { get: func() -> v; } f: func(a: r); }',
    );
    const changed = read(
      'interface x { record r { a: u32, b: u32 } variant v { one, two(r), three } resource q { put: func(); } g: func(); f: func(a: r); }',
    );
    assert.deepEqual(missingFrom(changed, old), [
      'the type x.r has changed',
      'the type x.v has changed',
      'x f has another signature',
      'x [method]q.get is gone',
    ]);
    const grown = read(
      'interface x { /// Said anew.\n record r { a: u32 } variant v { one, two(r) } resource q { put: func(); get: func() -> v; } g: func(); f: func(a: r); enum e { one } }',
    );
    assert.deepEqual(missingFrom(grown, old), []);
    assert.deepEqual(missingFrom({ ...(await readWorld()), imports: [] }, old).slice(-2), [
      'x is gone',
      'the export run is gone or has another signature',
    ]);
  });
});

describe('old components on the current platform', () => {
  it('return their recorded outputs', async () => {
    const platform = await functionsPlatform();
    const folder = await mkdtemp(path.join(os.tmpdir(), 'pie-compat-'));
    try {
      for (const version of versions) {
        const recorded = await recordedCalls(version);
        const components = (await readdir(path.join(FOLDER, version))).filter((file) => file.endsWith('.wasm.br'));
        assert.deepEqual(
          Object.keys(recorded).sort(),
          components.map((file) => path.basename(file, '.wasm.br')).sort(),
        );
        for (const [name, calls] of Object.entries(recorded)) {
          const file = path.join(folder, `${name}.wasm`);
          await writeFile(file, await recordedComponent(version, name));
          const deployed = `${name}-${version.replaceAll('.', '-')}`;
          await deploySource(platform, file, { name: deployed });
          for (const { input, output } of calls) {
            assert.deepEqual(await call(platform, deployed, input), output, `${name} of ${version}`);
          }
        }
      }
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
});

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import * as tar from 'tar';
import { pullModel } from './pull.ts';
import { FileServer } from './testing/file-server.ts';
import { randomModel } from './testing/random-model.ts';

test('while the registry is unreachable, a pull without a version gets the version of the last such pull', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'pie-away-'));
  const cacheDirectory = join(directory, 'cache');
  const server = await FileServer.start();
  const settings = {
    npm_config_registry: `${server.url}/`,
    npm_config_userconfig: join(directory, 'npmrc'),
    npm_config_cache: join(directory, 'npm-cache'),
  };
  const before = Object.keys(settings).map((name) => [name, process.env[name]] as const);
  Object.assign(process.env, settings);
  try {
    await randomModel(join(directory, 'package'), {}, 1);
    await tar.create({ file: join(directory, 'x.tgz'), cwd: directory, gzip: true }, ['package']);
    const bytes = await readFile(join(directory, 'x.tgz'));
    const integrity = `sha512-${createHash('sha512').update(bytes).digest('base64')}`;
    const publish = (version: string) => {
      const path = `/tiny/-/tiny-${version}.tgz`;
      const versions = { [version]: { name: 'tiny', version, dist: { tarball: `${server.url}${path}`, integrity } } };
      const document = Buffer.from(JSON.stringify({ name: 'tiny', 'dist-tags': { latest: version }, versions }));
      server.files.set('/tiny', { bytes: document });
      server.files.set(path, { bytes });
      return document;
    };
    // The last pulled version is not the highest.
    for (const version of ['1.1.0', '1.3.0', '1.2.0']) {
      publish(version);
      assert.equal((await pullModel('npm:tiny', { cacheDirectory })).cached, false);
    }
    // This pull names its version, so it does not count as a pull of `npm:tiny`.
    const document = publish('1.4.0');
    await pullModel('npm:tiny@1.4.0', { cacheDirectory });

    const last = { directory: join(cacheDirectory, 'npm--tiny--1.2.0'), cached: true };
    server.files.set('/tiny', { bytes: document, statuses: [503] });
    assert.deepEqual(await pullModel('npm:tiny', { cacheDirectory }), last);
    await server.close();
    assert.deepEqual(await pullModel('npm:tiny', { cacheDirectory }), last);
    // As if a forced pull had been killed between the two renames that replace a model.
    await rename(last.directory, join(cacheDirectory, '.staging-npm--tiny--1.2.0.AbCdEf-replaced'));
    assert.deepEqual(await pullModel('npm:tiny', { cacheDirectory }), last);
    await assert.rejects(pullModel('npm:tiny', { cacheDirectory, force: true }), { code: 'unreachable' });
    await assert.rejects(pullModel('npm:tiny@next', { cacheDirectory }), { code: 'unreachable' });
  } finally {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    await server.close();
    await rm(directory, { recursive: true, force: true });
  }
});

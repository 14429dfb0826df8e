import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { bundle } from './bundle.ts';

let root = '';
before(async () => {
  root = await mkdtemp(join(tmpdir(), 'pie-bundle-'));
});
after(() => rm(root, { recursive: true, force: true }));

const mark = (text: string) => `export const build = 'build:${text}';`;
const commonMark = (text: string) => `exports.build = 'build:${text}';`;

/** The marks of the files of an npm package that get into a bundle that imports the package. */
async function builds(
  name: string,
  manifest: object,
  files: Record<string, string>,
  how = 'import',
): Promise<string[]> {
  const directory = join(root, name);
  const use = how === 'import' ? `import { build } from '${name}';` : `const { build } = require('${name}');`;
  const all: Record<string, string> = {
    'index.ts': `${use} export const run = async () => build;`,
    [`node_modules/${name}/package.json`]: JSON.stringify({ name, version: '1.0.0', ...manifest }),
  };
  for (const [file, text] of Object.entries(files)) all[`node_modules/${name}/${file}`] = text;
  for (const [file, text] of Object.entries(all)) {
    await mkdir(dirname(join(directory, file)), { recursive: true });
    await writeFile(join(directory, file), text);
  }
  const { code } = await bundle({ directory, entry: './index.ts' });
  return [...code.matchAll(/build:([\w-]+)/g)].map(([, text = '']) => text);
}

suite('a package gives a guest its build for browsers', () => {
  test('by the field `browser`, before `module` and `main`', async () => {
    const files = {
      'main.js': "require('fs'); exports.build = 'build:main';",
      'module.js': `import 'node:crypto'; ${mark('module')}`,
      'browser.js': mark('browser'),
    };
    const manifest = { main: 'main.js', module: 'module.js', browser: './browser.js' };
    assert.deepEqual(await builds('field', manifest, files), ['browser']);
    const { browser: _, ...withoutBrowser } = { ...manifest, module: 'browser.js' };
    assert.deepEqual(await builds('no-field', withoutBrowser, files), ['browser']);
  });

  test('by a map of files and modules, `false` for none', async () => {
    const files = {
      'index.js': `
        const fs = require('fs');
        const crypto = require('node:crypto');
        const { part } = require('./part.js');
        exports.build = [part, typeof fs, typeof crypto, require('util').inspect].join('build:index');`,
      'part.js': "require('net'); exports.part = 'build:part';",
      'part-browser.js': "exports.part = 'build:part-browser';",
      'inspect.js': "exports.inspect = 'build:inspect';",
    };
    const browser = { fs: false, 'node:crypto': false, './part.js': './part-browser.js', util: './inspect.js' };
    const found = await builds('map', { main: 'index.js', browser }, files);
    assert.deepEqual(found.sort(), ['index', 'inspect', 'part-browser']);
  });

  test('by the conditions of its exports, in the order of the package', async () => {
    const file = (name: string) => [`${name}.js`, name === 'require' ? commonMark(name) : mark(name)] as const;
    const names = ['pie', 'worker', 'browser', 'module', 'import', 'require', 'workerd', 'node', 'default'];
    const files = Object.fromEntries(names.map(file));
    const target = (conditions: readonly string[]) => ({
      type: 'module',
      exports: { '.': Object.fromEntries(conditions.map((name) => [name, `./${name}.js`])) },
    });
    for (const [conditions, expected] of [
      [['node', 'worker', 'browser', 'default'], 'worker'],
      [['node', 'browser', 'worker', 'default'], 'browser'],
      [['node', 'browser', 'import', 'default'], 'browser'],
      [['workerd', 'import', 'default'], 'import'],
      [['node', 'module', 'default'], 'module'],
      [['node', 'default'], 'default'],
      [['pie', 'browser'], 'pie'],
    ] as const)
      assert.deepEqual(await builds(`of-${conditions.join('-')}`, target(conditions), files), [expected]);
    const dual = { exports: { import: './import.mjs', require: './require.cjs' } };
    const dualFiles = { 'import.mjs': mark('import'), 'require.cjs': commonMark('require') };
    assert.deepEqual(await builds('dual', dual, dualFiles), ['import']);
    assert.deepEqual(await builds('dual-required', dual, dualFiles, 'require'), ['require']);
    const nested = {
      exports: { node: './node.js', default: { browser: { import: './browser.js' }, default: './node.js' } },
    };
    assert.deepEqual(await builds('nested', { type: 'module', ...nested }, files), ['browser']);
  });

  test('and may try to require a module that guests lack', async () => {
    const files = { 'index.js': "try { require('perf_hooks'); } catch { exports.build = 'build:without'; }" };
    assert.deepEqual(await builds('trying', { main: 'index.js' }, files), ['without']);
    const asking = { 'index.js': "require('perf_hooks');" };
    await assert.rejects(builds('asking', { main: 'index.js' }, asking), /"perf_hooks" is a Node module/);
  });
});

import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { z } from 'zod';
import { fileSchema, loadConfig } from '#infra/config.ts';
import { parseManifest } from '#scheduler/functions/manifest.ts';
import { codeBlocks } from '#test/harness/newcomer.ts';
import { ROOT } from '#test/harness/platform.ts';
import { ARCHITECTURE_FILE, renderArchitecture } from '../../docs/architecture.ts';
import { examplesIn } from './examples.ts';

const read = (file: string): string => readFileSync(path.join(ROOT, file), 'utf8');

test('each link between documents points to an existing file', () => {
  const documents = globSync('**/*.md', { cwd: ROOT, exclude: ['**/node_modules/**'] });
  const broken: string[] = [];
  let links = 0;
  for (const document of documents) {
    // Code may contain brackets that look like links.
    const prose = read(document)
      .replaceAll(/^```.*?^```$/gms, '')
      .replaceAll(/`[^`\n]*`/g, '');
    for (const [, target = ''] of prose.matchAll(/\]\(([^)#\s]+)(?:#[^)]*)?\)/g)) {
      if (/^[a-z]+:/.test(target)) continue;
      links++;
      if (!existsSync(path.join(ROOT, path.dirname(document), target))) broken.push(`${document}: ${target}`);
    }
  }
  assert.deepEqual(broken, []);
  assert.ok(links > 50, `${links} links`);
});

test('docs/architecture.svg shows the present imports between rooms', () => {
  assert.ok(
    readFileSync(ARCHITECTURE_FILE, 'utf8') === renderArchitecture(),
    'docs/architecture.svg is stale: run npm run generate',
  );
});

test('the README has at most 100 lines', () => {
  // The text ends with a line break, so `split` finds an empty line more.
  assert.ok(read('README.md').split('\n').length <= 100 + 1);
});

test('the configuration in docs/configure.md is valid', async () => {
  const home = await mkdtemp(path.join(tmpdir(), 'pie-documents-'));
  try {
    const [text = ''] = codeBlocks(read('docs/configure.md'), 'toml');
    await writeFile(path.join(home, 'pie.toml'), text);
    const served = loadConfig({ PIE_HOME: home }).gpuHosts.flatMap(({ models }) => models.map(({ name }) => name));
    assert.deepEqual(served, ['minimind2-small', 'stories15m']);
  } finally {
    await rm(home, { recursive: true });
  }
});

test('docs/configure.md names each key of pie.toml', () => {
  const keys = new Set<string>();
  // Where the schema transforms a value, input and output may have different keys, so both are read.
  for (const io of ['input', 'output'] as const) {
    JSON.stringify(z.toJSONSchema(fileSchema, { io, unrepresentable: 'any' }), (name, value) => {
      if (name === 'properties') for (const key of Object.keys(value)) keys.add(key);
      return value;
    });
  }
  assert.ok(keys.size > 100, `${keys.size} keys`);
  const text = read('docs/configure.md');
  const missing = [...keys].filter((key) => !new RegExp(`\\b${key}\\b`).test(text));
  // The schema accepts only the default of this key, so the document may omit the key.
  assert.deepEqual(missing, ['tensor_parallel_size']);
});

test('the manifests in the documents are valid', () => {
  const blocks = examplesIn('json').filter(({ code }) => /^\{\s*"name"/.test(code));
  const manifests = blocks.map(({ code }) => parseManifest(JSON.parse(code)));
  assert.ok(manifests.length > 5, `${manifests.length} manifests`);
  for (const outcome of manifests) assert.ok(outcome.ok, JSON.stringify(outcome));
});

test('the tour of the CUDA forward pass names existing files and identifiers', () => {
  const cuda = 'gpu-host/backends/cuda';
  // Names may be relative to any of these folders; some tables name files of kernels without their folder.
  const folders = ['.', 'gpu-host', cuda, `${cuda}/native`, `${cuda}/native/kernels`];
  const identifiers = new Set<string>();
  for (const file of globSync('gpu-host/**/*.{ts,cu,cc,h}', { cwd: ROOT }))
    for (const [word] of read(file).matchAll(/\w+/g)) identifiers.add(word);
  const unknown: string[] = [];
  let names = 0;
  for (const [, code = ''] of read(`${cuda}/TOUR.md`).matchAll(/`([^`\n]+)`/g)) {
    for (const part of code.split(' ')) {
      if (/^[\w./-]+\.(?:ts|cu|cc|h|md|py|sh)$/.test(part)) {
        names++;
        if (!folders.some((folder) => existsSync(path.join(ROOT, folder, part)))) unknown.push(part);
        continue;
      }
      for (const [word] of part.matchAll(/[A-Za-z_]\w+/g)) {
        names++;
        if (!identifiers.has(word)) unknown.push(word);
      }
    }
  }
  assert.deepEqual(unknown, []);
  assert.ok(names > 300, `${names} names`);
});

import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { ago, bytes, duration, quoted } from './format.ts';
import { findFunction } from './function-source.ts';

let folder = '';
before(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'pie-source-'));
  mkdirSync(path.join(folder, 'story'));
  writeFileSync(path.join(folder, 'story/index.ts'), '');
  writeFileSync(path.join(folder, 'story/helper.ts'), '');
  writeFileSync(path.join(folder, 'story/pie.json'), '{"name":"story-teller","main":"index.ts","limits":{"pages":9}}');
  writeFileSync(path.join(folder, 'My First.js'), '');
  writeFileSync(path.join(folder, 'a.wasm'), '');
});
after(() => rmSync(folder, { recursive: true, force: true }));

describe('findFunction', () => {
  it('accepts a folder with a manifest', () => {
    const { manifest, entry, kind } = findFunction(path.join(folder, 'story'), undefined);
    assert.deepEqual(manifest, { name: 'story-teller', main: 'index.ts', limits: { pages: 9 } });
    assert.equal(entry, path.join(folder, 'story/index.ts'));
    assert.equal(kind, 'source');
  });

  it('uses the manifest beside a file only when the file is its main', () => {
    assert.equal(findFunction(path.join(folder, 'story/index.ts'), undefined).manifest.name, 'story-teller');
    assert.deepEqual(findFunction(path.join(folder, 'story/helper.ts'), undefined).manifest, { name: 'helper' });
  });

  it('derives a name from a file without a manifest, unless a name is given', () => {
    assert.equal(findFunction(path.join(folder, 'My First.js'), undefined).manifest.name, 'my-first');
    assert.equal(findFunction(path.join(folder, 'My First.js'), 'other').manifest.name, 'other');
  });

  it('takes a script and a component as they are, and a core module as source to build', () => {
    const kindOf = (version: string) => {
      writeFileSync(path.join(folder, 'b.wasm'), `\0asm${version}`, 'latin1');
      return findFunction(path.join(folder, 'b.wasm'), undefined).kind;
    };
    writeFileSync(path.join(folder, 'a.pie'), '');
    const script = findFunction(path.join(folder, 'a.pie'), undefined);
    assert.deepEqual([script.kind, script.manifest.name], ['script', 'a']);
    assert.equal(findFunction(path.join(folder, 'a.wasm'), 'a').kind, 'component');
    assert.equal(kindOf('\x0d\0\x01\0'), 'component');
    assert.equal(kindOf('\x01\0\0\0'), 'source');
  });
});

describe('formats', () => {
  it('print sizes and times with units', () => {
    assert.deepEqual([12, 1500, 2_130_000, 3e9].map(bytes), ['12 B', '1.5 KiB', '2.0 MiB', '2.8 GiB']);
    assert.deepEqual([12.3, 1234, 180_000].map(duration), ['12 ms', '1.2 s', '3 min']);
    const now = Date.parse('2026-11-20T12:00:00Z');
    assert.equal(ago('2026-11-20T11:59:30Z', now), '30 s ago');
    assert.equal(ago('2026-11-18T11:59:30Z', now), '2 d ago');
  });

  it('quote words for a shell', () => {
    assert.equal(quoted('plain-1.0'), 'plain-1.0');
    assert.equal(quoted(`{"it's":1}`), `'{"it'\\''s":1}'`);
  });
});

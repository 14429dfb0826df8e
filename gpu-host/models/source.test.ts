import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { cacheName, parseSource } from './source.ts';

describe('parseSource', () => {
  it('accepts every form of source, and `cacheName` gives each source its own directory', () => {
    for (const [text, directory] of [
      ['stories15m', 'stories15m'],
      ['npm:some-model@1.2.3', 'npm--some-model--1.2.3'],
      ['npm:@scope/model', 'npm--@scope--model--latest'],
      ['hf:HuggingFaceTB/SmolLM2-135M', 'hf--HuggingFaceTB--SmolLM2-135M'],
      ['hf:gpt2@refs/pr/1', 'hf--gpt2--refs--pr--1'],
    ]) {
      assert.equal(cacheName(parseSource(text!)), directory);
    }
    // Some of these names would become equal if `cacheName` only replaced `/` and `@` by `--`.
    const hubNames = [
      ...['a/b/x/y.gguf', 'a/b/x--y.gguf', 'a/b/c.gguf', 'a/b@c.gguf'],
      ...['a/b/c.gguf@v1', 'a/b/c.gguf--v1.gguf'],
    ];
    assert.equal(new Set(hubNames.map((name) => cacheName(parseSource(`hf:${name}`)))).size, hubNames.length);
    assert.match(cacheName(parseSource('hf:a/b/x/y.gguf@v1')), /^hf--a--b--x--y\.gguf--v1--[0-9a-f]{12}$/);
    assert.match(cacheName(parseSource('file:///x/model.bin')), /^file--model\.bin--[0-9a-f]{12}$/);
    for (const path of ['/m', './m', '../m.bin', 'x/m.GGUF']) assert.equal(parseSource(path).kind, 'file', path);
  });

  it('refuses other forms, and names that would lead out of the cache', () => {
    for (const text of [
      '',
      'gpt5',
      'npm:',
      'npm:../x',
      'npm:a/b',
      'hf:..',
      'hf:a/../b',
      'hf:a/b/c',
      'hf:a/b/../c.gguf',
      'hf:a/b/.c.gguf',
      'hf:a/b@../../x',
      'hf:a/b@x/../y',
      'http://x',
      'file://host/x.gguf',
      'file:///x%2Fy.gguf',
      'file://[x/y.gguf',
    ]) {
      assert.throws(() => parseSource(text), { name: 'ModelError' }, text);
    }
  });
});

describe('cacheName', () => {
  it('changes when any file that the conversion reads changes', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'pie-source-'));
    try {
      await mkdir(join(directory, 'onnx'));
      await writeFile(join(directory, 'model.bin'), '');
      for (const [source, file] of [
        [directory, 'config.json'],
        [directory, 'onnx/model_quantized.onnx'],
        [join(directory, 'model.bin'), 'model.bin'],
        [join(directory, 'model.bin'), 'tokenizer.bin'],
      ] as const) {
        const name = () => cacheName(parseSource(`file:${source}`));
        await writeFile(join(directory, file), 'a');
        const before = name();
        assert.equal(name(), before);
        await writeFile(join(directory, file), 'other');
        assert.notEqual(name(), before, file);
      }
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  });
});

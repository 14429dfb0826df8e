import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { cacheName, parseSource } from './source.ts';

describe('parseSource', () => {
  it('knows its forms, and names a directory for each', () => {
    for (const [text, directory] of [
      ['stories15m', 'stories15m'],
      ['npm:some-model@1.2.3', 'npm--some-model--1.2.3'],
      ['npm:@scope/model', 'npm--@scope--model--latest'],
      ['hf:HuggingFaceTB/SmolLM2-135M', 'hf--HuggingFaceTB--SmolLM2-135M'],
      ['hf:gpt2@refs/pr/1', 'hf--gpt2--refs--pr--1'],
    ]) {
      assert.equal(cacheName(parseSource(text!)), directory);
    }
    const ofHub = ['a/b/x/y.gguf', 'a/b/x--y.gguf', 'a/b/c.gguf', 'a/b@c.gguf', 'a/b/c.gguf@v1', 'a/b/c.gguf--v1.gguf'];
    assert.equal(new Set(ofHub.map((name) => cacheName(parseSource(`hf:${name}`)))).size, ofHub.length);
    assert.match(cacheName(parseSource('hf:a/b/x/y.gguf@v1')), /^hf--a--b--x--y\.gguf--v1--[0-9a-f]{12}$/);
    assert.match(cacheName(parseSource('file:///x/model.bin')), /^file--model\.bin--[0-9a-f]{12}$/);
    for (const path of ['/m', './m', '../m.bin', 'x/m.GGUF']) assert.equal(parseSource(path).kind, 'file', path);
  });

  it('refuses other sources, and names that would lead out of the cache', () => {
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
    ]) {
      assert.throws(() => parseSource(text), { name: 'ModelError' }, text);
    }
  });
});

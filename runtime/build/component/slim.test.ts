import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { componentize } from 'componentize-qjs';
import { testArtifact } from '../../testing/components.ts';
import { load } from '../testing/load.ts';
import { bundle } from './bundle.ts';
import { slim } from './componentize.ts';
import { writeContract } from './contract.ts';

/** An inferlet that repeatedly fills the free blocks of the engine's allocator with objects of all sizes, and returns a checksum. */
const SOURCE = `
import { defineInferlet } from '@pie/inferlet';
const kept = new Map(Array.from({ length: 500 }, (_, i) => ['key ' + i, { text: 'value '.repeat(i % 40), bytes: new Uint8Array(i * 3).fill(i) }]));
export const run = defineInferlet(async ({ rounds }: { rounds: number }) => {
  let sum = 0;
  for (let round = 0; round < rounds; round++) {
    const made = Array.from({ length: 300 }, (_, i) => ({ text: String(i).repeat(1 + ((i * 37) % 97)), bytes: new Uint8Array(i * 20), list: Array(i % 50).fill(i) }));
    for (const { text, bytes, list } of made) sum += text.length + bytes.reduce((a, b) => a + b, 0) + list.length;
    if (round % 3 === 0) for (const [key, { text, bytes }] of kept) sum += key.length + text.length + bytes.reduce((a, b) => a + b, 0);
  }
  return { sum, source: run.toString().length > 0, sorted: [...kept.keys()].sort().at(-1) };
});`;

suite('a slim component', () => {
  let root = '';
  before(async () => {
    root = await mkdtemp(join(tmpdir(), 'pie-slim-'));
  });
  after(() => rm(root, { recursive: true, force: true }));

  test('gives the same result as the whole component, but contains neither source text nor names', async () => {
    await writeFile(join(root, 'index.ts'), SOURCE);
    const { code, interfaces } = await bundle({ directory: root, entry: join(root, 'index.ts') });
    const witPath = await writeContract(interfaces, root);
    const { component } = await componentize({ witPath, world: 'inferlet', jsSource: code, stubWasi: true });
    const slimmed = slim(component);
    const results = await Promise.all(
      [component, slimmed].map(async (bytes) => {
        const instance = await load(await testArtifact(bytes, 512));
        return JSON.parse(await instance.run('{"rounds":3}')) as unknown;
      }),
    );
    assert.deepEqual(results[1], results[0]);

    const sourceText = code.slice(100, -100);
    assert.ok(Buffer.from(component).includes(sourceText), 'the whole component has the source in its snapshot');
    assert.ok(!Buffer.from(slimmed).includes(sourceText));
    assert.ok(!Buffer.from(slimmed).includes('component-name'));
    // The whole component has two copies of the source.
    assert.ok(slimmed.length < component.length - 2 * code.length);
    assert.deepEqual(slim(slimmed), slimmed, 'a second pass removes nothing');
  });
});

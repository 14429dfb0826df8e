import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { packagesOf, toJavaScript } from './javascript.ts';

const SOURCE = `import type { A } from './types.ts';
import { b } from './b.ts';
import {
  c,
  type D,
} from '#scheduler/c.ts';
import zod from 'zod/v4';
import '../side.ts';
export { e } from '../../e.ts';
const worker: URL = new URL('./matching/worker.ts', import.meta.url);
const template = new URL('../../gateway/cli/templates/index.ts', import.meta.url);
const script = new URL('./x.lua', import.meta.url);
const program = ['gpu-host/main.ts', "infra/up.ts"];
const notes = ['index.ts', 'main.ts', 'hello.ts', 'test/bench/main.ts', "say 'from' x"];
const lazy = async (): Promise<unknown> => (await import('./lazy.ts')).d as unknown;
`;

describe('a module turned into JavaScript', () => {
  const { text, files, packages } = toJavaScript('runtime/host/a.ts', SOURCE);

  it('refers to converted modules with .js and to other files unchanged', () => {
    for (const written of [
      "from './b.js'",
      "from '#scheduler/c.js'",
      "import '../side.js'",
      "from '../../e.js'",
      "new URL('./matching/worker.js', import.meta.url)",
      "new URL('../../gateway/cli/templates/index.ts', import.meta.url)",
      "new URL('./x.lua', import.meta.url)",
      "'gpu-host/main.js'",
      "['index.ts', 'main.ts', 'hello.ts', 'test/bench/main.ts'",
      "import('./lazy.js')",
    ]) {
      assert.ok(text.includes(written), `${written} is not in\n${text}`);
    }
  });

  it('keeps every line and column', () => {
    assert.equal(text.split('\n').length, SOURCE.split('\n').length);
    const workerLine = (module: string) => module.split('\n').find((line) => line.startsWith('const worker')) ?? '';
    assert.ok(workerLine(SOURCE).includes('new URL'));
    assert.equal(workerLine(text).indexOf('new URL'), workerLine(SOURCE).indexOf('new URL'));
    assert.doesNotMatch(text, /Promise<|: URL|type D/);
  });

  it('lists the files and packages that it imports, without types', () => {
    assert.deepEqual(files.toSorted(), [
      'e.ts',
      'gateway/cli/templates/index.ts',
      'gpu-host/main.ts',
      'runtime/host/b.ts',
      'runtime/host/lazy.ts',
      'runtime/host/matching/worker.ts',
      'runtime/side.ts',
      'scheduler/c.ts',
    ]);
    assert.deepEqual(packages, ['zod']);
  });

  it('lists npm packages, but no names in texts or comments, no Node modules and no modules of the contract', () => {
    const source = `import fs from 'node:fs';\nimport { a } from 'pie:inferlet/types@0.1.0';\nimport { Context } from '@pie/inferlet/raw';
export const text = "import x from 'y'";\nimport 'hono';\n// import z from 'z'\n`;
    assert.deepEqual(packagesOf(source), ['@pie/inferlet', 'hono']);
  });
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  assertBundled,
  bundledFunctions,
  deployRest,
  FIRST_FUNCTIONS,
  firstFunctions,
  STORY_FUNCTION,
} from './bundled.ts';
import { loadConfig } from './config.ts';
import { ROOT } from './install.ts';

test('bundledFunctions lists the first functions first and each function once', () => {
  const names = bundledFunctions({ root: ROOT });
  assert.deepEqual(names.slice(0, FIRST_FUNCTIONS.length), FIRST_FUNCTIONS);
  assert.equal(new Set(names).size, names.length);
  assert.ok(names.length > FIRST_FUNCTIONS.length);
});

test('firstFunctions includes the function of the demo and the functions that the routes of encoders need', () => {
  assert.deepEqual(firstFunctions({ encoders: [] }), [...FIRST_FUNCTIONS, 'story-agent']);
  const encoder = { name: 'm', source: 'file:/m', threads: 0 };
  const encoders = (['embedding', 'reranker', 'embedding'] as const).map((kind) => ({ ...encoder, kind }));
  const added = firstFunctions({ encoders }).filter((name) => !FIRST_FUNCTIONS.includes(name));
  assert.deepEqual(added, ['story-agent', 'openai-embeddings', 'rerank']);
  const known = bundledFunctions({ root: ROOT });
  assert.ok(added.every((name) => known.includes(name)));
});

test('assertBundled names the function that is not bundled, and the bundled ones', () => {
  assertBundled({ root: ROOT }, ['rag', STORY_FUNCTION]);
  assert.throws(
    () => assertBundled({ root: ROOT }, ['rag', 'text-complation']),
    /"text-complation"\. The bundled ones: text-completion, /,
  );
});

test('deployRest reports a program that cannot be started', async () => {
  const config = { ...loadConfig({ PIE_HOME: '/tmp/none' }), root: '/tmp/none/no-such-folder' };
  const lines: string[] = [];
  await deployRest(config, ['rag'], new AbortController().signal, (line) => lines.push(line));
  assert.match(lines.join('\n'), /ENOENT[\s\S]*could not be deployed/);
});

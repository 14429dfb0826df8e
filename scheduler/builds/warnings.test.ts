import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { RuntimeModel } from '../runtimes/types.ts';
import { chosenEngine, type DeployFacts, deployWarnings } from './deployments.ts';

const model = (name: string, traits: string[], pageCount = 64): RuntimeModel => ({
  name,
  contextLength: 256,
  vocabularySize: 100,
  pageSize: 16,
  pageCount,
  traits,
});
const PLAIN = model('plain', ['allocate', 'forward', 'fused']);
const TUNED = model('tuned', ['allocate', 'forward', 'fused', 'introspect'], 128);

const facts = (parts: Partial<DeployFacts>): DeployFacts => ({
  manifest: { name: 'story' },
  imports: [],
  models: [PLAIN, TUNED],
  functions: [],
  pool: null,
  latencyInvocations: 0,
  ...parts,
});

describe('warnings of a deploy', () => {
  const cases: [string, Partial<DeployFacts>, RegExp | null][] = [
    ['no warning for a function that fits', { imports: ['types', 'runtime', 'forward', 'tokenize', 'grammar'] }, null],
    ['no warning for an imported trait that one of several models has', { imports: ['introspect'] }, null],
    ['no warning for an import that the guest library always makes', { imports: ['adapter'] }, null],
    [
      'no warning for images in a function that may load them from hosts',
      { imports: ['input-image'], manifest: { name: 'chat', grants: { imageHosts: true } } },
      null,
    ],
    ['images that no model takes', { imports: ['input-image'] }, /imports "input-image", which none/],
    [
      'an imported trait that no model of the function has',
      { imports: ['forward', 'introspect'], manifest: { name: 'story', model: 'plain' } },
      /imports "introspect", which none of its models supports \(plain\)/,
    ],
    [
      'a model that does not exist',
      { manifest: { name: 'story', model: ['plain', 'gone'] } },
      /No GPU host serves the model "gone" \(served: plain, tuned\)/,
    ],
    [
      'no warning for an encoder',
      { manifest: { name: 'story', model: ['plain', 'minilm'] }, encoders: ['minilm'] },
      null,
    ],
    [
      'no warning for an encoder while no GPU host serves a model',
      { manifest: { name: 'story', model: 'minilm' }, models: [], encoders: ['minilm'] },
      null,
    ],
    ['a platform without models', { models: [], imports: ['introspect'] }, /^No GPU host serves a model now/],
    [
      'more pages than any model has',
      { manifest: { name: 'story', limits: { pages: 200 } } },
      /limits\.pages is 200, but no model that the function may use has more than 128/,
    ],
    [
      'no warning for a whole context, and expected pages that no number bounds',
      { manifest: { name: 'story', limits: { pages: 'context' }, expectedPages: 128 } },
      null,
    ],
    [
      'no warning for as many pages as one model has',
      { manifest: { name: 'story', limits: { pages: 128 }, expectedPages: 128 } },
      null,
    ],
    [
      'no warning for expected pages above `limits.pages`, which bounds them',
      { manifest: { name: 'story', limits: { pages: 128 }, expectedPages: 129 } },
      null,
    ],
    [
      'more expected pages than a model has',
      { manifest: { name: 'story', expectedPages: { plain: 65 } } },
      /expectedPages\.plain is 65, but the model has 64/,
    ],
    [
      'expected pages of a model that the function does not use',
      { manifest: { name: 'story', model: 'plain', expectedPages: { tuned: 1 } } },
      /expectedPages\.tuned names a model that the function may not use/,
    ],
    [
      'children that are not deployed',
      { manifest: { name: 'story', grants: { launch: ['story', 'there', 'gone'] } }, functions: ['there'] },
      /^grants\.launch names "gone"[^"]*$/,
    ],
    [
      'latency targets without a quota',
      { manifest: { name: 'story', latency: { firstTokenMs: 200, perTokenMs: 40 } } },
      /no quota latency-invocations/,
    ],
    [
      'no warning for latency targets within a quota',
      { manifest: { name: 'story', latency: { firstTokenMs: 200, perTokenMs: 40 } }, latencyInvocations: 1 },
      null,
    ],
    [
      'more pooled instances than fit',
      {
        manifest: { name: 'story', pool: { min: 9 } },
        pool: { instanceBytes: 1 << 20, budgetBytes: 8 << 20 },
      },
      /9 ready instances of 1\.0 MiB; a runtime has room for 8 in all \(8 MiB\)/,
    ],
  ];
  for (const [what, parts, expected] of cases) {
    test(expected === null ? what : `a warning for ${what}`, () => {
      const warnings = deployWarnings(facts(parts));
      assert.equal(warnings.length, expected === null ? 0 : 1, warnings.join('\n'));
      if (expected !== null) assert.match(warnings[0] ?? '', expected);
    });
  }
});

test('an engine for new scripts is that of the most runtimes of the oldest contract', () => {
  const runtime = (startedAt: number, contract: string, engine?: string, alive = true) => ({
    ...{ startedAt, contract, alive },
    ...(engine === undefined ? {} : { engine }),
  });
  assert.equal(chosenEngine([]), null);
  assert.equal(chosenEngine([runtime(1, 'a')]), null);
  assert.equal(chosenEngine([runtime(1, 'a', 'x', false), runtime(2, 'b', 'y')]), 'y');
  // A runtime of a later release may not run on the others.
  assert.equal(chosenEngine([runtime(3, 'b', 'new'), runtime(4, 'b', 'new'), runtime(1, 'a', 'old')]), 'old');
  assert.equal(chosenEngine([runtime(1, 'a', 'x'), runtime(2, 'a', 'y'), runtime(3, 'a', 'y')]), 'y');
  assert.equal(
    chosenEngine([runtime(1, 'a', 'y'), runtime(2, 'a', 'x')]),
    chosenEngine([runtime(1, 'a', 'x'), runtime(2, 'a', 'y')]),
  );
});

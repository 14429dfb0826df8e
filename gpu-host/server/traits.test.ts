import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TRAITS } from '../handlers/engine/model.ts';
import { checkTraits, TraitError } from './gpu-host.ts';

/** All traits that a model of this host may have, also those that only some models have. */
const ALL = [...TRAITS, 'adapter', 'input-image'];

test('a model may claim all traits of this host, some of them with those that they need, and unknown traits', () => {
  for (const traits of [
    ALL,
    TRAITS,
    [],
    ['allocate'],
    ['allocate', 'output-text'],
    ['allocate', 'forward'],
    ['sings'],
  ]) {
    checkTraits('m', traits);
  }
});

for (const [trait, needs] of [
  ['forward', ['allocate']],
  ['output-text', ['allocate']],
  ['input-text', ['allocate', 'forward']],
  ['tokenize', ['input-text']],
  ['fused', ['forward', 'input-text', 'output-text']],
  ['penalties', ['fused']],
  ['introspect', ['forward']],
  ['kv-files', ['forward', 'allocate']],
  ['input-image', ['allocate', 'forward']],
  ['adapter', ['forward', 'fused']],
] as const) {
  test(`${trait} is refused without ${needs.join(' or ')}`, () => {
    for (const missing of needs) {
      const claimed = ALL.filter((name) => name !== missing);
      assert.ok(claimed.includes(trait));
      assert.throws(
        () => checkTraits('m', claimed),
        (error) => error instanceof TraitError && new RegExp(`m claims.*${trait} needs ${missing}`).test(error.message),
      );
    }
  });
}

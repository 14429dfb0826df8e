import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TRAITS } from '../handlers/model.ts';
import { checkTraits, TraitError } from './traits.ts';

test('the traits of this host, fewer that stand alone, and unknown ones are fine', () => {
  for (const traits of [TRAITS, [], ['allocate'], ['allocate', 'output-text'], ['allocate', 'forward'], ['sings']]) {
    checkTraits('m', traits);
  }
});

test('the trait adapter needs the trait fused', () => {
  checkTraits('m', [...TRAITS, 'adapter']);
  assert.throws(() => checkTraits('m', ['allocate', 'forward', 'adapter']), /m claims.*adapter needs fused/);
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
] as const) {
  test(`${trait} is refused without ${needs.join(' or ')}`, () => {
    for (const missing of needs) {
      const claimed = TRAITS.filter((name) => name !== missing);
      assert.ok((claimed as readonly string[]).includes(trait));
      assert.throws(
        () => checkTraits('m', claimed),
        (error) => error instanceof TraitError && new RegExp(`m claims.*${trait} needs ${missing}`).test(error.message),
      );
    }
  });
}

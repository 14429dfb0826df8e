import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { benchSchemas, outcomeOf } from './schema-bench.ts';
import { TextMatcher } from './testing/schema-suite.ts';

/** Each such schema is read; with PIE_TEST_ALL, all of them are. */
const STEP = process.env.PIE_TEST_ALL ? 1 : 10;

describe('JSONSchemaBench', () => {
  const schemas = benchSchemas();
  const skip = typeof schemas === 'string' && schemas;

  it('has no invalid instance that a grammar accepts, and hardly a schema or valid instance that one refuses', {
    skip,
  }, () => {
    assert.ok(typeof schemas !== 'string');
    const texts = new TextMatcher();
    const outcomes = schemas.filter((_, index) => index % STEP === 0).map((schema) => outcomeOf(texts, schema));
    const compiled = outcomes.filter(({ refusal }) => refusal === null);
    assert.deepEqual(
      outcomes.flatMap(({ wrong }) => wrong),
      [],
    );
    assert.ok(compiled.length >= 0.99 * outcomes.length, outcomes.flatMap(({ refusal }) => refusal ?? []).join('\n'));
    const valid = outcomes.reduce((all, outcome) => all + outcome.valid, 0);
    const accepted = compiled.reduce((all, outcome) => all + outcome.valid - outcome.refused.length, 0);
    assert.ok(accepted >= 0.995 * valid, outcomes.flatMap(({ file, refused }) => refused.map(() => file)).join('\n'));
  });
});

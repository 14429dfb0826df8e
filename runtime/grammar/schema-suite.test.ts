import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { runSuite, type SchemaOutcome } from './testing/schema-suite.ts';
import { tableOf, writtenTable } from './testing/schema-suite-table.ts';

describe('the JSON-Schema-Test-Suite, draft 2020-12', () => {
  let outcomes: readonly SchemaOutcome[];
  before(() => {
    outcomes = runSuite();
  });

  it('has no invalid instance that a grammar accepts', () => {
    assert.ok(outcomes.length > 400, `only ${outcomes.length} schemas`);
    const wrong = outcomes.filter((outcome) => outcome.wrong.length > 0);
    assert.deepEqual(wrong, []);
  });

  it('has the refusals, late checks and narrowings of the committed table', () => {
    assert.equal(
      tableOf(outcomes),
      writtenTable(),
      'node runtime/grammar/testing/schema-suite-table.ts writes the table',
    );
  });
});

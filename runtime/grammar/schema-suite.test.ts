import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { runSuite, type SchemaOutcome, serialisations, suiteCases, TextMatcher } from './testing/schema-suite.ts';
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

  it('has schemas whose compact grammars accept the same texts as their plain grammars, except texts with whitespace', () => {
    const texts = new TextMatcher();
    const counts = { compact: 0, spaced: 0 };
    for (const [file, { description, schema, tests }] of suiteCases()) {
      if (typeof schema !== 'object') continue;
      const plain = texts.compile(schema);
      const compact = texts.compile({ ...schema, 'x-guidance': { whitespace_flexible: false } });
      assert.equal('refusal' in compact, 'refusal' in plain, `${file}: ${description}`);
      if ('refusal' in compact || 'refusal' in plain) continue;
      for (const text of tests.flatMap(({ data }) => serialisations(data, schema)).filter(plain.accepts)) {
        const outsideStrings = text.replaceAll(/"(?:[^"\\]|\\.)*"/g, '');
        const hasSpace = /\s/.test(outsideStrings);
        assert.equal(compact.accepts(text), !hasSpace, `${file}: ${description}: ${text}`);
        counts[hasSpace ? 'spaced' : 'compact'] += 1;
      }
    }
    assert.ok(counts.compact > 500 && counts.spaced > 500, JSON.stringify(counts));
  });
});

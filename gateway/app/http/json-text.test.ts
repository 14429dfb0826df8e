import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { resultData } from '#scheduler/invocations/types.ts';
import { JsonText, jsonWithOutput, parseWithOutput, resultIn } from './json-text.ts';

const USAGE = { cpuMs: 1.5 };

describe('JsonText', () => {
  it('keeps the text and the value of an output, for any spacing', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.constantFrom(undefined, 1, '\t'), (value, space) => {
        const written = JSON.stringify(value, null, space);
        const { output, usage } = resultIn(resultData(written, USAGE));
        assert.ok(output instanceof JsonText && output.text === written);
        assert.deepEqual(usage, USAGE);
        assert.deepEqual(output.value, JSON.parse(written));
        const outcome = { id: 'inv_1', output, usage };
        const answer = jsonWithOutput(outcome);
        assert.ok(answer.endsWith(`"output":${written}}`));
        assert.deepEqual(JSON.parse(answer), { id: 'inv_1', usage: USAGE, output: JSON.parse(written) });
      }),
      { seed: 9, numRuns: 300 },
    );
    assert.equal(jsonWithOutput({ id: 'inv_1', output: { a: 1 } }), '{"id":"inv_1","output":{"a":1}}');
    assert.equal(jsonWithOutput({ id: 'inv_1' }), '{"id":"inv_1"}');
    assert.deepEqual(resultIn('{"output":1}'), { output: 1, usage: undefined });
  });

  it('takes the place of the top-level output of an answer that parseWithOutput reads, but of no nested output', () => {
    const keys = fc.constantFrom('a', '"', ',"output":', '{"a":1,"output":2}');
    const values = fc.oneof(keys, fc.jsonValue(), fc.record({ a: fc.jsonValue(), output: fc.jsonValue() }));
    fc.assert(
      fc.property(fc.dictionary(keys, values), values, (more, value) => {
        const members = { id: 'inv_1', nested: { ...more, output: 1 }, list: [more], ...more };
        assert.deepEqual(parseWithOutput(jsonWithOutput(members)), JSON.parse(JSON.stringify(members)));
        const output = new JsonText(JSON.stringify(value, null, 1));
        const parsedAnswer = parseWithOutput(jsonWithOutput({ ...members, output }));
        assert.deepEqual(parsedAnswer, { ...JSON.parse(JSON.stringify(members)), output });
      }),
      { seed: 9, numRuns: 300 },
    );
    assert.throws(() => parseWithOutput('<html>'), SyntaxError);
  });

  it('may be nested to any depth', () => {
    const depth = 1_000_000;
    const written = `${'['.repeat(depth)}${']'.repeat(depth)}`;
    const { output } = resultIn(resultData(written, USAGE));
    const answer = `{"id":"inv_1","output":${written}}`;
    assert.equal(jsonWithOutput({ id: 'inv_1', output }), answer);
    assert.deepEqual(parseWithOutput(answer), { id: 'inv_1', output: new JsonText(written) });
  });
});

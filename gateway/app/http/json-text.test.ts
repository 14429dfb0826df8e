import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { resultData } from '#scheduler/invocations/result-event.ts';
import { JsonText, jsonWithOutput, resultIn } from './json-text.ts';

const USAGE = { cpuMs: 1.5 };

describe('an output passed on as JSON text', () => {
  it('equals the parsed output, whatever its spacing', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.constantFrom(undefined, 1, '\t'), (value, space) => {
        const written = JSON.stringify(value, null, space);
        const { output, usage } = resultIn(resultData(written, USAGE));
        assert.ok(output instanceof JsonText && output.text === written);
        assert.deepEqual(usage, USAGE);
        assert.deepEqual(output.value, JSON.parse(written));
        const answer = jsonWithOutput({ id: 'inv_1', output, ...{ usage } });
        assert.ok(answer.endsWith(`"output":${written}}`));
        assert.deepEqual(JSON.parse(answer), { id: 'inv_1', usage: USAGE, output: JSON.parse(written) });
      }),
      { seed: 9, numRuns: 300 },
    );
    assert.equal(jsonWithOutput({ id: 'inv_1', output: { a: 1 } }), '{"id":"inv_1","output":{"a":1}}');
    assert.equal(jsonWithOutput({ id: 'inv_1' }), '{"id":"inv_1"}');
    assert.deepEqual(resultIn('{"output":1}'), { output: 1, usage: undefined });
  });

  it('may be nested to any depth', () => {
    const depth = 1_000_000;
    const written = `${'['.repeat(depth)}${']'.repeat(depth)}`;
    const { output } = resultIn(resultData(written, USAGE));
    assert.equal(jsonWithOutput({ id: 'inv_1', output }), `{"id":"inv_1","output":${written}}`);
  });
});

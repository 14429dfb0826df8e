import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { withChecks } from './check.ts';

/** The module with its checks, but without their import: `seen` checks a value, `compared` a comparison. */
const checked = (code: string): string => {
  const text = withChecks(code, (line, column) => `${line}:${column + 1}`) ?? code;
  return text
    .replace(/^import [^;]*; /, '')
    .replaceAll('__pieTested', 'seen')
    .replaceAll('__pieCompared', 'compared');
};

/** Runs a module's statements, which set `out`. Returns `out` and the places that the checks report. */
function outcome(code: string): { readonly out: unknown; readonly places: readonly string[] } {
  const places: string[] = [];
  const seen = (value: unknown, place: string) => {
    places.push(place);
    return value;
  };
  const compared = (one: unknown, other: unknown, operator: string, ...both: string[]) => {
    places.push(...both);
    return new Function('one', 'other', `return one ${operator} other`)(one, other);
  };
  const out = new Function('seen', 'compared', `'use strict'; let out; ${code}; return out;`)(seen, compared);
  return { out, places };
}

describe('checks of conditions', () => {
  it('surround each value that a condition looks at', () => {
    const cases: readonly [code: string, places: readonly string[]][] = [
      ['if (1) out = 2;', ['1:5']],
      ['out = [0, 1].map((a) => a ? 1 : 2);', ['1:25', '1:25']],
      ['let i = 0;\nwhile (i < 2) i++;\nout = i;', ['2:8', '2:8', '2:8']],
      ['let i = 0; do i++; while (i < 2); out = i;', ['1:27', '1:27']],
      ['for (out = 0; out < 1; out++);', ['1:15', '1:15']],
      ['out = !(1, 0);', ['1:9']],
      ['out = 1 === 2 || 3 != 4;', ['1:7', '1:7', '1:13', '1:18', '1:23']],
      ['out = (1, 2) === (3 + 1) === (5 !== (6));', ['1:8', '1:19', '1:7', '1:31', '1:31', '1:38']],
      ['out = 0 && 1 || 2 || 3;', ['1:7', '1:7', '1:7']],
      ['switch (out = 4, 2) { case 1: out = 5; break; case 2: out = 6; }', ['1:9', '1:28', '1:52']],
      // The condition is checked after its `await`, and `outcome` returns earlier.
      ['const f = async () => { if (await 0) out = 1; }; f(); out = 2;', []],
      ['out = [1 ? [2 ? 3 : 4] : 5];', ['1:8', '1:13']],
    ];
    for (const [code, places] of cases) {
      const { out, places: found } = outcome(checked(code));
      assert.deepEqual(out, outcome(code).out, code);
      assert.deepEqual([...found].sort(), [...places].sort(), code);
    }
  });

  it('report a separate place for each of several values that end at the same character', () => {
    assert.deepEqual(outcome(checked('out = !!0;')).places, ['1:9', '1:8']);
  });

  it('skip comparisons with null and undefined, other expressions, and code that the parser cannot read', () => {
    for (const code of [
      'out = 1 !== undefined',
      'out = null == 2',
      'out = 1 === void 0',
      'out = 1 ?? 2',
      'out = 1 + 2',
    ])
      assert.equal(
        withChecks(code, () => ''),
        undefined,
        code,
      );
    assert.equal(
      withChecks('out = <a/>', () => ''),
      undefined,
    );
  });

  it('are inserted after a shebang line', () => {
    assert.equal(outcome(checked('#!/usr/bin/env node\nif (1) out = 2;')).out, 2);
  });

  it('keep the lines of the source', () => {
    const code = 'let a = 1;\n\nif (a)\n  a = 2;\n';
    assert.equal(withChecks(code, () => '')?.split('\n').length, code.split('\n').length);
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { partsOf, resultData } from './types.ts';

describe('the data of a result', () => {
  it('the data of a result contains the output byte for byte', () => {
    const usage = { cpuMs: 1.5, tokens: 3 };
    for (const output of ['null', '{ "a": 1.0,\n"usage":{"b":2} }', '"}"', '[1e400, 12345678901234567890]']) {
      const data = resultData(output, usage);
      assert.equal(partsOf(data)?.output, output);
      assert.deepEqual(JSON.parse(partsOf(data)?.usage ?? ''), usage);
      assert.deepEqual((JSON.parse(data) as { usage: unknown }).usage, usage);
    }
    // No data of a result, or a result without usage.
    for (const data of ['', '{"code":"trap"}', '{"output":1}']) assert.equal(partsOf(data), null);
  });
});

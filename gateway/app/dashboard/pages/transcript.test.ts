import assert from 'node:assert/strict';
import { test } from 'node:test';
import { resultData } from '#scheduler/invocations/types.ts';
import { jsonText } from '../html/format.ts';
import { transcript } from './transcript.ts';

const nested = (depth: number) => `${'['.repeat(depth)}${']'.repeat(depth)}`;

test('the row of a result shows the beginning of the output, without parsing the output', async (t) => {
  const parse = t.mock.method(JSON, 'parse');
  const rowOf = async (data: string) => (await transcript([{ seq: 3, epoch: 1, event: 'result', data }])).rows;
  assert.match(await rowOf(resultData(nested(1_000_000), { cpuMs: 1 })), />\[{160}…<\/span><\/li>$/);
  // Only the usage in the result event is parsed, a short text.
  for (const { arguments: parsed } of parse.mock.calls) assert.ok(String(parsed[0]).length < 100);
  assert.match(await rowOf('{"output":{"a":1}}'), />\{&quot;a&quot;:1\}<\/span>/);
});

test('readable JSON of deep nesting has little indentation', () => {
  const text = nested(9000);
  assert.ok(jsonText(JSON.parse(text)).length < 2 * text.length);
  assert.equal(jsonText({ a: [1, { b: null }] }), '{\n  "a": [\n    1,\n    {\n      "b": null\n    }\n  ]\n}');
});

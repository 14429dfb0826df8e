import assert from 'node:assert/strict';
import { it } from 'node:test';
import { callBeginnings, markerTokenOf } from './marker.ts';

it('markerTokenOf finds the special token that begins a call, also when text follows it in the marker', () => {
  const [end, calls, text] = [2, 5, 1501];
  const find = (...ids: number[]) => markerTokenOf(ids, (token) => token !== text, [end]);
  assert.equal(find(calls), calls);
  assert.equal(find(calls, text), calls);
  assert.equal(find(calls, text, calls), calls);
  assert.equal(find(text, calls), undefined);
  assert.equal(find(), undefined);
  // This token also ends texts without a call, so it does not reveal a call.
  assert.equal(find(end, text), undefined);
});

it('callBeginnings includes the name of a function when the marker looks like the beginning of JSON', () => {
  const hermes = { open: '\n<tool_call>\n{"name": "', middle: '", "arguments": ', marker: '<tool_call>' };
  assert.deepEqual(callBeginnings(hermes, ['look', 'go']), ['<tool_call>']);
  const llama = { open: '{"name": "', middle: '", "parameters": ', marker: '{"name": "' };
  assert.deepEqual(callBeginnings(llama, ['look', 'go']), ['{"name": "look"', '{"name": "go"']);
  const list = { open: ' [{"name": "', middle: '", "arguments": ', marker: '[' };
  assert.deepEqual(callBeginnings(list, ['look']), ['[{"name": "look"']);
});

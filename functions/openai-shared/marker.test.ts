import assert from 'node:assert/strict';
import { it } from 'node:test';
import { callBeginnings, markerTokenOf } from './marker.ts';

it('finds a call by the special token that begins it, also when more text belongs to its marker', () => {
  const [end, calls, text] = [2, 5, 1501];
  const find = (...ids: number[]) => markerTokenOf(ids, (token) => token !== text, [end]);
  assert.equal(find(calls), calls);
  assert.equal(find(calls, text), calls);
  assert.equal(find(calls, text, calls), calls);
  assert.equal(find(text, calls), undefined);
  assert.equal(find(), undefined);
  // Every text ends with this token, those without a call, too.
  assert.equal(find(end, text), undefined);
});

it('tells a call that begins like JSON from JSON by the name of a function', () => {
  const hermes = { open: '\n<tool_call>\n{"name": "', middle: '", "arguments": ', marker: '<tool_call>' };
  assert.deepEqual(callBeginnings(hermes, ['look', 'go']), ['<tool_call>']);
  const llama = { open: '{"name": "', middle: '", "parameters": ', marker: '{"name": "' };
  assert.deepEqual(callBeginnings(llama, ['look', 'go']), ['{"name": "look"', '{"name": "go"']);
  const list = { open: ' [{"name": "', middle: '", "arguments": ', marker: '[' };
  assert.deepEqual(callBeginnings(list, ['look']), ['[{"name": "look"']);
});

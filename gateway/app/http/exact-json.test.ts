import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { exactJson, roundsIntegers } from './json.ts';

it('roundsIntegers tells integers that JavaScript rounds from all other numbers', () => {
  for (const kept of ['1', '[1.0,-0,0.1,1e30]', '"9007199254740993"', '{"a":[9007199254740992]}'])
    assert.equal(roundsIntegers(kept), false, kept);
  for (const rounded of ['9007199254740993', '{"a":[-9007199254740993]}', '9'.repeat(400)])
    assert.equal(roundsIntegers(rounded), true, rounded);
});

describe('exactJson', () => {
  it('keeps the text of numbers, and leaves all other values as they are', () => {
    for (const text of [
      '{"id":9007199254740993,"more":[{"share":1.0},-0,1e400,0.1,-12],"text":"9007199254740993","none":null,"is":true}',
      '18446744073709551615',
    ])
      assert.equal(JSON.stringify(exactJson(text)), text);
    assert.deepEqual(exactJson('{"a":[1.5,"b",{}]}'), { a: [1.5, 'b', {}] });
    assert.throws(() => exactJson('{"a":01}'), SyntaxError);
  });
});

it('exactJson reads the keys of its own text, not those of a text that JSON.parse read before', () => {
  // A bug of V8, see `jsonValue`: the key `\` of this text could appear in place of the key `é` of the next text.
  JSON.parse('{"type":1,"\\\\":1}');
  assert.equal(JSON.stringify(exactJson('{"type":1,"\\u00e9":1e2}')), '{"type":1,"é":1e2}');
});

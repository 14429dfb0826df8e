import assert from 'node:assert/strict';
import { it } from 'node:test';
import { accepts } from '../testing/accepts.ts';

it('resolves references to names with a percent sign or a space', () => {
  const schema = {
    properties: {
      'a b': { properties: { s: { type: 'string' } }, required: ['s'] },
      'a%20b': { properties: { n: { type: 'integer' } }, required: ['n'] },
      c: { $ref: '#/properties/a%20b' },
      d: { $ref: '#/properties/a%2520b' },
    },
  };
  assert.ok(accepts(schema, '{"a b":{"s":"x"},"a%20b":{"n":1},"c":{"s":"y"},"d":{"n":2}}'));
  assert.ok(!accepts(schema, '{"c":{"n":1}}'));
  assert.ok(!accepts(schema, '{"d":{"s":"y"}}'));
});

it('does not confuse two schemas that both hold with one schema whose pointer is their two pointers joined by a space', () => {
  const spelledLikeBoth = { properties: { b: { properties: { x: { anyOf: [{ type: 'null' }] } } } } };
  const schema = {
    properties: {
      a: { properties: { x: { type: 'integer' }, 'x #': spelledLikeBoth } },
      b: { properties: { x: { minimum: 3 } } },
      both: { allOf: [{ $ref: '#/properties/a' }, { $ref: '#/properties/b' }] },
    },
  };
  assert.ok(accepts(schema, '{"a":{"x":1,"x #":{"b":{"x":null}}},"both":{"x":3}}'));
  assert.ok(!accepts(schema, '{"both":{"x":null}}'));
  assert.ok(!accepts(schema, '{"both":{"x":2}}'));
});

it('refuses references into a list by a key that is no index', () => {
  for (const $ref of ['#/allOf/', '#/allOf/x', '#/allOf/-1']) {
    assert.throws(() => accepts({ allOf: [true], properties: { a: { $ref } } }, '{}'), /points to nothing/);
  }
});

import assert from 'node:assert/strict';
import { it } from 'node:test';
import { accepts } from '../testing/accepts.ts';
import { GrammarError } from './error.ts';
import { jsonSchemaGrammar } from './json-schema.ts';

it('refuses listed integers that reading rounds, at any depth', () => {
  const sources: [source: string, at: string][] = [
    ['{"const":9007199254740993}', '#/const'],
    ['{"enum":[1,9223372036854775807]}', '#/enum'],
    ['{"items":{"const":{"a":[{"b":-9007199254740993}]}}}', '#/items/const'],
    ['{"not":{"not":{"const":9007199254740993}}}', '#/not/not/const'],
  ];
  for (const [source, at] of sources) {
    assert.throws(
      () => jsonSchemaGrammar(source),
      (error) =>
        error instanceof GrammarError && error.message.includes(`${at}: `) && /past ±2\^53/.test(error.message),
      source,
    );
  }
  assert.ok(accepts({ enum: [9007199254740991, 0.1, { a: [-9007199254740991] }] }, '{"a":[-9007199254740991]}'));
});

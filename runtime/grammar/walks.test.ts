import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Validator } from '@cfworker/json-schema';
import { pullModel } from '#gpu-host/models/pull.ts';
import { loadTokenizer } from '#gpu-host/models/tokenizer.ts';
import { Random } from '#test/harness/random.ts';
import { GrammarService, type GrammarSource } from './service.ts';
import { recognizes } from './testing/recognize.ts';
import { randomSchema } from './testing/schemas.ts';
import { type Exits, exitsOf, value, walk } from './testing/walk.ts';
import { grammarOf } from './translate/source.ts';
import type { GrammarModel } from './vocabulary.ts';

const SEED = 20261120;
const SCHEMAS = process.env.PIE_TEST_ALL ? 100 : 40;

const REGEXES = [
  '(yes|no|maybe)( please)?',
  '^[A-Z][a-z]{2,8}( [A-Z][a-z]{2,8})*$',
  '\\d{3}-\\d{4}|\\(\\d{3}\\) \\d{3}-\\d{4}',
  '([a-f0-9]{2}:){5}[a-f0-9]{2}',
  '(?:[^,\\n]*,){2}[^,\\n]*',
  '((a|b){1,3}c?){2,4}',
  '[éàü日本😀]{1,6}\\.?',
  '(<(b|i)>\\w+</(b|i)>\\s?){1,3}',
];

const EBNFS = [
  'root ::= expression\nexpression ::= term (("+" | "-") term)*\nterm ::= factor (("*" | "/") factor)*\nfactor ::= [0-9]+ | "(" expression ")"',
  'root ::= item ("," root)? # right recursion\nitem ::= [a-z]{1,3}',
  'root ::= "move " ("north" | "south") (" " [1-9] [0-9]? " steps")? "." \n',
  'root ::= a b | b\na ::= "x" a "y" | ""\nb ::= [^xy\\n]{1,4} | "\\u00e9\\x41"',
];

for (const name of ['stories15m', 'minimind2-small']) {
  describe(`random walks over the masks of ${name}, seed ${SEED}`, () => {
    let service: GrammarService;
    let model: GrammarModel;
    let exits: Exits;
    before(async () => {
      service = new GrammarService({ compileMs: 20_000, operationMs: 20_000 });
      const tokenizer = await loadTokenizer((await pullModel(name)).directory);
      model = { name, tokenizer, vocabularySize: tokenizer.vocabularySize };
      exits = exitsOf(model.tokenizer);
    });
    after(() => service.close());

    async function texts(source: GrammarSource, random: Random, count: number): Promise<string[]> {
      const compiled = value(service.compile('tenant', model, source));
      const found: string[] = [];
      for (let i = 0; i < count; i += 1) {
        const matcher = compiled.matcher();
        const bytes = await walk(matcher, model.tokenizer, exits, random);
        found.push(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
        matcher.drop();
      }
      value(await compiled.ready());
      compiled.drop();
      return found;
    }

    it(`end in JSON that matches the schema, for ${SCHEMAS} random schemas`, async () => {
      for (let index = 0; index < SCHEMAS; index += 1) {
        const random = new Random(SEED + index);
        const schema = randomSchema(random);
        const written = JSON.stringify(schema);
        const validator = new Validator(JSON.parse(written), '2020-12');
        for (const text of await texts({ tag: 'json-schema', val: written }, random, 2)) {
          const { valid, errors } = validator.validate(JSON.parse(text));
          assert.ok(valid, `schema ${index}: ${written}\nallows ${text}\n${JSON.stringify(errors.at(-1))}`);
        }
      }
    });

    it('end in JSON', async () => {
      for (const text of await texts({ tag: 'json' }, new Random(SEED), 20)) JSON.parse(text);
    });

    for (const [index, val] of REGEXES.entries()) {
      it(`match ${val}`, async () => {
        const whole = new RegExp(`^(?:${val})$`, 'u');
        for (const text of await texts({ tag: 'regex', val }, new Random(SEED + index), 8)) assert.match(text, whole);
      });
    }

    for (const [index, val] of EBNFS.entries()) {
      it(`end in a text of the language ${val.split('\n')[0]}`, async () => {
        const grammar = grammarOf({ tag: 'ebnf', val });
        for (const text of await texts({ tag: 'ebnf', val }, new Random(SEED + index), 8)) {
          assert.ok(recognizes(grammar, text), JSON.stringify(text));
        }
      });
    }
  });
}

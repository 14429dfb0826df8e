import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Random } from '#test/harness/random.ts';
import { vocabularyFrom } from '../testing/vocabularies.ts';
import { allowed } from '../testing/walk.ts';
import { translate } from '../translate/source.ts';
import { buildAutomaton } from './automaton.ts';
import { type Place, Places } from './places.ts';
import { stringPlaces, TokenTree } from './token-tree.ts';

const SEED = 20261122;
/**
 * Schemas with strings of all kinds. At least `least` places of the random texts must lie within shared strings: their places are those that all
 * grammars of a vocabulary share (`stringPlaces`).
 */
const SCHEMAS: [schema: unknown, least: number][] = [
  [{ type: 'string' }, 20],
  [{ type: 'array', items: { type: ['string', 'null'] } }, 20],
  [{ type: 'object', additionalProperties: { type: 'string' } }, 20],
  [{ type: 'object', properties: { a: true, ab: true, '': true }, additionalProperties: { type: 'string' } }, 20],
  [
    { properties: { a: { type: 'string', maxLength: 90 }, b: { type: 'string', minLength: 3 } }, required: ['a', 'b'] },
    20,
  ],
  [{ type: 'string', minLength: 5, maxLength: 70 }, 20],
  [{ type: 'array', items: { type: 'string', maxLength: 3 } }, 20],
  [{ anyOf: [{ type: 'string' }, { type: 'string', maxLength: 100 }] }, 20],
  [{ enum: ['abc', 'ab"c', 'é'] }, 0],
  [{ type: 'string', pattern: '^a*"?b' }, 20],
  [{ type: 'array', items: { type: 'string', pattern: '^(a|b|é){1,12}$', minLength: 4 } }, 20],
  [{ type: 'array', items: { type: 'string', not: { const: 'ab' } } }, 20],
  [{ patternProperties: { '^a': { type: 'string' }, b$: { maxLength: 5 } }, additionalProperties: false }, 20],
  [{ type: 'string', pattern: '^(a|(b|é){2,3}){1,4}$' }, 20],
  [{ anyOf: [{ type: 'string', pattern: '^ab' }, { const: 'abc' }, { type: 'array', items: { pattern: 'b$' } }] }, 0],
  [true, 20],
];
const PIECES = [
  'a',
  'b',
  'abc',
  '"',
  '",',
  '"}',
  '":',
  '"]',
  '\\',
  '\\n',
  '\\"',
  'a"',
  'a",',
  '": "',
  '", "',
  'é',
  '😀',
];
const OTHERS = ['{', '}', '[', ']', ',', ':', ' ', '1', 'null', '\n', '{"', '["', '[[', 'a"}', '\\u00', 'u', 'dé"'];

describe('masks within strings', () => {
  for (const longest of [10, 100]) {
    const long = Buffer.from('x'.repeat(longest));
    const halves = [Buffer.from('é').subarray(0, 1), Buffer.from('é').subarray(1), Buffer.from('a😀').subarray(0, 3)];
    const tokens = [...[...PIECES, ...OTHERS].map((piece) => Buffer.from(piece)), long, ...halves];
    const tree = new TokenTree(vocabularyFrom(tokens, []));
    const strings = stringPlaces();

    for (const [schema, least] of SCHEMAS) {
      it(`are equal with and without shared strings (tokens of up to ${longest} bytes, ${JSON.stringify(schema)}, seed ${SEED})`, () => {
        const random = new Random(SEED);
        const automaton = buildAutomaton(translate({ tag: 'json-schema', val: JSON.stringify(schema) }));
        const plain = new Places(automaton);
        const sharing = new Places(automaton, undefined, strings);
        let placesInStrings = 0;
        for (let walk = 0; walk < 20; walk += 1) {
          let [place, sharedPlace]: (Place | null)[] = [plain.start, sharing.start];
          for (let step = 0; step < 60 && place && sharedPlace; step += 1) {
            const expected = tree.mask(plain, place);
            if (sharedPlace.within) placesInStrings += 1;
            assert.deepEqual(allowed(tree.mask(sharing, sharedPlace)), allowed(expected), `walk ${walk}, step ${step}`);
            assert.equal(sharedPlace.mayEnd, place.mayEnd);
            const ids = allowed(expected);
            if (ids.length === 0) break;
            for (const byte of tokens[random.pick(ids)] ?? []) {
              // `only` is the byte that must come next, if there is just one.
              assert.equal(sharedPlace && sharing.only(sharedPlace), place && plain.only(place));
              place = place && plain.after(place, byte);
              sharedPlace = sharedPlace && sharing.after(sharedPlace, byte);
            }
          }
          assert.equal(sharedPlace === null, place === null);
        }
        assert.ok(placesInStrings >= least, `${placesInStrings} places in strings`);
      });
    }
  }
});

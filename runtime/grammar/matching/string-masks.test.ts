import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Random } from '../testing/random.ts';
import { vocabularyFrom } from '../testing/vocabularies.ts';
import { allowed } from '../testing/walk.ts';
import { translate } from '../translate/source.ts';
import { buildAutomaton, LONGEST_LIKE } from './automaton.ts';
import { type Place, Places } from './places.ts';
import { TokenTree } from './token-tree.ts';

const SEED = 20261122;
/** Schemas with strings of all kinds, and how many of their places at least have a mask of `StringMasks`. */
const SCHEMAS: [schema: unknown, least: number][] = [
  [{ type: 'string' }, 20],
  [{ type: 'array', items: { type: ['string', 'null'] } }, 20],
  [{ type: 'object', additionalProperties: { type: 'string' } }, 20],
  [
    { properties: { a: { type: 'string', maxLength: 90 }, b: { type: 'string', minLength: 3 } }, required: ['a', 'b'] },
    20,
  ],
  [{ type: 'string', minLength: 5, maxLength: 70 }, 0],
  [{ anyOf: [{ type: 'string' }, { type: 'string', maxLength: 100 }] }, 0],
  [{ enum: ['abc', 'ab"c', 'é'] }, 0],
  [{ type: 'string', pattern: '^a*"?b' }, 0],
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

    for (const [schema, least] of SCHEMAS) {
      it(`equal a walk over all tokens, of ${longest} bytes at most, for ${JSON.stringify(schema)}, seed ${SEED}`, () => {
        const random = new Random(SEED);
        const places = new Places(buildAutomaton(translate({ tag: 'json-schema', val: JSON.stringify(schema) })));
        let used = 0;
        for (let walk = 0; walk < 20; walk += 1) {
          let place: Place | null = places.start;
          for (let step = 0; step < 60 && place; step += 1) {
            const expected = tree.mask(places, place);
            const quick = tree.strings.mask(places, place);
            if (quick) {
              used += 1;
              assert.deepEqual(allowed(quick), allowed(expected), `walk ${walk}, step ${step}`);
            }
            const ids = allowed(expected);
            if (ids.length === 0) break;
            for (const byte of tokens[random.pick(ids)] ?? []) place = place && places.after(place, byte);
          }
        }
        // Strings with bounds are like others only for short tokens.
        const isBounded = JSON.stringify(schema).includes('Length');
        assert.ok(used >= (longest > LONGEST_LIKE && isBounded ? 0 : least), `${used} masks`);
      });
    }
  }
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Random } from '#test/harness/random.ts';
import { recognizes } from '../testing/recognize.ts';
import { GrammarError } from '../translate/expression.ts';
import { grammarOf, translate } from '../translate/source.ts';
import { buildAutomaton } from './automaton.ts';
import { MemoryBound, type Place, Places } from './places.ts';

const SEED = 5;
/** The size that `Places` counts for a place's list of successors: 256 pointers of 8 bytes. */
const SUCCESSORS_BYTES = 2048;
const RULES = ['root', 'x', 'y', 'z'];
const LETTERS = ['a', 'b', '(', ')', 'é'];

function randomBody(random: Random, depth: number): string {
  const options = Array.from({ length: random.integer(1, 3) }, () =>
    Array.from({ length: random.integer(0, 3) }, () => {
      const item =
        depth > 0 && random.chance(0.2)
          ? `(${randomBody(random, depth - 1)})`
          : random.pick([
              // The other rules are picked twice as often as the root.
              ...RULES.slice(1),
              ...RULES,
              ...LETTERS.map((letter) => `"${letter}"`),
              '"ab"',
              '[ab]',
              '[^b(]',
            ]);
      return item + random.pick(['', '', '', '', '?', '*', '+', '{2}', '{0,2}', '{1,3}']);
    }).join(' '),
  );
  return options.join(' | ');
}

function matches(places: Places, text: string): boolean {
  let place: Place | null = places.start;
  for (const byte of Buffer.from(text)) {
    place = places.after(place, byte);
    if (place === null) return false;
  }
  return place.mayEnd;
}

describe('places', () => {
  it(`match the same texts as the simple recognizer of the tests, for random and ambiguous context-free grammars, seed ${SEED}`, () => {
    const random = new Random(SEED);
    let grammars = 0;
    let matched = 0;
    for (let index = 0; index < 3000 && grammars < 300; index += 1) {
      const val = RULES.map((name) => `${name} ::= ${randomBody(random, 1)}`).join('\n');
      let places: Places;
      try {
        places = new Places(buildAutomaton(translate({ tag: 'ebnf', val })));
      } catch (error) {
        assert.ok(error instanceof GrammarError, String(error));
        continue;
      }
      grammars += 1;
      const grammar = grammarOf({ tag: 'ebnf', val });
      for (let sample = 0; sample < 15; sample += 1) {
        const text = Array.from({ length: random.integer(0, 6) }, () => random.pick(LETTERS)).join('');
        const expected = recognizes(grammar, text);
        assert.equal(matches(places, text), expected, `${val}\non ${JSON.stringify(text)}`);
        if (expected) matched += 1;
      }
    }
    assert.ok(grammars >= 100 && matched > 200, `too few samples: ${grammars} grammars and ${matched} matches`);
  });

  it('have ways that grow at most linearly with the depth of ambiguous grammars', () => {
    const ambiguous = [
      'root ::= "a" root "b" | "a" root "c" | "a" root | ""',
      'root ::= sum\nsum ::= product "+" sum | product "-" sum | product\nproduct ::= item "*" product | item "/" product | item\nitem ::= "a" | "(" sum ")"',
    ];
    for (const [index, val] of ambiguous.entries()) {
      const places = new Places(buildAutomaton(translate({ tag: 'ebnf', val })));
      let place: Place | null = places.start;
      const depths = 500;
      for (let depth = 0; depth < depths; depth += 1)
        place = place && places.after(place, (index === 0 ? 'a' : '(').charCodeAt(0));
      // In the first grammar, each open level may still be closed in three ways, so the ways grow with the depth.
      assert.ok(place && place.ways.length <= 3 * depths, `${place?.ways.length} ways`);
    }
  });

  it('are the same before each item of a list, however the grammar writes the list', () => {
    for (const val of ['root ::= [ab]*', 'root ::= "" | [ab] root', 'root ::= x root | ""\nx ::= "a" | "b"']) {
      const places = new Places(buildAutomaton(translate({ tag: 'ebnf', val })));
      const first = places.after(places.start, 0x61);
      assert.ok(first);
      assert.equal(places.after(first, 0x62), first, val);
    }
  });

  it('stay within their memory bound, however long the text', () => {
    const properties = Object.fromEntries(
      Array.from({ length: 10 }, (_, index) => [`key${index}`, { type: 'integer' }]),
    );
    const schema = { type: 'array', maxItems: 1000, items: { type: 'object', properties } };
    const mostBytes = 4 << 20;
    const places = new Places(
      buildAutomaton(translate({ tag: 'json-schema', val: JSON.stringify(schema) })),
      new MemoryBound(mostBytes),
    );
    const item = JSON.stringify(Object.fromEntries(Object.keys(properties).map((name, index) => [name, index])));
    const text = Buffer.from(`[${Array(300).fill(item).join(', ')}]`.replaceAll(',"', ', "').replaceAll('":', '": '));
    const path: Place[] = [places.start];
    for (const byte of text) {
      const place = places.after(path.at(-1) ?? assert.fail(), byte);
      path.push(place ?? assert.fail(`${JSON.stringify(String.fromCharCode(byte))} is refused`));
    }
    assert.ok(path.at(-1)?.mayEnd);
    // The text goes on from each place of the path, although the bound made some places forget what follows them.
    for (const [index, byte] of text.entries()) {
      assert.deepEqual(places.after(path[index] as Place, byte)?.mayEnd, path[index + 1]?.mayEnd);
    }
    const reachable = new Set(path);
    for (const place of reachable) for (const next of place.next ?? []) if (next) reachable.add(next);
    const placesWithNext = [...reachable].filter(({ next }) => next).length;
    assert.ok(path.length > 10 * (mostBytes / SUCCESSORS_BYTES), `too few places: ${path.length}`);
    assert.ok(placesWithNext <= mostBytes / SUCCESSORS_BYTES, `${placesWithNext} places have successors`);
  });

  it('are refused for grammars with too many alternatives or too many states', () => {
    const wide = `root ::= ${Array.from({ length: 5000 }, (_, index) => `r${index}`).join(' | ')}\n${Array.from({ length: 5000 }, (_, index) => `r${index} ::= [a]+ "${index}"`).join('\n')}`;
    const large = `root ::= ${Array.from({ length: 60 }, () => '("ab" "cd"?){9000}').join(' ')}`;
    for (const val of [wide, large]) {
      assert.throws(() => new Places(buildAutomaton(translate({ tag: 'ebnf', val }))), { tag: 'limit-exceeded' });
    }
  });
});

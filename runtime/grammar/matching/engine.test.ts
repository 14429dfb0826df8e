import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { Random } from '#test/harness/random.ts';
import type { Answer } from '../messages.ts';
import { vocabularyFrom } from '../testing/vocabularies.ts';
import { allowed } from '../testing/walk.ts';
import type { GrammarSource } from '../translate/source.ts';
import { Engine } from './engine.ts';

const SEED = 42;
/** The test skips a language with this many texts or more. */
const MAX_TEXTS = 2000;
const LETTERS = ['a', 'b', 'é', '日', '😀', '"', ','];

/** A random finite language: its regular expression and all of its texts. */
function language(random: Random, depth: number): { pattern: string; texts: Set<string> } {
  const options = Array.from({ length: random.integer(1, 3) }, () => {
    let pattern = '';
    let texts = new Set(['']);
    for (let part = random.integer(0, 3); part > 0; part -= 1) {
      const inner = depth > 0 && random.chance(0.4) ? language(random, depth - 1) : letters(random);
      const [min, max] = random.pick([
        [1, 1],
        [1, 1],
        [0, 1],
        [0, 2],
        [2, 3],
      ] as const);
      pattern += `(${inner.pattern}){${min},${max}}`;
      texts = product(texts, power(inner.texts, min, max));
    }
    return { pattern, texts };
  });
  return {
    pattern: options.map(({ pattern }) => pattern).join('|'),
    texts: new Set(options.flatMap(({ texts }) => [...texts])),
  };
}

function letters(random: Random): { pattern: string; texts: Set<string> } {
  const chosenLetters = random.shuffled(LETTERS).slice(0, random.integer(1, 4));
  return { pattern: `[${chosenLetters.join('')}]`, texts: new Set(chosenLetters) };
}

function power(texts: ReadonlySet<string>, min: number, max: number): Set<string> {
  const found = new Set<string>();
  let current = new Set(['']);
  for (let count = 0; count <= max; count += 1) {
    if (count >= min) for (const text of current) found.add(text);
    current = product(current, texts);
  }
  return found;
}

function product(a: ReadonlySet<string>, b: ReadonlySet<string>): Set<string> {
  const found = new Set<string>();
  for (const first of a) for (const second of b) if (found.size <= MAX_TEXTS) found.add(first + second);
  return found;
}

/** Pieces of the letters' UTF-8, whole and broken, and bytes that are not valid UTF-8. */
function randomTokens(random: Random): Buffer[] {
  const tokens = Array.from({ length: 90 }, () => {
    const bytes = Buffer.from(Array.from({ length: random.integer(1, 4) }, () => random.pick(LETTERS)).join(''));
    const from = random.integer(0, bytes.length - 1);
    return bytes.subarray(from, random.integer(from + 1, bytes.length));
  });
  const single = Array.from({ length: 256 }, (_, byte) => Buffer.of(byte));
  return [
    Buffer.alloc(0),
    ...tokens,
    ...random.shuffled(single).slice(0, 40),
    ...LETTERS.map((letter) => Buffer.from(letter)),
  ];
}

describe(`Engine, seed ${SEED}`, () => {
  let engine: Engine;
  let lastId = 0;
  before(() => {
    engine = new Engine();
  });

  function ask(request: Parameters<Engine['answer']>[0]): Answer {
    const reply = engine.answer(request);
    assert.ok(reply.tag === 'ok', JSON.stringify(reply));
    return reply.val;
  }

  function open(grammar: number, tokens: readonly number[]): number {
    lastId += 1;
    ask({ kind: 'open', matcher: lastId, grammar, tokens: Uint32Array.from(tokens) });
    return lastId;
  }

  function compile(vocabulary: number, source: GrammarSource): number {
    lastId += 1;
    ask({ kind: 'compile', grammar: lastId, vocabulary, source });
    return lastId;
  }

  it('gives masks of exactly the tokens after which a text of the language is still possible', () => {
    const random = new Random(SEED);
    let steps = 0;
    for (let index = 0; index < 120; index += 1) {
      const { pattern, texts } = language(random, 1);
      if (texts.size >= MAX_TEXTS) continue;
      const tokens = randomTokens(random);
      // The last tokens are letters: a grammar must not read an end-of-sequence token as its bytes.
      const eos = [tokens.length - 3, tokens.length - 1];
      const vocabulary = vocabularyFrom(tokens, eos);
      ask({ kind: 'vocabulary', vocabulary });
      const grammar = compile(vocabulary.id, { tag: 'regex', val: pattern });
      const matcher = open(grammar, []);
      const words = [...texts].map((text) => Buffer.from(text));
      let prefix = Buffer.alloc(0);
      const taken: number[] = [];
      for (;;) {
        steps += 1;
        const remainders = words
          .filter((word) => word.subarray(0, prefix.length).equals(prefix))
          .map((word) => word.subarray(prefix.length));
        const mayEnd = remainders.some((rest) => rest.length === 0);
        const expected = tokens.flatMap((token, id) => {
          if (eos.includes(id)) return mayEnd ? [id] : [];
          return token.length > 0 && remainders.some((rest) => rest.subarray(0, token.length).equals(token))
            ? [id]
            : [];
        });
        const reply = engine.answer({ kind: 'mask', matcher });
        if (reply.tag === 'err') {
          // No token spells the next bytes of any text.
          assert.deepEqual([expected, mayEnd], [[], false], `${pattern} after ${prefix}: ${reply.val.val}`);
          break;
        }
        assert.ok(reply.val instanceof Uint32Array);
        assert.equal(reply.val.length, Math.ceil(tokens.length / 32));
        assert.deepEqual(allowed(reply.val), expected, `${pattern} after ${JSON.stringify(String(prefix))}`);
        const nonEndIds = expected.filter((id) => !eos.includes(id));
        assert.deepEqual(ask({ kind: 'status', matcher }), { mayEnd, mustEnd: mayEnd && nonEndIds.length === 0 });
        for (const id of random.shuffled(tokens.map((_, token) => token)).slice(0, 5)) {
          const fresh = open(grammar, taken);
          assert.equal(ask({ kind: 'accept', matcher: fresh, tokens: Uint32Array.of(id) }), expected.includes(id));
          ask({ kind: 'close', matcher: fresh });
        }
        if (nonEndIds.length === 0) break;
        const token = random.pick(nonEndIds);
        assert.equal(ask({ kind: 'accept', matcher, tokens: Uint32Array.of(token) }), true);
        taken.push(token);
        prefix = Buffer.concat([prefix, tokens[token] ?? Buffer.alloc(0)]);
      }
      ask({ kind: 'close', matcher });
      ask({ kind: 'forget', grammar });
    }
    assert.ok(steps > 200, `too few steps: ${steps}`);
  });

  it('gives masks of context-free grammars that equal the tokens that a fresh matcher accepts', () => {
    const random = new Random(SEED);
    const tokens = [
      Buffer.alloc(0),
      ...['(', ')', '((', '))', ')(', 'a', 'aa', 'a)', '(a', ',', ',(', '),', 'b', '()'].map((text) =>
        Buffer.from(text),
      ),
      Buffer.from('end'),
    ];
    const eos = tokens.length - 1;
    const vocabulary = vocabularyFrom(tokens, [eos]);
    ask({ kind: 'vocabulary', vocabulary });
    const sources = [
      'root ::= "(" list? ")"\nlist ::= item ("," item)*\nitem ::= "a" | root',
      'root ::= "(" root ")" root? | "a" root? | "a" "a" root',
      'root ::= "a" root "b" | "a" "b" | ","',
      'root ::= ("a" | "aa"){3,5} ("," "(" ")"){0,2}',
    ];
    for (const val of sources) {
      const grammar = compile(vocabulary.id, { tag: 'ebnf', val });
      for (let walk = 0; walk < 10; walk += 1) {
        const taken: number[] = [];
        for (let step = 0; step < 12; step += 1) {
          const matcher = open(grammar, taken);
          const mask = ask({ kind: 'mask', matcher });
          assert.ok(mask instanceof Uint32Array);
          const accepted: number[] = [];
          for (const id of tokens.keys()) {
            if (ask({ kind: 'accept', matcher, tokens: Uint32Array.of(id) }) !== true) continue;
            accepted.push(id);
            ask({ kind: 'rollback', matcher, tokens: 1 });
          }
          ask({ kind: 'close', matcher });
          assert.deepEqual(allowed(mask), accepted, `${val} after ${taken}`);
          const nonEndIds = accepted.filter((id) => id !== eos);
          if (nonEndIds.length === 0) break;
          taken.push(random.pick(nonEndIds));
        }
      }
      ask({ kind: 'forget', grammar });
    }
  });

  it('gives the mask after each guess, and masks of every token after a guess that does not fit', () => {
    const vocabulary = vocabularyFrom(
      [...'abc'].map((letter) => Buffer.from(letter)),
      [],
    );
    ask({ kind: 'vocabulary', vocabulary });
    const matcher = open(compile(vocabulary.id, { tag: 'regex', val: 'a(b|c)a' }), []);
    const masks = (...guesses: number[]) => {
      const reply = ask({ kind: 'masks', matcher, guesses: Uint32Array.from(guesses) });
      assert.ok(reply instanceof Uint32Array);
      return [...reply];
    };
    const [a, bOrC, every] = [0b001, 0b110, 0xffff_ffff];
    assert.deepEqual(masks(), [a]);
    assert.deepEqual(masks(0, 2, 1, 0), [a, bOrC, a, every, every]);
    // The text must end after the third guess, and the model has no end-of-sequence token.
    assert.deepEqual(masks(0, 1, 0, 0), [a, bOrC, a, every, every]);
    assert.deepEqual(masks(99), [a, every]);
    assert.deepEqual(masks(), [a], 'the matcher has accepted a guess');
  });

  it('gives masks of every token after guesses that make a text fail the check at the end with no way to go on', () => {
    const vocabulary = vocabularyFrom(
      ['[', '"a"', ', ', ']', '</s>'].map((text) => Buffer.from(text)),
      [4],
    );
    ask({ kind: 'vocabulary', vocabulary });
    const schema = { type: 'array', items: { type: 'string', pattern: '^a$' }, uniqueItems: true };
    const matcher = open(compile(vocabulary.id, { tag: 'json-schema', val: JSON.stringify(schema) }), []);
    // The guesses spell `["a", "a"]` and the end. The mask after `]` is the sixth, because the first mask precedes all guesses.
    const masks = ask({ kind: 'masks', matcher, guesses: Uint32Array.of(0, 1, 2, 1, 3, 4) });
    assert.ok(masks instanceof Uint32Array);
    assert.equal(masks.length, 7);
    assert.deepEqual([...masks.slice(5)], [0xffff_ffff, 0xffff_ffff]);
    // The matcher also refuses this text after `accept`. After a rollback, a text without the duplicate passes.
    ask({ kind: 'accept', matcher, tokens: Uint32Array.of(0, 1, 2, 1, 3) });
    const stuck = engine.answer({ kind: 'status', matcher });
    assert.equal(stuck.tag === 'err' && stuck.val.tag, 'invalid-argument');
    ask({ kind: 'rollback', matcher, tokens: 3 });
    ask({ kind: 'accept', matcher, tokens: Uint32Array.of(3) });
    assert.deepEqual(ask({ kind: 'status', matcher }), { mayEnd: true, mustEnd: true });
  });

  it('accepts no token of a list when a limit stops the matcher within the list', () => {
    // After `ab`, a text can be read in 5000 ways; the matcher follows at most 4096.
    const rules = Array.from({ length: 5000 }, (_, index) => `r${index}`);
    const val = `root ::= "a" "b" (${rules.join(' | ')})\n${rules.map((rule) => `${rule} ::= [c]+ "${rule}"`).join('\n')}`;
    const vocabulary = vocabularyFrom([Buffer.from('a'), Buffer.from('b')], []);
    ask({ kind: 'vocabulary', vocabulary });
    const grammar = compile(vocabulary.id, { tag: 'ebnf', val });
    const matcher = open(grammar, []);
    const refused = engine.answer({ kind: 'accept', matcher, tokens: Uint32Array.of(0, 1) });
    assert.equal(refused.tag === 'err' && refused.val.tag, 'limit-exceeded');
    const back = engine.answer({ kind: 'rollback', matcher, tokens: 1 });
    assert.equal(back.tag === 'err' && back.val.tag, 'invalid-argument');
  });

  it('gives an empty mask at the end of a text for a model without end-of-sequence tokens, while the status reports the end', () => {
    const vocabulary = vocabularyFrom([Buffer.from('a')], []);
    ask({ kind: 'vocabulary', vocabulary });
    const matcher = open(compile(vocabulary.id, { tag: 'regex', val: 'a' }), [0]);
    assert.deepEqual(ask({ kind: 'mask', matcher }), new Uint32Array(1));
    assert.deepEqual(ask({ kind: 'status', matcher }), { mayEnd: true, mustEnd: true });
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Random } from '#test/harness/random.ts';
import type { Reply, Request } from '../messages.ts';
import { vocabularyFrom } from '../testing/vocabularies.ts';
import type { GrammarSource } from '../translate/source.ts';
import { Engine } from './engine.ts';

const SEED = 20261130;
/** Tokens of one byte, and tokens that end, begin or hold several keys. */
const WORDS = [
  '"a"',
  '"a',
  'a"',
  'a":',
  '":1,"a":',
  '{"a":',
  '"}',
  ',"b":',
  '{"a":1,"a',
  '"b":{"a":1},"',
  '\\u0061',
  '\\u0061"',
];
const TOKENS = [
  ...Array.from({ length: 256 }, (_, byte) => Buffer.of(byte)),
  ...WORDS.map((word) => Buffer.from(word)),
];
const END = TOKENS.length;

class Texts {
  readonly #engine = new Engine();

  constructor(source: GrammarSource) {
    const vocabulary = vocabularyFrom([...TOKENS, Buffer.from('end')], [END]);
    this.ask({ kind: 'vocabulary', vocabulary });
    this.ask({ kind: 'compile', grammar: 1, vocabulary: vocabulary.id, source });
    this.open();
  }

  open(): void {
    this.ask({ kind: 'open', matcher: 1, grammar: 1, tokens: new Uint32Array() });
  }

  ask(request: Request): Extract<Reply, { tag: 'ok' }>['val'] {
    const reply = this.#engine.answer(request);
    if (reply.tag === 'err') assert.fail(JSON.stringify([request.kind, reply.val]));
    return reply.val;
  }

  accepts(text: string): boolean {
    return this.ask({ kind: 'accept', matcher: 1, tokens: Uint32Array.from(Buffer.from(text)) }) === true;
  }

  rollback(tokens: number): void {
    this.ask({ kind: 'rollback', matcher: 1, tokens });
  }

  get allowed(): Set<number> {
    const mask = this.ask({ kind: 'mask', matcher: 1 });
    assert.ok(mask instanceof Uint32Array);
    return new Set(
      Array.from({ length: END + 1 }, (_, id) => id).filter((id) => ((mask[id >>> 5] ?? 0) >>> (id & 31)) & 1),
    );
  }

  take(token: number): boolean {
    return this.ask({ kind: 'accept', matcher: 1, tokens: Uint32Array.of(token) }) === true;
  }
}

const OPEN: GrammarSource = { tag: 'json-schema', val: '{"type":"object"}' };

describe('keys of an object', () => {
  it('do not repeat, however they are written', () => {
    const texts = new Texts(OPEN);
    assert.ok(texts.accepts('{"a":1,"b":{"a":1},"c":["a","a",{"a":1}],"'));
    for (const again of ['a":', '\\u0061":', 'b":', 'c":']) {
      assert.ok(!texts.accepts(again), again);
    }
    for (const other of ['ab":', '":', 'd":', 'A":']) {
      assert.ok(texts.accepts(other), other);
      texts.rollback(other.length);
    }
    assert.ok(new Texts({ tag: 'json', val: undefined } as GrammarSource).accepts('{"x":{"a":1},"a":2,"x'));
    assert.ok(!new Texts({ tag: 'json', val: undefined } as GrammarSource).accepts('{"x":1,"x"'));
  });

  it('do not repeat within a token of several characters or keys', () => {
    const repeating: [before: string, word: string, isRefused: boolean][] = [
      ['{"a":1,', '"a"', true],
      ['{"b":1,', '"a"', false],
      ['{"a":1,', '"a', false],
      ['{"a":1,"', 'a"', true],
      ['{"a":1,"a', '\\u0061"', false],
      ['{"a":1,"', '\\u0061"', true],
      ['{"a":1,"x', '":1,"a":', true],
      ['{"b":1,"x', '":1,"a":', false],
      ['{"b":1', ',"b":', true],
      ['{"b":1,"c":{"d":1', ',"b":', false],
      ['{"b":1,"c":', '{"a":', false],
    ];
    for (const [before, word, isRefused] of repeating) {
      const texts = new Texts(OPEN);
      assert.ok(texts.accepts(before));
      const token = 256 + WORDS.indexOf(word);
      const fits = texts.take(token);
      assert.equal(fits, !isRefused, `${before} ${word}`);
    }
  });

  it('may repeat once the first of them is taken back', () => {
    const texts = new Texts(OPEN);
    assert.ok(texts.accepts('{"a":1,"b":2'));
    texts.rollback('"b":2'.length);
    assert.ok(!texts.accepts('"a"'));
    assert.ok(texts.accepts('"b":3'));
  });

  it('may repeat where a pattern allows one name only, so that no text gets stuck', () => {
    const val = JSON.stringify({
      patternProperties: { '^a$': { type: 'null' } },
      additionalProperties: false,
      minProperties: 1,
    });
    const texts = new Texts({ tag: 'json-schema', val });
    assert.ok(texts.accepts('{"a":null,"a'));
    assert.ok(texts.allowed.size > 0);
  });

  it(`are the same in masks and in what a matcher accepts, seed ${SEED}`, () => {
    const random = new Random(SEED);
    const texts = new Texts(OPEN);
    let refusedCount = 0;
    for (let walk = 0; walk < 30; walk += 1) {
      texts.open();
      let written = '';
      for (let step = 0; step < 25; step += 1) {
        const { allowed } = texts;
        for (const [index, word] of WORDS.entries()) {
          const token = 256 + index;
          const isAccepted = texts.take(token);
          assert.equal(isAccepted, allowed.has(token), `${written} ${word}`);
          if (isAccepted) texts.rollback(1);
          else refusedCount += 1;
        }
        const ids = [...allowed].filter(
          (id) => id !== END && (id >= 256 || '{}[]:,"ab1 '.includes(String.fromCharCode(id))),
        );
        if (ids.length === 0) break;
        const token = random.pick(ids);
        assert.ok(texts.take(token));
        written += TOKENS[token];
      }
    }
    assert.ok(refusedCount > 1000);
  });
});

describe('the members of an object', () => {
  it(`stand in any order, each at most once, seed ${SEED}`, () => {
    const names = ['a', 'ab', 'abc', 'b', 'é', 'x y'];
    const random = new Random(SEED);
    for (let index = 0; index < 60; index += 1) {
      const declared = random.shuffled(names).slice(0, random.integer(1, 5));
      const required = declared.filter(() => random.chance(0.4));
      const isOpen = random.chance(0.5);
      const [least, most] = [random.integer(0, 2), random.integer(2, 6)];
      const schema = {
        type: 'object',
        properties: Object.fromEntries(declared.map((name) => [name, { type: 'null' }])),
        required,
        minProperties: least,
        maxProperties: most,
        ...(!isOpen && { additionalProperties: false }),
      };
      if (required.length > most || (!isOpen && declared.length < least)) continue;
      const texts = new Texts({ tag: 'json-schema', val: JSON.stringify(schema) });
      for (let text = 0; text < 30; text += 1) {
        texts.open();
        const written = random.shuffled(names).slice(0, random.integer(0, names.length));
        const fits =
          required.every((name) => written.includes(name)) &&
          written.length >= least &&
          written.length <= most &&
          (isOpen || written.every((name) => declared.includes(name)));
        const json = `{${written.map((name) => `${JSON.stringify(name)}:null`).join(random.pick([',', ', ']))}}`;
        const isAccepted = texts.accepts(json) && texts.take(END);
        assert.equal(isAccepted, fits, `${JSON.stringify(schema)}\n${json}`);
      }
    }
  });
});

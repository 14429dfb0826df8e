import assert from 'node:assert/strict';
import { isUtf8 } from 'node:buffer';
import { after, before, describe, it } from 'node:test';
import { pullModel } from '#gpu-host/models/pull.ts';
import { loadTokenizer, type Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { ok } from '#gpu-host/protocol/errors.ts';
import { Random } from '#test/harness/random.ts';
import { Engine } from './matching/engine.ts';
import type { Answer } from './messages.ts';
import { GrammarAccount, GrammarService, type GrammarSource, type Spelling } from './service.ts';
import { randomSchema } from './testing/schemas.ts';
import { vocabularyFrom } from './testing/vocabularies.ts';
import { allowed, type Exits, exitsOf, value, walk } from './testing/walk.ts';
import type { GrammarModel } from './vocabulary.ts';

const SEED = 20261122;
const SCHEMAS = process.env.PIE_TEST_ALL ? 150 : 30;
/** Number of random texts that are tried behind each forced text. */
const CONTINUATIONS = 2;
/** Steps of one walk. Each step jumps and then accepts one token. */
const STEPS = 60;
const MAX_TOKENS = 100_000;

const SOURCES: readonly GrammarSource[] = [
  { tag: 'regex', val: 'The (quick|quiet) brown fox(es)? jumped over [0-9]{1,3} lazy dogs\\.' },
  { tag: 'regex', val: 'größe: [0-9]+ 😀😀 (日本語|日曜日)!' },
  { tag: 'ebnf', val: 'root ::= "function " name "() {\\n    return " [0-9]+ ";\\n}\\n"\nname ::= [a-z]{1,6}' },
  { tag: 'regex', val: 'aaaaaaaaaaaaaaaaaaaa(a{10}|b)' },
];

for (const name of ['stories15m', 'minimind2-small']) {
  describe(`forced tokens of ${name}, seed ${SEED}`, () => {
    let service: GrammarService;
    let tokenizer: Tokenizer;
    let model: GrammarModel;
    let spelling: Spelling;
    let exits: Exits;
    before(async () => {
      service = new GrammarService({ compileMs: 20_000, operationMs: 20_000 });
      tokenizer = await loadTokenizer((await pullModel(name)).directory);
      model = { name, tokenizer, vocabularySize: tokenizer.vocabularySize };
      spelling = { tokenizer, encode: (text) => ok(tokenizer.encode(text)) };
      exits = exitsOf(tokenizer);
    });
    after(() => service.close());

    const bytesOf = (tokens: readonly number[]) => Buffer.concat(tokens.map((token) => tokenizer.tokenBytes(token)));

    /**
     * The tokens of a text that continues another one. The line break stands for the earlier text: the tokenizers of both models begin a new token
     * behind it.
     */
    function natural(text: string): number[] {
      return [...tokenizer.encode(`\n${text}`)].slice(tokenizer.encode('\n').length);
    }

    /** Walks through a grammar, jumps at each step, and checks each jump. Returns the numbers of jumped and of chosen tokens. */
    async function check(source: GrammarSource, random: Random): Promise<{ jumped: number; stepped: number }> {
      const oracle = new ByteOracle(source);
      const compiled = value(service.compile('tenant', model, source));
      const matcher = compiled.matcher();
      const taken: number[] = [];
      let jumped = 0;
      const ends = new Set(tokenizer.special.eos);
      for (let step = 0; step < STEPS; step += 1) {
        const stepwise = matcher.fork();
        const tokens = [...value(await matcher.jump(spelling, MAX_TOKENS))];
        // A matcher that goes on step by step must allow each forced token, and its jump of one token must return that token.
        for (const [i, token] of tokens.entries()) {
          assert.ok(allowed(value(await stepwise.mask())).includes(token), `the mask forbids token ${token}`);
          // When the tokens so far end within a character, they form no text, so a jump from there returns no token.
          const endsCharacter = isUtf8(bytesOf(tokens.slice(0, i)));
          assert.deepEqual([...value(await stepwise.jump(spelling, 1))], endsCharacter ? [token] : []);
          if (!endsCharacter) assert.equal(value(await stepwise.accept(Uint32Array.of(token))), true);
        }
        assert.deepEqual([...value(await stepwise.jump(spelling, MAX_TOKENS))], []);
        stepwise.drop();
        const forced = oracle.forced(bytesOf(taken));
        const text = bytesOf(tokens);
        assert.ok(text.equals(forced.subarray(0, text.length)), `${text} is not forced, ${forced} is`);
        if (tokens.length > 0) {
          for (let i = 0; i < CONTINUATIONS; i += 1) {
            const rest = matcher.fork();
            const whole = `${text}${await walk(rest, tokenizer, exits, random)}`;
            rest.drop();
            assert.deepEqual(tokens, natural(whole).slice(0, tokens.length), `${text}: ${JSON.stringify(whole)}`);
          }
        }
        jumped += tokens.length;
        taken.push(...tokens);
        const ids = allowed(value(await matcher.mask()));
        const nonEndIds = ids.filter((id) => !ends.has(id));
        if (nonEndIds.length === 0) {
          assert.equal(text.length, forced.length, 'a jump to the end of the text leaves out no part of it');
          break;
        }
        const token = random.pick(nonEndIds);
        assert.equal(value(await matcher.accept(Uint32Array.of(token))), true);
        taken.push(token);
      }
      matcher.drop();
      compiled.drop();
      return { jumped, stepped: taken.length - jumped };
    }

    it('equal those of decoding step by step, and those of the whole text whatever continuation follows', async () => {
      const counts = { jumped: 0, stepped: 0 };
      for (let index = 0; index < SOURCES.length + SCHEMAS; index += 1) {
        const random = new Random(SEED + index);
        const source = SOURCES[index] ?? ({ tag: 'json-schema', val: JSON.stringify(randomSchema(random)) } as const);
        const { jumped, stepped } = await check(source, random);
        counts.jumped += jumped;
        counts.stepped += stepped;
      }
      assert.ok(counts.jumped > 60, JSON.stringify(counts));
    });

    it('are all tokens when the grammar allows only one text', async () => {
      const text = 'Once upon a time, größe 日本 😀: {"a": [1, 2]}\n\tend.';
      const compiled = value(
        service.compile('tenant', model, { tag: 'ebnf', val: `root ::= ${JSON.stringify(text)}` }),
      );
      const matcher = compiled.matcher();
      assert.deepEqual([...value(await matcher.jump(spelling, MAX_TOKENS))], natural(text));
      assert.deepEqual(value(await matcher.status()), { mayEnd: true, mustEnd: true });
      value(await matcher.rollback(2));
      assert.deepEqual([...value(await matcher.jump(spelling, 1))], natural(text).slice(-2, -1));
    });

    it('are charged to the account, and each turn of the event loop tokenizes one text', async () => {
      let charged = 0;
      let usedUp = false;
      const account = new GrammarAccount({
        charge: (cpuMs) => {
          charged += cpuMs;
        },
        usedUp: () => usedUp,
      });
      let spent = 0;
      const turns: number[] = [];
      const measured: Spelling = {
        tokenizer,
        encode: (text) => {
          const from = performance.now();
          turns.push(performance.nodeTiming.uvMetricsInfo.loopCount);
          let tokens = ok(tokenizer.encode(text));
          // Takes 20 ms, far more than the worker's time, which is charged too. If one text were not charged, the sum would therefore be too small.
          while (performance.now() < from + 20) tokens = ok(tokenizer.encode(text));
          spent += performance.now() - from;
          return tokens;
        },
      };
      const source = { tag: 'regex', val: 'She was happ(y because|en)' } as const;
      const compiled = value(service.compile('tenant', model, source, account));
      const [matcher, other] = [compiled.matcher(), compiled.matcher()];
      value(await compiled.ready());
      charged = 0;
      const jumps = await Promise.all([matcher.jump(measured, MAX_TOKENS), other.jump(measured, MAX_TOKENS)]);
      assert.ok(jumps.every((tokens) => value(tokens).length > 0));
      assert.ok(turns.length > 2);
      assert.equal(new Set(turns).size, turns.length);
      assert.ok(charged >= spent, `${charged} of ${spent} ms are charged`);
      usedUp = true;
      const refused = await matcher.jump(measured, MAX_TOKENS);
      assert.equal(refused.tag === 'err' && refused.val.tag, 'limit-exceeded');
      for (const held of [matcher, other, compiled]) held.drop();
    });

    it('are empty for a maximum of 0 tokens, and then cost no call of the worker or the tokenizer', async () => {
      /** Calls of the tokenizer and charges for the worker's time. */
      let calls = 0;
      const count = () => {
        calls += 1;
      };
      const account = new GrammarAccount({ charge: count, usedUp: () => false });
      const counted: Spelling = {
        tokenizer,
        encode: (text) => {
          count();
          return spelling.encode(text);
        },
      };
      const compiled = value(service.compile('tenant', model, { tag: 'regex', val: 'of none' }, account));
      value(await compiled.ready());
      const matcher = compiled.matcher();
      value(await matcher.status());
      calls = 0;
      assert.deepEqual([...value(await matcher.jump(counted, 0))], []);
      assert.equal(calls, 0);
      assert.ok(value(await matcher.jump(counted, 1)).length === 1 && calls > 0);
      for (const held of [matcher, compiled]) held.drop();
    });

    it('leave out a token that a continuation may lengthen', async () => {
      const [happy, happen] = [natural('She was happy because'), natural('She was happen')];
      const firstDifference = happy.findIndex((token, i) => token !== happen[i]);
      const common = happy.slice(0, firstDifference);
      const compiled = value(service.compile('tenant', model, { tag: 'regex', val: 'She was happ(y because|en)' }));
      const matcher = compiled.matcher();
      assert.deepEqual([...value(await matcher.jump(spelling, MAX_TOKENS))], common);
      assert.ok(common.length > 1);
    });
  });
}

/** Id of the token that ends a text, in the vocabulary of `ByteOracle`. */
const END = 256;

/** Finds the bytes that a grammar forces after a text, by the masks of a vocabulary in which the token `b` is the byte `b`. */
class ByteOracle {
  static readonly #SINGLE = vocabularyFrom(
    [...Array.from({ length: END }, (_, byte) => Buffer.of(byte)), Buffer.of(0)],
    [END],
  );
  readonly #engine = new Engine();

  constructor(source: GrammarSource) {
    this.#ask({ kind: 'vocabulary', vocabulary: ByteOracle.#SINGLE });
    this.#ask({ kind: 'compile', grammar: 1, vocabulary: ByteOracle.#SINGLE.id, source });
  }

  /** Returns the bytes that must follow `taken`. */
  forced(taken: Uint8Array): Buffer {
    this.#ask({ kind: 'open', matcher: 1, grammar: 1, tokens: Uint32Array.from(taken) });
    const bytes: number[] = [];
    for (;;) {
      const [only, ...more] = allowed(this.#ask({ kind: 'mask', matcher: 1 }) as Uint32Array);
      if (only === undefined || more.length > 0 || only === END) return Buffer.from(bytes);
      bytes.push(only);
      this.#ask({ kind: 'accept', matcher: 1, tokens: Uint32Array.of(only) });
    }
  }

  #ask(request: Parameters<Engine['answer']>[0]): Answer {
    const reply = this.#engine.answer(request);
    assert.ok(reply.tag === 'ok', JSON.stringify(reply));
    return reply.val;
  }
}

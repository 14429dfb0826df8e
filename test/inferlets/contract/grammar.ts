/** Cases of `grammar`. */
import { detokenize, model, tokenize } from '@pie/inferlet';
import { Compiled, grammar, Matcher, type Queue, settle } from '@pie/inferlet/raw';
import { type Cases, NO_MODEL, newQueue, on } from './case.ts';
import { asked, PROMPT, prompted, RUN, tokensOf } from './compute.ts';

const compiled = (pattern = '[0-9]{3}') => new Compiled(model().name, { tag: 'regex', val: pattern });
const digit = (): number => tokenize('7').at(-1) ?? 0;
const letter = (): number => tokenize('a').at(-1) ?? 0;

const step = (queue: Queue, matcher: Matcher, rows = 1) =>
  grammar.step(queue, matcher, {
    tokens: PROMPT,
    positions: PROMPT.map((_, i) => i),
    inPages: [],
    outPages: [],
    rows,
    output: { tag: 'sample', val: { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 0 } },
  });

const verify = (queue: Queue, matcher: Matcher, guesses: readonly number[]) => {
  const tokens = [...PROMPT, ...guesses];
  return grammar.verify(queue, matcher, undefined, {
    tokens,
    positions: tokens.map((_, i) => i),
    inPages: [],
    outPages: [],
    rows: guesses.length + 1,
    output: { tag: 'sample', val: { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 0 } },
  });
};

async function verified(source: Compiled, guesses: readonly number[]) {
  const matcher = new Matcher(source);
  try {
    return await asked((queue) => verify(queue, matcher, guesses));
  } finally {
    matcher.drop();
  }
}

async function stepped(rows = 1) {
  const matcher = new Matcher(compiled());
  try {
    return await asked((queue) => step(queue, matcher, rows));
  } finally {
    matcher.drop();
  }
}

async function ran(matcher: Matcher, maxTokens: number) {
  using queue = newQueue();
  return await tokensOf(grammar.startRun(queue, matcher, { ...RUN, pages: await prompted(queue), maxTokens }));
}

export const grammarCases: Cases = {
  'grammar.[constructor]compiled': {
    ok: async () => {
      const sources = [
        { tag: 'json-schema', val: '{"type":"integer"}' },
        { tag: 'regex', val: 'a|b' },
        { tag: 'ebnf', val: 'root ::= "a"' },
        { tag: 'json' },
      ] as const;
      for (const source of sources) await on(new Compiled(model().name, source), (grammar) => grammar.ready());
    },
    fails: { 'not-found': () => on(new Compiled(NO_MODEL, { tag: 'json' }), (grammar) => grammar.ready()) },
  },
  'grammar.[method]compiled.ready': {
    ok: () => on(compiled(), (grammar) => grammar.ready()),
    fails: { 'invalid-argument': () => on(compiled('('), (grammar) => grammar.ready()) },
  },
  'grammar.[constructor]matcher': {
    ok: () => on(new Matcher(compiled()), (matcher) => matcher.status()),
    fails: { 'invalid-argument': () => on(new Matcher(compiled('(')), (matcher) => matcher.status()) },
  },
  'grammar.[method]matcher.accept': {
    ok: async () => {
      const matcher = new Matcher(compiled());
      return (await settle(matcher.accept([digit()]))) && !(await settle(matcher.accept([letter()])));
    },
    fails: { 'invalid-argument': () => on(new Matcher(compiled()), (matcher) => matcher.accept([1_000_000])) },
  },
  'grammar.[method]matcher.jump': {
    ok: async () => {
      const matcher = new Matcher(compiled('Once upon a time(a|b)'));
      const tokens = await settle(matcher.jump(100));
      const text = detokenize(tokens);
      // `jump` leaves out tokens at the end that the following text may change. A model with one token for each byte
      // has no such tokens, so `text` may be the whole beginning.
      return text !== '' && 'Once upon a time'.startsWith(text) && (await settle(matcher.jump(100))).length === 0;
    },
    fails: { 'invalid-argument': () => on(new Matcher(compiled('(')), (matcher) => matcher.jump(100)) },
  },
  'grammar.[method]matcher.mask': {
    ok: async () => {
      const mask = await on(new Matcher(compiled()), (matcher) => matcher.mask());
      const allows = (token: number) => (((mask[token >>> 5] ?? 0) >>> (token & 31)) & 1) === 1;
      return allows(digit()) && !allows(letter());
    },
  },
  'grammar.[method]matcher.status': {
    ok: async () => {
      const matcher = new Matcher(compiled('[0-9]'));
      const before = await settle(matcher.status());
      await settle(matcher.accept([digit()]));
      const after = await settle(matcher.status());
      return !before.mayEnd && after.mayEnd && after.mustEnd;
    },
  },
  'grammar.[method]matcher.fork': {
    ok: async () => {
      const matcher = new Matcher(compiled('[0-9]'));
      const fork = matcher.fork();
      await settle(fork.accept([digit()]));
      return (await settle(fork.status())).mustEnd && !(await settle(matcher.status())).mayEnd;
    },
  },
  'grammar.[method]matcher.rollback': {
    ok: async () => {
      const matcher = new Matcher(compiled('[0-9]'));
      await settle(matcher.accept([digit()]));
      await settle(matcher.rollback(1));
      return await settle(matcher.accept([digit()]));
    },
    fails: { 'invalid-argument': () => on(new Matcher(compiled()), (matcher) => matcher.rollback(3)) },
  },
  'grammar.step': {
    ok: async () => {
      const { tokens } = await stepped();
      return on(new Matcher(compiled()), (matcher) => matcher.accept(tokens));
    },
    fails: {
      'invalid-argument': () => stepped(2),
    },
  },
  'grammar.start-run': {
    ok: async () => {
      const matcher = new Matcher(compiled('[0-9]{2}'));
      const tokens = await ran(matcher, 8);
      return /^ ?[0-9]{2}$/.test(detokenize(tokens)) && (await settle(matcher.status())).mustEnd;
    },
    fails: { 'invalid-argument': () => ran(new Matcher(compiled()), 0) },
  },
  'grammar.verify': {
    ok: async () => {
      const matcher = new Matcher(compiled());
      const { tokens } = await asked((queue) => verify(queue, matcher, [digit(), letter(), letter()]));
      // `tokens` has one token after the prompt and one after each guess. The grammar masks the first two, so they are digits. The second guess
      // is a letter, which the grammar excludes, so the tokens after it have no mask. The matcher has accepted none of the guesses.
      const [first = 0, second = 0] = tokens;
      return tokens.length === 4 && (await settle(matcher.accept([first, second])));
    },
    fails: {
      'limit-exceeded': () => verified(compiled(), Array(64).fill(digit())),
      'invalid-argument': () => verified(compiled('('), []),
    },
  },
};

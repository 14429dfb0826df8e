import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { callFunction, failingFunction } from '#test/harness/functions.ts';

/** Nested clauses, which no regular expression can match. */
const CLAUSES = `
# the little girl who saw a cat, was happy.
root ::= " " who did "."
who ::= ("the " | "a ") ("little " | "big ")? ("girl" | "boy" | "cat" | "dog") (" who" did ",")?
did ::= " saw " who | " had " who | " was " ("happy" | "sad" | "very "+ "tired")
`;

/** The same grammar, as the alternatives of each rule. A symbol that is not the name of a rule is a terminal. */
const RULES: Readonly<Record<string, readonly (readonly string[])[]>> = {
  root: [[' ', 'who', 'did', '.']],
  who: [['article', 'size', 'noun', 'clause']],
  article: [['the '], ['a ']],
  size: [[], ['little '], ['big ']],
  noun: [['girl'], ['boy'], ['cat'], ['dog']],
  clause: [[], [' who', 'did', ',']],
  did: [
    [' saw ', 'who'],
    [' had ', 'who'],
    [' was ', 'mood'],
  ],
  mood: [['happy'], ['sad'], ['very ', 'more', 'tired']],
  more: [[], ['very ', 'more']],
};

/** True when the grammar derives `text` from these symbols. With `cut`, the beginning of a derived text is enough. */
function fits(text: string, cut: boolean, symbols: readonly string[] = ['root']): boolean {
  const [symbol, ...behind] = symbols;
  if (symbol === undefined) return text === '';
  if (cut && text === '') return true;
  const alternatives = RULES[symbol];
  if (alternatives) return alternatives.some((alternative) => fits(text, cut, [...alternative, ...behind]));
  if (cut && symbol.startsWith(text)) return true;
  return text.startsWith(symbol) && fits(text.slice(symbol.length), cut, behind);
}

/** Asserts that a generation is a text of the grammar, or the beginning of one when its tokens were used up. */
function assertFits({ text, finishReason }: { text: string; finishReason: string }): void {
  assert.ok(text.length > 0);
  assert.ok(fits(text, finishReason === 'max-tokens'), text);
}

describe('ebnf-decoding', () => {
  it('gives the same tokens with both engines at temperature 0, and a text of the grammar', async () => {
    for (const prompt of ['Once upon a time,', 'Lily was at home. One day,']) {
      const [platform, guest] = await Promise.all(
        ['platform', 'guest'].map((engine) =>
          callFunction('ebnf-decoding', { grammar: CLAUSES, prompt, engine, temperature: 0, maxTokens: 60 }),
        ),
      );
      assert.deepEqual(guest?.output.tokens, platform?.output.tokens);
      assertFits(platform?.output);
    }
  });

  it('gives a text of the grammar when it samples, and each engine completes at least one text', async () => {
    const ended: string[] = [];
    await Promise.all(
      ['platform', 'guest'].flatMap((engine) =>
        [1, 2, 3, 4].map(async (seed) => {
          const input = { grammar: CLAUSES, prompt: 'One day,', engine, seed, maxTokens: 120 };
          const { output } = await callFunction('ebnf-decoding', input);
          assertFits(output);
          if (output.finishReason !== 'max-tokens') ended.push(engine);
        }),
      ),
    );
    assert.ok(ended.includes('platform') && ended.includes('guest'), ended.join());
  });

  it('refuses broken grammars', async () => {
    for (const engine of ['platform', 'guest']) {
      const { message } = await failingFunction('ebnf-decoding', { grammar: 'root ::= other', engine });
      assert.match(message, /^invalid-argument: .*other/);
    }
    for (const item of ['"\\x"', '[b-a]']) {
      const { message } = await failingFunction('ebnf-decoding', { grammar: `root ::= ${item}`, engine: 'guest' });
      assert.ok(message.startsWith(`invalid-argument: The grammar cannot be read at ${item}: `), message);
    }
  });
});

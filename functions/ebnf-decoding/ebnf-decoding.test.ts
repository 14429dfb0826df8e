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

/** Parses one `who` from `at`; returns the position after it, or -1. */
function readWho(text: string, at: number): number {
  const place = behind(text, at, /(the|a) ((little|big) )?(girl|boy|cat|dog)/y);
  if (place < 0 || !text.startsWith(' who', place)) return place;
  const end = readDid(text, place + 4);
  return end >= 0 && text[end] === ',' ? end + 1 : -1;
}

function readDid(text: string, at: number): number {
  const object = behind(text, at, / (saw|had) /y);
  return object >= 0 ? readWho(text, object) : behind(text, at, / was (happy|sad|(very )+tired)/y);
}

function behind(text: string, at: number, pattern: RegExp): number {
  pattern.lastIndex = at;
  return pattern.test(text) ? pattern.lastIndex : -1;
}

function isSentence(text: string): boolean {
  const who = text.startsWith(' ') ? readWho(text, 1) : -1;
  const did = who < 0 ? -1 : readDid(text, who);
  return did >= 0 && text.slice(did) === '.';
}

describe('ebnf-decoding', () => {
  it('gives the same tokens with both engines when greedy, and a text of the grammar if it ends', async () => {
    for (const prompt of ['Once upon a time,', 'Lily was at home. One day,']) {
      const [platform, guest] = await Promise.all(
        ['platform', 'guest'].map((engine) =>
          callFunction('ebnf-decoding', { grammar: CLAUSES, prompt, engine, temperature: 0, maxTokens: 60 }),
        ),
      );
      assert.deepEqual(guest?.output.tokens, platform?.output.tokens);
      if (platform?.output.finishReason !== 'max-tokens')
        assert.ok(isSentence(platform?.output.text), platform?.output.text);
    }
  });

  it('gives a text of the grammar when it samples and ends', async () => {
    const ended: string[] = [];
    await Promise.all(
      ['platform', 'guest'].flatMap((engine) =>
        [1, 2, 3, 4].map(async (seed) => {
          const input = { grammar: CLAUSES, prompt: 'One day,', engine, seed, maxTokens: 120 };
          const { text, finishReason } = (await callFunction('ebnf-decoding', input)).output;
          if (finishReason === 'max-tokens') return;
          assert.ok(isSentence(text), text);
          ended.push(engine);
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
  });
});

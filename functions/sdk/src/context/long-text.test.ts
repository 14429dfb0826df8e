import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { pullModel } from '../../../../gpu-host/models/pull.ts';
import { loadTokenizer } from '../../../../gpu-host/models/tokenizer.ts';
import { tokenizeLong } from './long-text.ts';

/** Most characters of one call of the platform (`runtime/host/text/tokenize.ts`). */
const MAX_CALL_CHARACTERS = 131_072;

const file = (name: string) => readFileSync(new URL(`../../../../${name}`, import.meta.url), 'utf8');

/** Text of base64 without a border at which it could be cut. */
function base64(length: number): string {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789';
  let state = 7;
  return Array.from({ length }, () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return alphabet[(state >>> 16) % alphabet.length];
  }).join('');
}

/** A text of at least `length` characters from random pieces, so that words, numbers, marks and spaces of all kinds meet. */
function mixed(seed: number, length: number): string {
  const pieces = [
    'word',
    'Größe',
    '12',
    '  ',
    '\n',
    '\n\n',
    ' ',
    ', ',
    '。',
    '中文',
    '😀',
    '"',
    '(',
    '\t',
    '\u0301',
    "'s",
    '<|im_end|>',
  ];
  let state = seed;
  let text = '';
  while (text.length < length) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    text += pieces[(state >>> 16) % pieces.length];
  }
  return text;
}

for (const name of ['minimind2-small', 'stories15m']) {
  test(`tokenizeLong returns the tokens that the tokenizer of ${name} gives for the whole text`, async () => {
    const words = {
      'one word': base64(32_768),
      'a long word': base64(70_000),
      'a long word in a text': `${base64(20_000)} ${base64(70_000)} ${base64(60_000)}`,
      'a long word near the end of a line': `${'a line, '.repeat(400)}\n${base64(130_000)}`,
      'a letter without end': 'a'.repeat(MAX_CALL_CHARACTERS - 8),
    };
    const tokenizer = await loadTokenizer((await pullModel(name)).directory);
    for (const special of [false, true]) {
      let calls = 0;
      const whole = (part: string) => {
        calls++;
        assert.ok(part.length <= MAX_CALL_CHARACTERS, `a call of ${part.length} characters`);
        return [...tokenizer.encode(part, { special })];
      };
      // A SentencePiece tokenizer puts a space before each input, but none after a line break. For it, the rest of a text is tokenized behind a
      // line break, whose tokens are then removed, as in `tokenizeContinuation`.
      const lineBreak = whole('\n');
      const addsSpace = whole('\na').slice(lineBreak.length).join() !== whole('a').join();
      const rest = (part: string) => (addsSpace ? whole(`\n${part}`).slice(lineBreak.length) : whole(part));
      const prose = file('ARCHITECTURE.md').repeat(10);
      const texts = {
        prose,
        lines: file('package-lock.json').slice(0, 150_000),
        'one line': prose.replaceAll('\n', ' '),
        chinese: '他说，天气很好。我们去公园走走吧！'.repeat(5000),
        mixed: mixed(20_261_205, 100_000),
        ...(special ? {} : words),
      };
      for (const [kind, text] of Object.entries(texts)) {
        calls = 0;
        const tokens = tokenizeLong(text, whole, rest);
        assert.deepEqual(tokens, [...tokenizer.encode(text, { special })], kind);
        assert.ok(calls < 200, `${calls} calls for ${kind}`);
      }
      // This text has no border at which it could be cut, so the part stays too long for a call.
      assert.throws(
        () => tokenizeLong('a'.repeat(MAX_CALL_CHARACTERS + 1), whole, rest),
        /a call of 131073 characters/,
      );
    }
  });
}

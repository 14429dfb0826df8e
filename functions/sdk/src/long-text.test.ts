import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { pullModel } from '../../../gpu-host/models/pull.ts';
import { loadTokenizer } from '../../../gpu-host/models/tokenizer.ts';
import { MAX_CALL_CHARACTERS, tokenizeLong } from './long-text.ts';

const file = (name: string) => readFileSync(new URL(`../../../${name}`, import.meta.url), 'utf8');

/** Random characters of all kinds, so that words, numbers, marks and spaces of any length meet. */
function mixed(seed: number, length: number): string {
  const kinds = [
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
    text += kinds[(state >>> 16) % kinds.length];
  }
  return text;
}

for (const name of ['minimind2-small', 'stories15m']) {
  test(`tokenizeLong gives the tokens of ${name} for the whole text`, async () => {
    const tokenizer = await loadTokenizer((await pullModel(name)).directory);
    for (const special of [false, true]) {
      let calls = 0;
      const whole = (part: string) => {
        calls++;
        assert.ok(part.length <= MAX_CALL_CHARACTERS, `a call of ${part.length} characters`);
        return [...tokenizer.encode(part, { special })];
      };
      const line = whole('\n');
      const spaced = whole('\na').slice(line.length).join() !== whole('a').join();
      const rest = (part: string) => (spaced ? whole(`\n${part}`).slice(line.length) : whole(part));
      const prose = file('ARCHITECTURE.md').repeat(3);
      const texts = {
        prose,
        lines: file('package-lock.json').slice(0, 150_000),
        'one line': prose.replaceAll('\n', ' '),
        chinese: '他说，天气很好。我们去公园走走吧！'.repeat(5000),
        mixed: mixed(20_261_205, 100_000),
      };
      for (const [what, text] of Object.entries(texts)) {
        calls = 0;
        const tokens = tokenizeLong(text, whole, rest);
        assert.deepEqual(tokens, [...tokenizer.encode(text, { special })], what);
        assert.ok(calls < 200, `${calls} calls for ${what}`);
      }
      assert.throws(() => tokenizeLong('a'.repeat(MAX_CALL_CHARACTERS + 1), whole, rest), /a call of 32769 characters/);
    }
  });
}

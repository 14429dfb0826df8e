import assert from 'node:assert/strict';
import path from 'node:path';
import { describe, it } from 'node:test';
import { call } from '#test/harness/deploy.ts';
import {
  assertBatched,
  callFunction,
  countersOf,
  deployFrom,
  failingFunction,
  functionsPlatform,
  STORIES,
} from '#test/harness/functions.ts';
import { tokenCounter } from '#test/harness/tokens.ts';

const sentence = (i: number) => `On day ${i} Tim went to the park with his mom and saw a big dog.`;

describe('map-reduce-summary', () => {
  it('summarizes parts in forks of one instruction in joint batches, and then the summaries', async () => {
    const script = ['One.', 'Two.', 'Three.', 'Four.', 'All in all.'];
    const input = { text: [1, 2, 3, 4].map(sentence).join(' '), chunkTokens: 24, summaryTokens: 12, script };
    await countersOf(STORIES, { reset: true });
    const { output, messages } = await callFunction('map-reduce-summary', input);
    const stats = await countersOf(STORIES);
    assert.deepEqual(output, { summary: 'All in all.', levels: [4, 1] });
    assert.deepEqual(
      messages.map((message) => JSON.parse(message)),
      [script.slice(0, 4), script.slice(4)],
    );

    const { begin, continuing } = await tokenCounter(STORIES);
    const parts = [...[1, 2, 3, 4].map(sentence), 'One. Two. Three. Four.'].map((part) => `${part}\n\nIn short:`);
    const once = begin('Say in short what happens in this text.\n\nText: ') + continuing(...parts, ...script);
    // Each fork computes the instruction's last token again. The prefix cache may save tokens that several parts begin with.
    assert.ok(stats.tokens <= once + parts.length, `${stats.tokens} tokens computed, ${once} if each is computed once`);
    await assertBatched(stats, () => callFunction('map-reduce-summary', input));
  });

  it('summarizes a text of several times the context', async () => {
    const text = Array.from({ length: 60 }, (_, i) => sentence(i)).join(' ');
    const { output } = await callFunction('map-reduce-summary', { text, summaryTokens: 24, concurrency: 16 });
    assert.ok(output.levels[0] > 8 && output.levels.length > 2 && output.levels.at(-1) === 1, `${output.levels}`);
    assert.ok(output.summary.length > 0);
  });

  it('never cuts within a character, and finds the ends of sentences in other scripts', async () => {
    await deployFrom(path.join(import.meta.dirname, 'fixtures/parts.ts'), 'map-reduce-summary-parts');
    const platform = await functionsPlatform();
    const partsOf = (text: string): Promise<readonly string[]> =>
      call(platform, 'map-reduce-summary-parts', { text, chunkTokens: 16 });
    const emoji = '😀🐶🌳'.repeat(100);
    const parts = await partsOf(emoji);
    assert.equal(parts.join(''), emoji);
    assert.ok(parts.length > 50 && parts.length <= 100, `${parts.length} parts`);
    const sentences = ['小明去公园。', '他看见狗吗？', '狗很大！'];
    assert.deepEqual(await partsOf(sentences.join('')), sentences);
  });

  it('refuses summaries that do not become shorter', async () => {
    // Two summaries of eight tokens and the space between them are too long for one part of sixteen.
    const reply = 'Tim was happy and he went home.';
    const endless = { text: `${reply} ${reply}`, chunkTokens: 16, summaryTokens: 8, script: Array(100).fill(reply) };
    assert.match(
      (await failingFunction('map-reduce-summary', endless)).message,
      /^limit-exceeded: 2 summaries came to 2/,
    );
    const { message } = await failingFunction('map-reduce-summary', { text: 'x', chunkTokens: 16, summaryTokens: 9 });
    assert.match(message, /invalid-argument: chunkTokens must be at least twice summaryTokens/);
  });
});

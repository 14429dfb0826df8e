import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import { callFunction, countersOf, ENCODER, failingFunction, STORIES } from '#test/harness/functions.ts';
import { tokenCounter } from '#test/harness/tokens.ts';

const index = 'rag-test';
const passages = [
  'The cat sleeps on the soft sofa all day.',
  'It rained all night and the street is wet.',
  'Mom baked a big cake with sweet apples.',
  'The fast train goes to the city every morning.',
  'A doctor helps people who are sick.',
  'The fish swims in the deep blue sea.',
];
const questions: readonly [string, number][] = [
  ['Who baked a cake with apples?', 2],
  ['Where does the cat sleep?', 0],
  ['What swims in the sea?', 5],
  ['Why is the street wet after the rain?', 1],
  ['Who helps sick people?', 4],
  ['Where does the train go?', 3],
];

describe('rag', () => {
  after(() => callFunction('rag', { index, passages: [] }));

  it('indexes texts, finds passages and answers from them', async () => {
    const { output } = await callFunction('rag', {
      index,
      passages,
      question: questions[0]?.[0],
      encoder: 'none',
      script: [' Mom did.\n\nThe end'],
    });
    assert.equal(output.indexed, passages.length);
    assert.equal(output.answer, 'Mom did.');
    assert.equal(output.found.length, 2);
    assert.equal(output.found[0].text, passages[2]);
  });

  it('searches the index of an earlier invocation, and computes only the question and the answer', async () => {
    const { begin, continuing } = await tokenCounter(STORIES);
    for (const [question, expected] of questions) {
      const before = await countersOf(STORIES, { reset: true });
      const { output } = await callFunction('rag', { index, question, topK: 1, encoder: 'none', script: [' So.'] });
      const { tokens, prefix } = await countersOf(STORIES);
      assert.equal(output.found[0].text, passages[expected], `${question}: ${JSON.stringify(output.found)}`);
      const prompt = begin(`${passages[expected]}\n\nQuestion: ${question}\nAnswer:`);
      // The question's vector comes from its text alone, without the begin-of-text token.
      assert.equal(
        tokens + prefix.hitTokens - before.prefix.hitTokens,
        begin(question) - 1 + prompt + continuing(' So.'),
      );
    }
  });

  it('makes vectors with an encoder, and also finds passages by their words', async () => {
    const indexName = 'rag-encoder-test';
    const input = { index: indexName, passages, encoder: ENCODER, question: passages[4], topK: 1, script: [' So.'] };
    const byVector = await callFunction('rag', input);
    assert.equal(byVector.output.found[0].text, passages[4]);
    const { passages: _, encoder: __, ...later } = input;
    const byWords = await callFunction('rag', { ...later, question: 'deep blue' });
    assert.equal(byWords.output.found[0].text, passages[5]);
    await callFunction('rag', { index: indexName, passages: [] });
  });

  it('reports an empty index', async () => {
    const { message } = await failingFunction('rag', { index: 'rag-none', question: 'What?' });
    assert.match(message, /not-found: The index "rag-none" is empty/);
  });
});

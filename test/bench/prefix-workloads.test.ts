import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { ANSWER_TOKENS, partsOf, WORKLOADS } from './prefix-workloads.ts';

/** Context length of the model: a prompt and its answer must fit. */
const CONTEXT = 2048;

/** Runs a workload and returns its prompts, by the key of their last part. Each answer takes the number of event-loop turns that `delays` returns. */
async function promptsOf(index: number, round: string, delays: () => number): Promise<Record<string, string>> {
  const prompts: Record<string, string> = {};
  await WORKLOADS[index]?.run(async (parts) => {
    const key = parts.at(-1)?.key ?? '';
    assert.equal(prompts[key], undefined, `two requests of the part ${key}`);
    prompts[key] = parts.flatMap(({ tokens }) => tokens).join();
    for (let turns = delays(); turns > 0; turns--) await nextTurn();
    return new Array(ANSWER_TOKENS).fill(key.length);
  }, partsOf(round));
  return prompts;
}

describe('workloads of the prefix benchmark', () => {
  for (const [index, { name }] of WORKLOADS.entries()) {
    it(`sends the same prompts in any order of answers: ${name}`, async () => {
      let turn = 0;
      const prompts = await promptsOf(index, '1', () => 0);
      assert.deepEqual(await promptsOf(index, '1', () => (turn++ * 7) % 5), prompts);
      const other = await promptsOf(index, '2', () => 0);
      for (const [key, prompt] of Object.entries(prompts)) {
        assert.ok(prompt.split(',').length + ANSWER_TOKENS <= CONTEXT);
        assert.notEqual(other[key], prompt);
      }
    });
  }
});

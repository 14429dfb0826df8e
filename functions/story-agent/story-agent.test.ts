import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { deployFunction, functionsPlatform, refusedInput } from '#test/harness/functions.ts';

/** In the client loop: one request for the sentence, and one for each of three forks. */
const REQUESTS_OF_TURN = 1 + 3;
const TURNS = 5;

describe('story-agent', () => {
  it('tells the same story as the client loop, with the same tokens and one request', async () => {
    const platform = await functionsPlatform();
    await deployFunction('openai-completions');
    const { code, stdout, stderr } = await platform.pie(['demo', '--rounds', '1', '--json']);
    assert.equal(code, 0, stderr + stdout);
    const { equalTexts, equalTokens, program, loop } = JSON.parse(stdout);
    assert.deepEqual([equalTexts, equalTokens], [true, true]);
    assert.deepEqual([program.requests, loop.requests], [1, TURNS * REQUESTS_OF_TURN]);
    assert.ok(program.tokens > TURNS * REQUESTS_OF_TURN, 'every request brings tokens');
    assert.ok(loop.promptTokens > 10 * program.promptTokens, `${loop.promptTokens} and ${program.promptTokens}`);
    assert.match(program.text, /^Once upon a time, there was a little dog named Max\./);
  });

  it('prints the story and a table without escape sequences when the output is no terminal', async () => {
    const platform = await functionsPlatform();
    const { code, stdout } = await platform.pie(['demo', '--rounds', '1', '--round-trip', '1']);
    assert.equal(code, 0);
    assert.equal(stdout.includes('\u001b'), false, 'no escape sequences');
    assert.match(stdout, /^HTTP requests {8}1 {2,}20$/m);
    assert.match(stdout, /^1 ms are added to each request/m);
    assert.match(stdout, /^Both texts are equal\.$/m);
    const wrong = await platform.pie(['demo', '--rounds', '0']);
    assert.equal(wrong.code, 1);
  });

  it('names the field of a bad input', async () => {
    const input = { prompt: 'Once', openings: [], events: [' It rained.'] };
    assert.deepEqual(await refusedInput('story-agent', input), { status: 422, field: '/openings' });
  });
});

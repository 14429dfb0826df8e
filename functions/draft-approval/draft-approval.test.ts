import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { eventually } from '#scheduler/testing/fixture.ts';
import { deployFunction, functionsPlatform, refusedInput } from '#test/harness/functions.ts';

type Pie = (args: string[]) => Promise<{ code: number | null; stdout: string; stderr: string }>;

describe('draft-approval', () => {
  /** Waits until the invocation asks about the draft of this number. */
  const waiting = async (pie: Pie, id: string, draft: number): Promise<{ text: string; number: number }> => {
    let question = { text: '', number: 0 };
    await eventually(async () => {
      const { code, stdout } = await pie(['answer', id, '--json']);
      if (code === 0) question = JSON.parse(stdout);
      return question.text.startsWith(`Draft ${draft}:`);
    }, `it asks about draft ${draft}`);
    return question;
  };

  it('asks about each draft, and ends with the text that the person approves', async () => {
    const platform = await functionsPlatform();
    await deployFunction('draft-approval');
    const pie: Pie = (args) => platform.pie(args);
    const input = JSON.stringify({ prompt: 'Once upon a time', maxTokens: 12 });
    const id = (await pie(['invoke', 'draft-approval', '--input', input, '--async'])).stdout.trim();
    const first = await waiting(pie, id, 1);
    const listed = JSON.parse((await pie(['ps', '--status', 'waiting', '--json'])).stdout);
    assert.deepEqual([listed.id, listed.status, listed.question.text], [id, 'waiting', first.text]);
    assert.notEqual((await pie(['answer', id, '{"decision":"maybe"}'])).code, 0, 'the schema refuses it');
    assert.equal((await pie(['answer', id, '{"decision":"again"}'])).code, 0);
    const second = await waiting(pie, id, 2);
    assert.notEqual(second.text.slice(10), first.text.slice(10), 'another draft');
    const outdated = await pie(['answer', id, '{"decision":"reject"}', '--question', String(first.number)]);
    assert.match(outdated.stderr, /does not wait for an answer to question/);
    assert.equal((await pie(['answer', id, '{"decision":"approve","text":"Mine."}'])).code, 0);
    const { stdout } = await pie(['attach', id, '--json']);
    const events = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    assert.deepEqual(
      events.map(({ event }) => event).filter((event) => event !== 'metric' && event !== 'log'),
      ['start', 'question', 'start', 'question', 'start', 'result'],
    );
    assert.deepEqual(events.at(-1).data.output, { text: 'Mine.', decision: 'approved', drafts: 2 });
  });

  it('ends without a text when no answer comes in time', async () => {
    const platform = await functionsPlatform();
    await deployFunction('draft-approval');
    const input = JSON.stringify({ prompt: 'Once', maxTokens: 4, waitSeconds: 1 });
    const { stdout } = await platform.pie(['invoke', 'draft-approval', '--input', input]);
    assert.deepEqual(JSON.parse(stdout), { text: null, decision: 'expired', drafts: 1 });
  });

  it('names the field of a bad input', async () => {
    assert.deepEqual(await refusedInput('draft-approval', { prompt: '' }), { status: 422, field: '/prompt' });
  });
});

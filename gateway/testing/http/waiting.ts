import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ASYNC, frames, type Harness, JSON_TYPE, json, SSE } from './harness.ts';

/** Tests of invocations that wait: for the delay of a debounce key, and for a person. */
export function describeWaiting(get: () => Harness): void {
  describe('waiting', () => {
    it('an invocation with a debounce key supersedes the one before it, whose caller learns the id of the successor', async () => {
      const h = get();
      const debounce = { 'debounce-key': 'doc-1', 'debounce-delay': '1h' };
      const stream = await h.invoke({ ...SSE, ...debounce });
      const first = stream.headers.get('content-location')?.split('/').at(-1);
      const known = await h.invocations();
      const answer = h.ask('/v1/functions/echo/invocations', {
        method: 'POST',
        body: '{"prompt":"b"}',
        headers: { ...JSON_TYPE, ...debounce },
      });
      const second = await h.platform.submitted('echo', known);
      const [end, ...more] = await frames(stream);
      assert.deepEqual([end?.event, more.length], ['error', 0]);
      const { code, successor } = JSON.parse(end?.data ?? '');
      assert.deepEqual([code, successor], ['superseded', second]);
      const state = (await h.ask(`/v1/invocations/${second}`)).body;
      const waitMs = Date.parse(state.notBefore) - Date.parse(state.createdAt);
      assert.ok(state.status === 'queued' && waitMs >= 3_600_000 && waitMs < 3_660_000, JSON.stringify(state));
      const third = await json(await h.invoke({ ...ASYNC, ...debounce }));
      assert.equal(third.notBefore, (await h.ask(`/v1/invocations/${third.id}`)).body.notBefore);
      const refused = await answer;
      h.refused(refused, 'superseded');
      assert.deepEqual([refused.body.invocation, refused.body.successor], [second, third.id]);
      const ended = (await h.ask(`/v1/invocations/${first}`)).body;
      assert.deepEqual([ended.status, ended.error.code, ended.successor], ['cancelled', 'superseded', second]);
      await h.ask(`/v1/invocations/${third.id}`, { method: 'DELETE' });
      for (const [headers, field] of [
        [{ 'debounce-delay': '5s' }, 'debounce-key'],
        [{ 'debounce-key': 'a' }, 'debounce-delay'],
        [{ 'debounce-key': 'a', 'debounce-delay': '999ms' }, 'debounce-delay'],
        [{ 'debounce-key': 'a', 'debounce-delay': '25h' }, 'debounce-delay'],
        [{ 'debounce-key': 'a b', 'debounce-delay': '5s' }, 'debounce-key'],
        [{ 'debounce-key': 'a', 'debounce-delay': '5s', 'debounce-max': '4s' }, 'debounce-max'],
        [{ 'debounce-key': 'a', 'debounce-delay': '5s', 'cancel-after': '5s' }, 'cancel-after'],
      ] as const) {
        const init = { method: 'POST', body: '{"prompt":"x"}', headers: { ...JSON_TYPE, ...ASYNC, ...headers } };
        h.refused(await h.ask('/v1/functions/echo/invocations', init), 'invalid-input', field);
      }
    });

    it('an invocation that asks a person continues with the first answer that fits the schema of its question', async () => {
      const h = get();
      const { answer: outcome, attempt } = await h.waiting();
      const { id } = attempt;
      const { scheduler } = h.platform;
      await attempt.start();
      await attempt.say('before');
      const schema = { type: 'object', properties: { ok: { type: 'boolean' } }, required: ['ok'] };
      const question = { text: 'Publish?', schema, timeoutMs: 60_000, state: '' };
      // The question becomes event 3, after `start` and the message.
      assert.equal(
        await scheduler.questions.ask({ id, tenant: 'default' }, attempt.epoch, 3, question, null),
        'waiting',
      );
      const state = (await h.ask(`/v1/invocations/${id}`)).body;
      assert.deepEqual([state.status, state.question.text, state.question.number], ['waiting', 'Publish?', 3]);
      const listed = await h.ask('/v1/invocations?status=waiting&function=echo');
      assert.deepEqual(
        listed.body.invocations.map((one: { id: string }) => one.id),
        [id],
      );
      const give = (body: string, query = '') =>
        h.ask(`/v1/invocations/${id}/answer${query}`, { method: 'POST', body, headers: JSON_TYPE });
      h.refused(await give('{"ok":1}'), 'invalid-input', '/ok');
      h.refused(await give('{'), 'malformed-json');
      h.refused(await give(JSON.stringify({ ok: true, more: 'x'.repeat(65_536) })), 'body-too-large');
      h.refused(await give('{"ok":true}', '?question=2'), 'not-waiting');
      const large = '"id":9007199254740993';
      const answerRequests = [give(`{"ok":true,${large}}`, '?question=3'), give(`{"ok":false,${large}}`)];
      const answers = await Promise.all(answerRequests);
      assert.deepEqual(answers.map(({ status }) => status).sort(), [200, 409]);
      const { redis, keys } = scheduler.store;
      const resumption = JSON.parse((await redis.hget(`${keys.jobs}:${id}`, 'resumption')) ?? '');
      assert.ok(resumption.answer.val.includes(large), 'a large integer is not rounded');
      const again = await h.platform.attempt(id);
      await again.start();
      await again.say('after');
      await again.succeed('done');
      const { status, body } = await outcome;
      assert.deepEqual([status, body.output], [200, 'done']);
      assert.deepEqual(
        body.messages,
        [{ text: 'before' }, { text: 'after' }],
        'the answer has the messages from before the question',
      );
      const events = await frames(await h.send(`/v1/invocations/${id}/events`));
      assert.deepEqual(
        events.map(({ event }) => event),
        ['start', 'message', 'question', 'start', 'message', 'result'],
      );
      h.refused(await give('{"ok":true}'), 'not-waiting');
      const unknown = { method: 'POST', body: 'true', headers: JSON_TYPE };
      h.refused(await h.ask('/v1/invocations/inv_nothing/answer', unknown), 'unknown-invocation');
    });
  });
}

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Frame, FrameParser } from '../../client/event-source.ts';
import { ASYNC, frames, type Harness, JSON_TYPE, json, SSE } from './harness.ts';

/** Tests of reattaching, messages, cancellation, departed clients and logs. */
export function describeInvocations(get: () => Harness): void {
  describe('an invocation', () => {
    it('can be reattached after any event', async () => {
      const h = get();
      const id = await h.submit();
      const attempt = await h.platform.attempt(id);
      await attempt.say('1', '2', '3');
      const response = await h.send(`/v1/invocations/${id}/events`, { headers: { 'last-event-id': '2' } });
      await attempt.say('4');
      await attempt.succeed(null);
      const { epoch } = attempt;
      const ids = [1, 2, 3, 4, 5].map((number) => `${epoch}-${number}`);
      const idsOf = async (reading: Response) => (await frames(reading)).map((frame) => frame.id);
      assert.deepEqual(await idsOf(response), ids.slice(2), 'by event number');
      const after = (lastEventId: string) =>
        h.send(`/v1/invocations/${id}/events`, { headers: { 'last-event-id': lastEventId } });
      assert.deepEqual(await idsOf(await h.send(`/v1/invocations/${id}/events`)), ids);
      assert.deepEqual(await idsOf(await after(`${epoch}-3`)), ids.slice(3), 'by event id');
      assert.equal((await h.ask(`/v1/invocations/${id}`)).body.lastEventId, ids[4]);
      for (const last of ['5', `${epoch}-5`]) assert.equal((await after(last)).status, 204);
      for (const garbage of ['x', '-5', `${epoch}-`, `${epoch}-1-2`, '1.5', '9'.repeat(16)]) {
        const headers = { 'last-event-id': garbage };
        h.refused(await h.ask(`/v1/invocations/${id}/events`, { headers }), 'invalid-input', 'last-event-id');
      }
    });

    it('reports which events of a reader the store has lost', async () => {
      const h = get();
      const id = await h.submit();
      const attempt = await h.platform.attempt(id);
      await attempt.say('1', '2');
      await attempt.succeed(null);
      // The reader has events up to number 5 of an earlier attempt. The store has lost that attempt and its events.
      const headers = { 'last-event-id': `${attempt.epoch - 1}-5` };
      const receivedFrames = await frames(await h.send(`/v1/invocations/${id}/events`, { headers }));
      assert.deepEqual(
        receivedFrames.map((frame) => [frame.event, frame.id]),
        [
          ['gap', `${attempt.epoch}-0`],
          ...['message', 'message', 'result'].map((event, i) => [event, `${attempt.epoch}-${i + 1}`]),
        ],
      );
      assert.deepEqual(JSON.parse(receivedFrames[0]?.data ?? ''), { after: 0 });
    });

    it('is unknown under any other id', async () => {
      const h = get();
      for (const id of ['nothing', 'inv_x%3Aevents', '..', '%2e%2e', 'x'.repeat(100)]) {
        const answer = await h.ask(`/v1/invocations/${id}`);
        assert.ok(['unknown-invocation', 'not-found'].includes(answer.body.code), JSON.stringify(answer.body));
      }
      h.refused(await h.ask('/v1/invocations/nothing/events'), 'unknown-invocation');
      h.refused(await h.ask('/v1/invocations/nothing', { method: 'DELETE' }), 'unknown-invocation');
    });

    it('shows its input while it waits, while it runs, and after its end', async () => {
      const h = get();
      const body = '{"prompt":"Hé \\"x\\"","maxTokens":9007199254740993}';
      const input = JSON.parse(body);
      const headers = { ...JSON_TYPE, ...ASYNC };
      const { id } = (await h.ask('/v1/functions/echo/invocations', { method: 'POST', body, headers })).body;
      const read = () => h.ask(`/v1/invocations/${id}/input`);
      assert.deepEqual((await read()).body, input);
      assert.equal(await (await h.send(`/v1/invocations/${id}/input`)).text(), body, 'a large integer is not rounded');
      const attempt = await h.platform.attempt(id);
      assert.deepEqual((await read()).body, input);
      await attempt.succeed(null);
      assert.deepEqual((await read()).body, input);
      await h.platform.scheduler.store.redis.del(h.platform.scheduler.store.keys.input(id));
      h.refused(await read(), 'unknown-input');
      h.refused(await h.ask('/v1/invocations/nothing/input'), 'unknown-invocation');
    });

    it('has no events, no output and no input once these are deleted', async () => {
      const h = get();
      const id = await h.submit();
      const remove = (headers = {}) => h.ask(`/v1/invocations/${id}/events`, { method: 'DELETE', headers });
      h.refused(await remove(), 'conflict');
      await (await h.platform.attempt(id)).succeed('done');
      const other = { authorization: `Bearer ${await h.platform.key(['admin'], 'other')}` };
      h.refused(await remove(other), 'unknown-invocation');
      const reader = { authorization: `Bearer ${await h.platform.key(['deploy'])}` };
      h.refused(await remove(reader), 'forbidden');
      assert.equal((await h.ask(`/v1/invocations/${id}`)).body.output, 'done');
      for (const _ of [1, 2]) assert.equal((await remove()).status, 204);
      const { status, output } = (await h.ask(`/v1/invocations/${id}`)).body;
      assert.deepEqual([status, output], ['succeeded', undefined]);
      h.refused(await h.ask(`/v1/invocations/${id}/input`), 'unknown-input');
    });

    it('shows its output exactly as the inferlet wrote it', async () => {
      const h = get();
      const written = `{"id":9007199254740993, "deep":${'['.repeat(20_000)}${']'.repeat(20_000)}}`;
      const keyedHeaders = { ...ASYNC, 'idempotency-key': 'output-as-written' };
      const { id } = await json(await h.invoke(keyedHeaders));
      await (await h.platform.attempt(id)).succeedWith(written);
      const answers = [
        await h.send(`/v1/invocations/${id}`),
        await h.send(`/v1/invocations/${id}`, { method: 'DELETE' }),
        await h.invoke(keyedHeaders),
      ];
      for (const answer of answers) {
        const text = await answer.text();
        assert.ok(text.endsWith(`,"output":${written}}`), `${answer.status} ${text.slice(0, 500)}`);
      }
    });

    it('receives messages of its client', async () => {
      const h = get();
      const id = await h.submit();
      const attempt = await h.platform.attempt(id);
      const received: unknown[] = [];
      let closed: () => void = () => undefined;
      const closing = new Promise<void>((resolve) => {
        closed = resolve;
      });
      const detach = h.platform.scheduler.inbox.attach(id, {
        message: (message) => {
          received.push('text' in message ? message.text : [...message.bytes]);
        },
        closed,
      });
      const post = (body: string, more = {}) =>
        h.ask(`/v1/invocations/${id}/messages`, { method: 'POST', body, headers: { ...JSON_TYPE, ...more } });
      const accepted = await post('{"text":"hé"}');
      assert.deepEqual([accepted.status, accepted.body], [202, { accepted: true }]);
      // The second request repeats the first, so its message is not delivered again.
      for (const _ of [1, 2])
        assert.equal((await post('{"base64":"AAEC"}', { 'idempotency-key': 'bytes' })).status, 202);
      h.refused(await post('{"text":"a"}', { 'idempotency-key': 'x'.repeat(257) }), 'invalid-input', 'idempotency-key');
      for (const bad of ['{}', '{"text":1}', '{"text":"a","base64":"AA=="}', '{"base64":"!"}', '"x"'])
        h.refused(await post(bad), 'invalid-input', '');
      h.refused(await post('{"text"'), 'malformed-json');
      h.refused(await post(JSON.stringify({ text: 'x'.repeat(1_100_000) })), 'body-too-large');
      assert.equal((await post('{"close":true}')).status, 202);
      await closing;
      assert.deepEqual(received, ['hé', [0, 1, 2]]);
      const late = await post('{"text":"late"}');
      h.refused(late, 'conflict');
      assert.equal(late.body.hint, 'Start another invocation.');
      detach();
      await attempt.succeed(1);
      h.refused(await post('{"text":"later"}'), 'conflict');
      h.refused(
        await h.ask('/v1/invocations/nothing/messages', { method: 'POST', body: '{"text":""}', headers: JSON_TYPE }),
        'unknown-invocation',
      );
    });

    it('can be cancelled while it waits or runs, but not after its end', async () => {
      const h = get();
      const waiting = await h.submit();
      const cancelled = await h.ask(`/v1/invocations/${waiting}`, { method: 'DELETE' });
      assert.deepEqual(
        [cancelled.status, cancelled.body.status, cancelled.body.error.code],
        [200, 'cancelled', 'cancelled'],
      );
      assert.equal((await frames(await h.send(`/v1/invocations/${waiting}/events`)))[0]?.event, 'error');

      const running = await h.submit();
      const attempt = await h.platform.attempt(running);
      const { asked } = await h.platform.cancelOf(running);
      assert.equal((await h.ask(`/v1/invocations/${running}`, { method: 'DELETE' })).status, 202);
      await asked;
      await attempt.succeed(1);
      const late = await h.ask(`/v1/invocations/${running}`, { method: 'DELETE' });
      assert.deepEqual([late.status, late.body.status], [200, 'succeeded']);
    });

    it('continues after its client leaves, unless the client asked for cancellation', async () => {
      const h = get();
      const leave = new AbortController();
      const begin = async (preference?: string) => {
        const headers: Record<string, string> = preference === undefined ? {} : { prefer: preference };
        const { response, attempt } = await h.stream(headers, leave.signal);
        assert.equal(response.headers.get('preference-applied'), preference ?? null);
        await attempt.say('x');
        await response.body!.getReader().read();
        const { asked } = await h.platform.cancelOf(attempt.id);
        return { attempt, asked };
      };
      const continuing = await begin();
      const cancelled = await begin('cancel-on-disconnect');
      let isContinuingCancelled = false;
      void continuing.asked.then(() => {
        isContinuingCancelled = true;
      });
      leave.abort();
      await cancelled.asked;
      assert.equal(
        (await h.platform.scheduler.invocations.get(cancelled.attempt.id))?.cancelReason,
        'The client left.',
      );
      await cancelled.attempt.fail('cancelled', 'The client left.');
      await continuing.attempt.say('y');
      assert.equal(isContinuingCancelled, false, 'the gateway does not cancel an invocation that should continue');
      await continuing.attempt.succeed(1);
      assert.equal((await h.ask(`/v1/invocations/${continuing.attempt.id}`)).body.status, 'succeeded');
    });
  });

  describe('logs', () => {
    it('logs are stored, filtered and followed', async () => {
      const h = get();
      await h.platform.register({ name: 'logger' });
      const ids: string[] = [];
      for (const round of [1, 2]) {
        const response = await h.send('/v1/functions/logger/invocations', { method: 'POST', headers: ASYNC });
        const attempt = await h.platform.attempt((await json(response)).id);
        ids.push(attempt.id);
        await attempt.append(
          { event: 'log', data: { level: 'debug', message: `d${round}` } },
          { event: 'log', data: { level: 'warn', message: `w${round}` } },
        );
        if (round === 1) await attempt.fail('trap', 'unreachable');
      }
      const read = async (query: string) =>
        (await h.ask(`/v1/functions/logger/logs${query}`)).body.logs.map((entry: { message: string }) => entry.message);
      assert.deepEqual(await read(''), ['d1', 'w1', 'trap: unreachable', 'd2', 'w2']);
      assert.deepEqual(await read('?level=warn'), ['w1', 'trap: unreachable', 'w2']);
      assert.deepEqual(await read('?level=error'), ['trap: unreachable']);
      assert.deepEqual(await read('?limit=2'), ['d2', 'w2']);
      assert.deepEqual(await read('?limit=0'), []);
      assert.deepEqual(await read(`?invocation=${ids[1]}`), ['d2', 'w2']);
      const [first] = (await h.ask('/v1/functions/logger/logs?limit=5')).body.logs;
      assert.deepEqual(await read(`?after=${first.cursor}&limit=2`), ['d2', 'w2']);
      assert.deepEqual(await read('?status=failed'), ['d1', 'w1', 'trap: unreachable']);
      assert.deepEqual(await read('?status=running&level=warn'), ['w2']);
      assert.deepEqual(await read('?search=UNREACH'), ['trap: unreachable']);
      assert.deepEqual(await read('?since=1h&limit=1'), ['w2']);
      assert.deepEqual(await read('?since=2100-01-01'), []);
      assert.deepEqual(await read('?until=1h'), []);
      assert.deepEqual(await read(`?since=${new Date(Date.parse(first.time)).toISOString()}&limit=1`), ['w2']);
      // The search may also find lines of other tests, whose random ids may contain `w2`.
      const everything: { function: string; message: string }[] = (await h.ask('/v1/logs?search=w2')).body.logs;
      const found = everything.filter(({ message }) => message === 'w2');
      assert.deepEqual(
        found.map((entry) => entry.function),
        ['logger'],
      );
      for (const [query, field] of [
        ['since=yesterday', 'since'],
        ['until=1', 'until'],
        ['status=gone', 'status'],
        ['after=x', 'after'],
        [`after=${'9'.repeat(20)}-0`, 'after'],
        ['search=', 'search'],
      ])
        h.refused(await h.ask(`/v1/functions/logger/logs?${query}`), 'invalid-input', field);
      h.refused(await h.ask('/v1/logs?until=1h', { headers: SSE }), 'invalid-input', 'until');
      h.refused(await h.ask('/v1/functions/logger/logs?limit=x'), 'invalid-input', 'limit');
      h.refused(await h.ask('/v1/functions/nothing/logs'), 'unknown-function');

      const leave = new AbortController();
      const live = await h.send('/v1/functions/logger/logs?limit=1', {
        headers: SSE,
        signal: leave.signal,
      });
      const parser = new FrameParser();
      const reader = live.body!.getReader();
      const seen: Frame[] = [];
      const until = async (count: number) => {
        while (seen.length < count) seen.push(...parser.push(new TextDecoder().decode((await reader.read()).value)));
      };
      await until(1);
      const response = await h.send('/v1/functions/logger/invocations', { method: 'POST', headers: ASYNC });
      const attempt = await h.platform.attempt((await json(response)).id);
      await attempt.append({ event: 'log', data: { level: 'info', message: 'live' } });
      await until(2);
      assert.deepEqual(
        seen.map(({ event, data }) => [event, JSON.parse(data).message]),
        [
          ['log', 'w2'],
          ['log', 'live'],
        ],
      );
      const resumed = await h.send('/v1/functions/logger/logs?limit=1', {
        headers: { ...SSE, 'last-event-id': first.cursor },
        signal: leave.signal,
      });
      const resumedParser = new FrameParser();
      const resumedReader = resumed.body!.getReader();
      const lines: Frame[] = [];
      while (lines.at(-1)?.id !== seen.at(-1)?.id)
        lines.push(...resumedParser.push(new TextDecoder().decode((await resumedReader.read()).value)));
      assert.deepEqual(
        lines.map(({ data }) => JSON.parse(data).message),
        ['w1', 'trap: unreachable', 'd2', 'w2', 'live'],
        'a resumed stream misses no line because of the limit in its address',
      );
      leave.abort();
    });

    it('the logs of all functions are followed in one stream', async () => {
      const h = get();
      for (const name of ['here', 'there']) await h.platform.register({ name });
      const leave = new AbortController();
      const live = await h.send('/v1/logs?limit=0&level=warn', { headers: SSE, signal: leave.signal });
      const parser = new FrameParser();
      const reader = live.body!.getReader();
      const seen: Frame[] = [];
      for (const name of ['here', 'there']) {
        const response = await h.send(`/v1/functions/${name}/invocations`, { method: 'POST', headers: ASYNC });
        const attempt = await h.platform.attempt((await json(response)).id);
        await attempt.append(
          { event: 'log', data: { level: 'info', message: 'not this' } },
          { event: 'log', data: { level: 'warn', message: name } },
        );
      }
      while (seen.length < 2) seen.push(...parser.push(new TextDecoder().decode((await reader.read()).value)));
      const messages = seen.map(({ data }) => JSON.parse(data)).map((entry) => [entry.function, entry.message]);
      assert.deepEqual(messages.toSorted(), [
        ['here', 'here'],
        ['there', 'there'],
      ]);
      leave.abort();
      const after = (await h.ask(`/v1/logs?level=warn&after=${encodeURIComponent(seen[0]!.id)}`)).body.logs;
      assert.deepEqual(
        after.map(({ message }: { message: string }) => message),
        [JSON.parse(seen[1]!.data).message],
      );
    });
  });
}

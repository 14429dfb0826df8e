import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Frame, FrameParser } from '../../client/event-source.ts';
import { ASYNC, frames, type Harness, type Init, JSON_TYPE, json } from './harness.ts';

/** Streams, waiting answers, 202, and bad input. */
export function describeInvoking(get: () => Harness): void {
  describe('invoking', () => {
    it('streams the events', async () => {
      const h = get();
      const { response, attempt } = await h.stream();
      assert.equal(response.status, 200);
      assert.match(response.headers.get('content-type') ?? '', /^text\/event-stream/);
      await attempt.start();
      await attempt.say('Once', ' upon');
      await attempt.append({ event: 'log', data: { level: 'info', message: 'hello' } });
      await attempt.succeed({ text: 'Once upon' }, { outputTokens: 2 });
      const seen = await frames(response);
      assert.deepEqual(
        seen.map(({ id, event }) => [id, event]),
        [
          ['1', 'start'],
          ['2', 'message'],
          ['3', 'message'],
          ['4', 'log'],
          ['5', 'result'],
        ],
      );
      assert.deepEqual(JSON.parse(seen[1]!.data), { text: 'Once' });
      assert.deepEqual(JSON.parse(seen[4]!.data), { output: { text: 'Once upon' }, usage: { outputTokens: 2 } });
    });

    it('hands each event over as it comes', async () => {
      const h = get();
      const { response, attempt } = await h.stream();
      const parser = new FrameParser();
      const reader = response.body!.getReader();
      for (const text of ['a', 'b', 'c']) {
        await attempt.say(text);
        let got: Frame[] = [];
        while (got.length === 0) got = parser.push(new TextDecoder().decode((await reader.read()).value));
        assert.deepEqual(
          got.map(({ data }) => JSON.parse(data)),
          [{ text }],
        );
      }
      await attempt.succeed(1);
      await reader.cancel();
    });

    it('ends a failed stream with an error that OpenAI-style clients read', async () => {
      const h = get();
      const { response, attempt } = await h.stream();
      await attempt.fail('inferlet-error', 'the prompt is too long');
      const [frame] = await frames(response);
      assert.equal(frame?.event, 'error');
      const error = { message: 'the prompt is too long', type: 'invalid_request_error', code: 'inferlet-error' };
      assert.deepEqual(JSON.parse(frame?.data ?? ''), {
        code: 'inferlet-error',
        message: 'the prompt is too long',
        error,
      });
    });

    it('waits for the outcome', async () => {
      const h = get();
      const { answer, attempt } = await h.waiting();
      await attempt.start();
      await attempt.say('x');
      await attempt.append({ event: 'message', data: { base64: 'AAE=' } });
      await attempt.succeed([1]);
      const { headers, body } = await answer;
      assert.equal(headers.get('content-location'), `/v1/invocations/${attempt.id}`);
      assert.deepEqual(body, {
        id: attempt.id,
        status: 'succeeded',
        output: [1],
        messages: [{ text: 'x' }, { base64: 'AAE=' }],
        usage: { outputTokens: 1 },
      });
    });

    it('answers for a failure with its status and what came before', async () => {
      const h = get();
      const cases = [
        ['inferlet-error', 422],
        ['deadline-exceeded', 504],
        ['device-lost', 503],
        ['cancelled', 409],
      ] as const;
      for (const [code, status] of cases) {
        const { answer, attempt } = await h.waiting();
        await attempt.say('partial');
        await attempt.fail(code, 'because');
        h.refused(await answer, code);
        const { body, headers } = await answer;
        assert.deepEqual(
          [body.status, body.detail, body.invocation, body.messages],
          [status, 'because', attempt.id, [{ text: 'partial' }]],
        );
        assert.equal(headers.get('x-should-retry'), status === 422 ? null : 'false');
      }
    });

    it('answers at once when asked to', async () => {
      const h = get();
      const response = await h.invoke(ASYNC);
      const body = await json(response);
      assert.deepEqual(
        [response.status, response.headers.get('preference-applied'), body.status],
        [202, 'respond-async', 'queued'],
      );
      assert.equal(response.headers.get('location'), `/v1/invocations/${body.id}`);
      const attempt = await h.platform.attempt(body.id);
      assert.equal((await h.ask(`/v1/invocations/${body.id}`)).body.status, 'running');
      await attempt.succeed({ done: true });
      const state = (await h.ask(`/v1/invocations/${body.id}`)).body;
      assert.deepEqual([state.status, state.output, state.lastEventId], ['succeeded', { done: true }, 1]);
    });

    it('invokes a version, and names an unknown one', async () => {
      const h = get();
      const { version } = (await h.ask('/v1/functions/echo')).body;
      const ok = await h.send(`/v1/functions/echo@${version}/invocations`, {
        method: 'POST',
        body: '{"prompt":""}',
        headers: { ...JSON_TYPE, ...ASYNC },
      });
      assert.equal((await json(ok)).version, version);
      const init = { method: 'POST', body: '{"prompt":""}', headers: JSON_TYPE };
      h.refused(await h.ask('/v1/functions/nothing/invocations', init), 'unknown-function');
      h.refused(await h.ask('/v1/functions/echo@000000000000/invocations', init), 'unknown-function');
    });

    it('refuses bad input, each with its code', async () => {
      const h = get();
      const post = (body: NonNullable<Init['body']>, headers: Record<string, string> = JSON_TYPE) =>
        h.ask('/v1/functions/echo/invocations', { method: 'POST', body, headers });
      const before = await h.invocations();
      h.refused(await post('{"prompt": '), 'malformed-json');
      h.refused(await post(new Uint8Array([0x22, 0xff, 0x22])), 'malformed-json');
      h.refused(await post('{}'), 'invalid-input', '/prompt');
      h.refused(await post(''), 'invalid-input', '/prompt');
      h.refused(await post('{"prompt":1}'), 'invalid-input', '/prompt');
      h.refused(await post('{"prompt":"","maxTokens":0}'), 'invalid-input', '/maxTokens');
      h.refused(await post('{"prompt":"","other":0}'), 'invalid-input', '/other');
      h.refused(
        await post('prompt=x', { 'content-type': 'application/x-www-form-urlencoded' }),
        'unsupported-media-type',
      );
      h.refused(await post(JSON.stringify({ prompt: 'x'.repeat(3000) })), 'body-too-large');
      // Without a declared length.
      const pieces = ['{"prompt":""}', ...Array.from({ length: 50 }, () => ' '.repeat(1000))];
      const unannounced = new ReadableStream<Uint8Array>({
        pull: (controller) => {
          const piece = pieces.pop();
          if (piece === undefined) controller.close();
          else controller.enqueue(new TextEncoder().encode(piece));
        },
      });
      h.refused(await post(unannounced), 'body-too-large');
      assert.deepEqual(await h.invocations(), before, 'something was stored');
    });

    it('makes one invocation of requests with one idempotency key', async () => {
      const h = get();
      const headers = { ...ASYNC, 'idempotency-key': crypto.randomUUID() };
      const [first, second] = await Promise.all([h.invoke(headers), h.invoke(headers)]);
      assert.equal((await json(first)).id, (await json(second)).id);
      await h.platform.register({ name: 'other' });
      const other = { method: 'POST', body: '{}', headers: { ...headers, ...JSON_TYPE } };
      h.refused(await h.ask('/v1/functions/other/invocations', other), 'conflict');
    });
  });
}

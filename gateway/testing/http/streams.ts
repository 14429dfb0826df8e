import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { eventually } from '#scheduler/testing/fixture.ts';
import { ASYNC, frames, type Harness, json, SSE } from './harness.ts';

/** Tests of the behaviour that all event streams share. */
export function describeStreams(get: () => Harness): void {
  describe('a stream', () => {
    /** Channels of Redis with subscribers. */
    const channels = async () =>
      ((await get().platform.scheduler.store.call((redis) => redis.pubsub('CHANNELS', 'pie:*'))) as string[]).sort();

    it('is not opened for HEAD, which leaves no listener behind and cancels nothing', async () => {
      const h = get();
      const id = await h.submit();
      const channelsBefore = await channels();
      for (const path of ['/v1/logs', '/v1/functions/echo/logs', `/v1/invocations/${id}/events`]) {
        const headers = { ...SSE, prefer: 'cancel-on-disconnect' };
        for (let i = 0; i < 3; i++) {
          const head = await h.send(path, { method: 'HEAD', headers });
          assert.deepEqual([head.status, await head.text()], [200, ''], path);
          assert.match(head.headers.get('content-type') ?? '', /^text\/event-stream/);
        }
      }
      // No new channel, but perhaps fewer: subscriptions of clients of earlier tests may end meanwhile.
      const hasNewChannel = async () => (await channels()).some((name) => !channelsBefore.includes(name));
      await eventually(async () => !(await hasNewChannel()), 'no listener is left');
      assert.equal((await h.ask(`/v1/invocations/${id}`)).body.status, 'queued');
      await h.ask(`/v1/invocations/${id}`, { method: 'DELETE' });
    });

    it('is closed everywhere once its client has left', async () => {
      const h = get();
      await h.platform.register({ name: 'left' });
      const { id } = await json(await h.send('/v1/functions/left/invocations', { method: 'POST', headers: ASYNC }));
      /** True while a gateway follows this invocation or the logs of its function. */
      const isFollowed = async () => (await channels()).some((name) => name.includes(id) || name.includes(':left'));
      for (const path of [`/v1/invocations/${id}/events`, '/v1/functions/left/logs', '/v1/logs']) {
        const leave = new AbortController();
        const response = await h.send(path, { headers: SSE, signal: leave.signal });
        await eventually(isFollowed, `${path} is followed`);
        // This assertion also keeps the response reachable: `fetch` ends the stream of a response that is collected as garbage.
        assert.equal(response.status, 200);
        leave.abort();
        await eventually(async () => !(await isFollowed()), `${path} is not followed any more`);
      }
      await h.ask(`/v1/invocations/${id}`, { method: 'DELETE' });
    });

    it('ends when its key is removed or its tenant is suspended, and leaves the invocation alone', async () => {
      const h = get();
      const { scheduler } = h.platform;
      await h.platform.register({ name: 'revoked' }, 'revoked');
      const admin = { authorization: `Bearer ${await h.platform.key(['admin'], 'revoked')}` };
      const submit = { method: 'POST', headers: { ...admin, prefer: 'respond-async' } };
      const { id } = await json(await h.send('/v1/functions/revoked/invocations', submit));
      const attempt = await h.platform.attempt(id);
      const lastFramesAfter = async (revoke: (keyId: string) => Promise<unknown>) => {
        const reader = { authorization: `Bearer ${await h.platform.key(['invoke'], 'revoked')}` };
        const { keyId } = (await h.ask('/v1/keys/self', { headers: reader })).body;
        const headers = { ...reader, ...SSE, prefer: 'cancel-on-disconnect' };
        const responses = await Promise.all(
          [`/v1/invocations/${id}/events`, '/v1/logs', '/v1/functions/revoked/logs'].map((path) =>
            h.send(path, { headers }),
          ),
        );
        await revoke(keyId);
        return Promise.all(
          responses.map(async (response) => {
            const last = (await frames(response)).at(-1);
            const { code, resumable } = JSON.parse(last?.data ?? '{}');
            return [last?.event, last?.hasId, code, resumable];
          }),
        );
      };
      const threeErrors = (code: string) => Array(3).fill(['error', false, code, false]);
      assert.deepEqual(
        await lastFramesAfter((keyId) => scheduler.apiKeys.remove('revoked', keyId)),
        threeErrors('unauthorized'),
      );
      const suspend = (suspended: boolean) => scheduler.tenants.change('revoked', { suspended });
      assert.deepEqual(await lastFramesAfter(() => suspend(true)), threeErrors('tenant-suspended'));
      await suspend(false);
      await attempt.succeed(1);
      assert.equal((await scheduler.invocations.get(id))?.status, 'succeeded');
    });
  });
}

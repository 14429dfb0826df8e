import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { frames, type Harness } from './harness.ts';
import { SUITE_LIMITS } from './suite.ts';

const TEXT = 'text/plain; charset=utf-8';

/** Tests of files between a client and its invocation. */
export function describeFiles(get: () => Harness): void {
  describe('files', () => {
    const put = (id: string, name: string, body: string | Uint8Array<ArrayBuffer>, type = TEXT) =>
      get().ask(`/v1/invocations/${id}/files/${name}`, { method: 'PUT', body, headers: { 'content-type': type } });

    it('files are sent in both directions with their types and outlive the invocation', async () => {
      const h = get();
      const { attempt } = await h.stream();
      const { id } = attempt;
      const putAnswer = await put(id, 'a.txt', 'grüß');
      assert.deepEqual([putAnswer.status, putAnswer.body], [200, { name: 'a.txt', mediaType: TEXT, bytes: 6 }]);
      const stored = await h.platform.scheduler.files.get(id, 'a.txt');
      assert.equal(Buffer.from(stored?.content ?? []).toString(), 'grüß');
      assert.equal((await put(id, 'a.txt', 'new', 'image/png')).body.mediaType, 'image/png');

      const bytes = new Uint8Array(256).map((_, i) => i);
      await attempt.sendFile('b_1-2.bin', 'application/x-own', bytes);
      await attempt.succeed(1);
      const [fileEvent] = (await frames(await h.send(`/v1/invocations/${id}/events`))).filter(
        ({ event }) => event === 'message',
      );
      const file = { name: 'b_1-2.bin', mediaType: 'application/x-own', bytes: 256 };
      assert.deepEqual(JSON.parse(fileEvent?.data ?? ''), { file });

      const answer = await h.send(`/v1/invocations/${id}/files/b_1-2.bin`);
      assert.equal(answer.headers.get('content-type'), 'application/x-own');
      assert.match(answer.headers.get('content-disposition') ?? '', /^attachment/);
      assert.deepEqual(new Uint8Array(await answer.arrayBuffer()), bytes);
      const listed = await h.ask(`/v1/invocations/${id}/files`);
      assert.deepEqual(listed.body, { files: [{ name: 'a.txt', mediaType: 'image/png', bytes: 3 }, file] });
      h.refused(await put(id, 'late', ''), 'conflict');

      const client = h.platform.client(h.platform.apiKey, h.target.url);
      assert.deepEqual(await client.files(id), listed.body.files);
      assert.deepEqual((await client.file(id, 'b_1-2.bin')).content, bytes);
    });

    it('a file that is too large, badly named or of an invalid type is refused and not stored', async () => {
      const h = get();
      const id = await h.submit();
      h.refused(await put(id, 'big', 'x'.repeat(SUITE_LIMITS.fileBytes + 1)), 'body-too-large');
      h.refused(await put(id, 'a b', 'x'), 'invalid-input', 'name');
      h.refused(await put(id, 'x'.repeat(129), 'x'), 'invalid-input', 'name');
      h.refused(await put(id, 'a', 'x', 'nonsense'), 'unsupported-media-type');
      assert.deepEqual((await h.ask(`/v1/invocations/${id}/files`)).body, { files: [] });
      assert.equal((await put(id, 'empty', '')).body.bytes, 0);
      h.refused(await h.ask(`/v1/invocations/${id}/files/none`), 'unknown-file');
      h.refused(await h.ask('/v1/invocations/nothing/files/none'), 'unknown-invocation');
      h.refused(await h.ask('/v1/invocations/nothing/files'), 'unknown-invocation');
      h.refused(await put('nothing', 'a', 'x'), 'unknown-invocation');
    });

    it('files are not visible to another tenant, and a key without the invoke scope cannot store them', async () => {
      const h = get();
      const id = await h.submit();
      await put(id, 'mine', 'x');
      const other = { authorization: `Bearer ${await h.platform.key(['admin'], 'other')}` };
      const deployer = { authorization: `Bearer ${await h.platform.key(['deploy'])}` };
      const path = `/v1/invocations/${id}/files`;
      h.refused(await h.ask(path, { headers: other }), 'unknown-invocation');
      h.refused(await h.ask(`${path}/mine`, { headers: other }), 'unknown-invocation');
      h.refused(await h.ask(`${path}/mine`, { method: 'PUT', body: 'y', headers: other }), 'unknown-invocation');
      h.refused(await h.ask(`${path}/mine`, { method: 'PUT', body: 'y', headers: deployer }), 'forbidden');
    });

    it('a file can be stored for a child invocation, whose state names its parent', async () => {
      const h = get();
      const { attempt: parent } = await h.stream();
      const { scheduler, lease } = h.platform;
      const record = await scheduler.invocations.get(parent.id);
      assert.ok(record);
      const id = `${parent.id}-child`;
      const { tenant, function: name, version, arrival, epoch } = record;
      const times = { submittedAt: Date.now(), deadlineMs: 60_000 };
      const origin = { parent: parent.id, parentEpoch: epoch, root: parent.id, runtimeId: lease.id };
      await scheduler.invocations.beginChild(
        { id, tenant, function: name, version, arrival, ...times, ...origin },
        't',
      );
      const state = await h.ask(`/v1/invocations/${id}`);
      assert.deepEqual([state.body.parent, state.body.status], [parent.id, 'running']);
      assert.equal((await put(id, 'a', 'x')).status, 200);
      const { asked } = await h.platform.cancelOf(id);
      assert.equal((await h.ask(`/v1/invocations/${id}`, { method: 'DELETE' })).status, 202);
      await asked;
    });
  });
}

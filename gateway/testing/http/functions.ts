import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { componentBytes } from '../platform.ts';
import { type Harness, JSON_TYPE } from './harness.ts';
import { SUITE_LIMITS } from './suite.ts';

/** Tests of deploying, listing, inspecting and removing functions. */
export function describeFunctions(get: () => Harness): void {
  describe('functions', () => {
    it('functions are listed and inspected', async () => {
      const h = get();
      const version = await h.platform.register({ name: 'listed', description: 'first' });
      const newer = await h.platform.register({ name: 'listed', description: 'second' });
      const { body } = await h.ask('/v1/functions/listed');
      assert.deepEqual([body.name, body.version, body.manifest.description], ['listed', newer, 'second']);
      assert.equal((await h.ask(`/v1/functions/listed@${version}`)).body.manifest.description, 'first');
      const { versions } = (await h.ask('/v1/functions/listed/versions')).body;
      assert.deepEqual(new Set(versions.map((entry: { version: string }) => entry.version)), new Set([version, newer]));
      assert.ok(
        (await h.ask('/v1/functions')).body.functions.some((entry: { name: string }) => entry.name === 'listed'),
      );
      for (const unknown of ['nothing', 'nothing@live', '@', 'list%3Aed']) {
        h.refused(await h.ask(`/v1/functions/${unknown}`), 'unknown-function');
      }
      for (const unknown of ['listed@000000000000', 'listed@nope', 'listed@']) {
        h.refused(await h.ask(`/v1/functions/${unknown}`), 'unknown-alias');
      }
      h.refused(await h.ask('/v1/functions/nothing/versions'), 'unknown-function');
    });

    it('functions are removed', async () => {
      const h = get();
      await h.platform.register({ name: 'removed' });
      assert.equal((await h.send('/v1/functions/removed', { method: 'DELETE' })).status, 204);
      h.refused(await h.ask('/v1/functions/removed'), 'unknown-function');
      h.refused(await h.ask('/v1/functions/removed', { method: 'DELETE' }), 'unknown-function');
    });

    it('functions are deployed, and identical content is recognised', async () => {
      const h = get();
      const first = await h.deploy({ name: 'story', description: 'a' }, componentBytes('1'));
      assert.deepEqual(
        [first.status, first.body.created, first.body.name],
        [201, true, 'story'],
        JSON.stringify(first.body),
      );
      assert.equal(first.headers.get('location'), `/v1/functions/story@${first.body.version}`);
      const buildCount = h.platform.built.length;
      const again = await h.deploy({ description: 'a', name: 'story' }, componentBytes('1'));
      assert.deepEqual([again.status, again.body.created, again.body.version], [200, false, first.body.version]);
      assert.equal(h.platform.built.length, buildCount, 'identical content is not built again');
      const other = await h.deploy({ name: 'story', description: 'a' }, componentBytes('2'));
      assert.notEqual(other.body.version, first.body.version);
      assert.equal((await h.ask('/v1/functions/story')).body.version, other.body.version);
    });

    it('a faulty deployment is refused with the code of its fault, and nothing is stored', async () => {
      const h = get();
      const good = { name: 'bad' };
      const stored = async () => (await h.platform.client().functions()).map(({ name }) => name);
      const core = new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0]);
      const formRequest = (body: string) => ({
        method: 'PUT',
        body,
        headers: { 'content-type': 'multipart/form-data; boundary=b' },
      });
      h.refused(await h.deploy(good, new Uint8Array()), 'not-wasm');
      h.refused(await h.deploy(good, new TextEncoder().encode('export default 1')), 'not-wasm');
      h.refused(await h.deploy(good, core), 'core-module');
      h.refused(await h.deploy(good, componentBytes('x'.repeat(SUITE_LIMITS.componentBytes))), 'component-too-large');
      h.refused(await h.deploy('{"name": ', componentBytes(), 'bad'), 'malformed-json');
      h.refused(await h.deploy('[]', componentBytes(), 'bad'), 'invalid-manifest', '/name');
      h.refused(await h.deploy(good, componentBytes(), 'other'), 'invalid-manifest', '/name');
      h.refused(
        await h.deploy({ name: 'bad', limits: { cpuMs: -1 } }, componentBytes()),
        'invalid-manifest',
        '/limits/cpuMs',
      );
      h.refused(
        await h.deploy({ name: 'bad', input: { type: 'strin' } }, componentBytes()),
        'invalid-manifest',
        '/input/type',
      );
      h.refused(await h.deploy({ name: 'Bad_Name' }, componentBytes()), 'invalid-manifest', '/name');
      h.refused(
        await h.ask('/v1/functions/bad', { method: 'PUT', body: '{}', headers: JSON_TYPE }),
        'unsupported-media-type',
      );
      h.refused(await h.ask('/v1/functions/bad', formRequest('')), 'malformed-request');
      h.refused(
        await h.ask(
          '/v1/functions/bad',
          formRequest('--b\r\nContent-Disposition: form-data; name="manifest"\r\n\r\n{}\r\n--b--'),
        ),
        'malformed-request',
      );
      for (const code of [
        'wrong-world',
        'build-failed',
        'build-timeout',
        'runtime-unavailable',
        'too-many-requests',
      ] as const) {
        h.platform.build = () => ({
          ok: false,
          code,
          message: `the builder says ${code}`,
          hint: 'the builder knows',
        });
        const answer = await h.deploy(good, componentBytes(code));
        h.refused(answer, code);
        assert.deepEqual([answer.body.detail, answer.body.hint], [`the builder says ${code}`, 'the builder knows']);
      }
      h.platform.build = () => ({ ok: true, artifact: {} });
      assert.equal((await stored()).includes('bad'), false);
      const blobs = await h.platform.scheduler.store.call((redis) => redis.keys('pie:blob:*'));
      const used = new Set(
        (await Promise.all((await stored()).map((fn) => h.platform.client().versions(fn))))
          .flat()
          .map((version) => `pie:blob:${version.componentHash}`),
      );
      assert.deepEqual(
        blobs.filter((key) => !key.endsWith(':users') && !used.has(key)),
        [],
      );
    });
  });
}

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, describe, test } from 'node:test';
import { CollectedLog } from '#scheduler/testing/log.ts';
import type { Logger } from '../policies/logger.ts';
import type { Scheduler } from '../scheduler.ts';
import { durably } from '../store/testing/lost-writes.ts';
import { definedScripts, eventually, openTestScheduler } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import type { BuildReply, BuildRequest } from './builds.ts';

const REFUSED: BuildReply = { ok: false, code: 'not-wasm', message: 'no magic', hint: 'compile it first' };

describe('builds and deployments', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await TestRedis.start({ appendOnly: true });
  });
  after(() => redis.stop());

  async function withBuilder(
    build: (request: BuildRequest, signal: AbortSignal, scheduler: Scheduler) => Promise<BuildReply>,
    body: (scheduler: Scheduler) => Promise<void>,
    log?: Logger,
  ): Promise<void> {
    const scheduler = openTestScheduler(redis, { ...(log && { log }) });
    const lease = await scheduler.runtimes.acquire({ name: 'runtime-1', slots: 1 });
    const worker = scheduler.createBuildWorker({
      runtimeId: 'runtime',
      build: (request, signal) => build(request, signal, scheduler),
    });
    worker.start();
    try {
      await body(scheduler);
    } finally {
      await worker.close();
      await lease.release();
      await scheduler.close();
    }
  }

  test('a successful build is registered, and the same component is built once', async () => {
    let builds = 0;
    await withBuilder(
      async (request, _signal, scheduler) => {
        builds += 1;
        const bytes = await scheduler.blobs.get(request.componentHash);
        return { ok: true, artifact: { bytes: bytes?.length, memoryMb: request.memoryMb } };
      },
      async (scheduler) => {
        const deployment = {
          tenant: 'default',
          manifest: { name: 'story', limits: { memoryMb: 32 } },
          component: new Uint8Array([1, 2, 3]),
        };
        const first = await scheduler.deployments.deploy(deployment);
        assert.ok(first.ok && first.created);
        assert.deepEqual(first.version.build, { bytes: 3, memoryMb: 32 });
        assert.deepEqual(await scheduler.functions.get('default', 'story'), first.version);
        assert.deepEqual(definedScripts(scheduler.store), [], 'BullMQ has defined no scripts on this connection');
        const second = await scheduler.deployments.deploy(deployment);
        assert.ok(second.ok && !second.created);
        assert.deepEqual(second.version, first.version);
        assert.equal(builds, 1);
      },
    );
  });

  test('the requester of a failed build gets a message without paths of the machine; the log has the whole error', async () => {
    const log = new CollectedLog();
    await withBuilder(
      async ({ name }) => {
        if (name === 'thrown') await readFile('/no/such/folder/glue.js');
        const message = "The build stopped: EACCES: permission denied, open '/srv/pie/artifacts/glue.js'";
        return { ok: false, code: 'build-failed', message, hint: 'none' };
      },
      async (scheduler) => {
        const messageOf = async (name: string) => {
          const component = new TextEncoder().encode(name);
          const reply = await scheduler.deployments.deploy({ tenant: 'default', manifest: { name }, component });
          assert.ok(!reply.ok && reply.code === 'build-failed');
          return reply.message;
        };
        assert.equal(await messageOf('thrown'), 'ENOENT: no such file or directory, open');
        assert.equal(await messageOf('returned'), "The build stopped: EACCES: permission denied, open 'glue.js'");
      },
      log,
    );
    const logged = log.records.map(({ fields }) => String(fields.error ?? fields.cause));
    assert.equal(logged.length, 2);
    for (const [index, path] of ['/no/such/folder/glue.js', '/srv/pie/artifacts/glue.js'].entries())
      assert.ok(logged[index]?.includes(path), logged[index]);
  });

  test('a refused component leaves no blob, no build request and no function', async () => {
    await withBuilder(
      async (request) => {
        if (request.name === 'broken') throw new Error('the compiler fell over');
        return REFUSED;
      },
      async (scheduler) => {
        const component = new Uint8Array([9]);
        assert.deepEqual(
          await scheduler.deployments.deploy({ tenant: 'default', manifest: { name: 'story' }, component }),
          REFUSED,
        );
        const broken = await scheduler.deployments.deploy({
          tenant: 'default',
          manifest: { name: 'broken' },
          component,
        });
        assert.ok(!broken.ok && broken.code === 'build-failed' && broken.message === 'the compiler fell over');
        assert.deepEqual(await scheduler.functions.list('default'), []);
        const { redis: client, keys } = scheduler.store;
        await eventually(
          async () => (await client.keys(`${keys.prefix}:blob:*`)).length === 0,
          'the component is removed',
        );
        await eventually(
          async () => (await client.keys(`${keys.bull}:builds:????????-*`)).length === 0,
          'the request is removed',
        );
      },
    );
  });

  test('a build past its deadline is aborted in the builder and times out for the caller', async () => {
    let hasBegun = false;
    let isAborted = false;
    await withBuilder(
      (_request, signal) =>
        new Promise((resolve) => {
          hasBegun = true;
          signal.addEventListener('abort', () => {
            isAborted = true;
            setTimeout(() => resolve(REFUSED), 100);
          });
        }),
      async (scheduler) => {
        const request = { tenant: 'default', name: 'slow', componentHash: 'x', memoryMb: 1 };
        // A busy runtime may fetch the build after its deadline, and then does not begin it: retry with a longer deadline.
        for (let deadlineMs = 200; !hasBegun; deadlineMs *= 2) {
          const reply = await scheduler.builds.request(request, { deadlineMs });
          assert.ok(!reply.ok && reply.code === 'build-timeout');
        }
        await eventually(() => isAborted, 'the builder is aborted');
      },
    );
  });

  test('a build request without a runtime fails as runtime-unavailable', async () => {
    const scheduler = openTestScheduler(redis);
    const request = { tenant: 'default', name: 'story', componentHash: 'x', memoryMb: 1 };
    const reply = await scheduler.builds.request(request, { deadlineMs: 100 });
    assert.ok(!reply.ok && reply.code === 'runtime-unavailable');
    await scheduler.close();
  });

  test('a build that is under way during a restart of Redis still delivers its reply', async () => {
    const begun = Promise.withResolvers<void>();
    const go = Promise.withResolvers<void>();
    await withBuilder(
      async () => {
        begun.resolve();
        await go.promise;
        return { ok: true, artifact: {} };
      },
      async (scheduler) => {
        const request = { tenant: 'default', name: 'story', componentHash: 'x', memoryMb: 1 };
        // The restart kills Redis. The request must be on disk by then.
        const { reply } = await durably(redis, async () => {
          const reply = scheduler.builds.request(request);
          await begun.promise;
          return { reply };
        });
        await redis.restart();
        go.resolve();
        assert.deepEqual(await reply, { ok: true, artifact: {} });
      },
    );
  });
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Versions } from '#scheduler/links/versions.ts';
import { GREEDY, generate, must, Oracle, startTestHost } from '../testing/host.ts';
import { GpuHostConnection } from './client.ts';
import { Link } from './link.ts';
import { PROTOCOL_VERSIONS } from './wire.ts';

const THIS_RELEASE: Versions = PROTOCOL_VERSIONS;
/** A made-up next release, which also speaks the version of this one. */
const NEXT_RELEASE: Versions = { oldest: THIS_RELEASE.newest, newest: THIS_RELEASE.newest + 1 };
/** Versions of a later release that has none in common with this one. */
const TOO_NEW: Versions = { oldest: THIS_RELEASE.newest + 1, newest: THIS_RELEASE.newest + 2 };

/** The version that a runtime agrees on with the host at `address`, or the reason why the link was lost. */
async function agreedVersion(address: string, versions: Versions): Promise<number | string> {
  return new Promise((resolve) => {
    const events = {
      onHello: () => {
        resolve(link.version);
        link.close('the test has seen it');
      },
      onStats: () => undefined,
      onLost: resolve,
    };
    const link = new Link(address, events, versions);
  });
}

test('runtimes and GPU hosts of neighbouring releases work together, and both speak the newest version in common', async () => {
  const pairs = [
    [THIS_RELEASE, THIS_RELEASE, THIS_RELEASE.newest],
    [NEXT_RELEASE, THIS_RELEASE, THIS_RELEASE.newest],
    [THIS_RELEASE, NEXT_RELEASE, THIS_RELEASE.newest],
  ] as const;
  for (const [runtimeVersions, hostVersions, version] of pairs) {
    await using host = await startTestHost({ host: { versions: hostVersions } });
    const oracle = await Oracle.of(host.model);
    assert.equal(await agreedVersion(host.address, runtimeVersions), version);
    const connection = await GpuHostConnection.connect(host.address, { versions: runtimeVersions });
    try {
      const inferlet = connection.openInferlet({ id: 'a', maxPages: 8, arrival: 1 });
      const tokens = await generate(inferlet, inferlet.createQueue('tiny'), [1, 5], 12);
      assert.deepEqual(tokens, await oracle.greedy([1, 5], 12));
      assert.equal((await connection.stats()).models[0]?.name, 'tiny');
      const queue = inferlet.createQueue('tiny');
      const pages = must(inferlet.allocatePages(queue, 1));
      const none = new Uint32Array();
      const request = { token: 1, position: 0, pages, maxTokens: 2, sampler: GREEDY, stopTokens: none };
      const changes = { frequency: 1, presence: 0, biasTokens: none, biasValues: new Float32Array(), chosen: none };
      const run = inferlet.run(queue, { ...request, changes });
      const chunk = await run.next();
      assert.equal(must(chunk).tokens.length > 0, true);
      run.stop();
      inferlet.send(queue, { op: 'stop-queue' });
      await assert.rejects(generate(inferlet, queue, [1, 5], 2), /has stopped the queue/);
      await inferlet.close();
    } finally {
      connection.close();
    }
  }
});

test('without a common version, both sides name the side that is too old; they connect once they have a common version', async () => {
  for (const [runtimeVersions, hostVersions, oldSide] of [
    [THIS_RELEASE, TOO_NEW, 'runtime'],
    [TOO_NEW, THIS_RELEASE, 'GPU host'],
  ] as const) {
    const options = { host: { versions: hostVersions as Versions } };
    await using host = await startTestHost(options);
    let refusals = 0;
    const refused = Promise.withResolvers<string>();
    const connection = GpuHostConnection.open(host.address, {
      versions: runtimeVersions,
      onRefused: (why) => {
        refusals++;
        refused.resolve(why);
      },
      reconnectMs: { first: 1, longest: 1 },
    });
    try {
      assert.match(
        await refused.promise,
        new RegExp(`The ${oldSide} is too old .* Install a newer release of Pie on .* ${oldSide}\\.`),
      );
      assert.match(String(await agreedVersion(host.address, runtimeVersions)), /\(version\): The .* is too old/);
      assert.deepEqual([refusals, connection.connected], [1, false], 'the connection waits for `retry`');
      await host.stop();
      options.host.versions = runtimeVersions;
      await host.restart();
      const ready = new Promise<void>((resolve) => connection.onReady(resolve));
      connection.retry();
      await ready;
      const inferlet = connection.openInferlet({ id: 'a', maxPages: 8, arrival: 1 });
      must(await inferlet.synchronize(inferlet.createQueue('tiny')));
    } finally {
      connection.close();
    }
  }
});

test('a host ends the connection of a runtime whose hello has no readable versions', async () => {
  await using host = await startTestHost();
  // The last one leaves the versions out of the hello.
  const unstated = { ...THIS_RELEASE, toJSON: () => undefined };
  for (const versions of [{ oldest: 3, newest: 2 }, { oldest: -1, newest: 2 }, {}, unstated])
    assert.match(
      String(await agreedVersion(host.address, versions as Versions)),
      /\(malformed\): a hello without readable/,
    );
});

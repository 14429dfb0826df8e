import assert from 'node:assert/strict';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { DEFAULT_LIMITS } from '#scheduler/functions/manifest.ts';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { failingLog } from '#scheduler/testing/log.ts';
import { ArtifactCollector, artifactWanted } from './artifact-collector.ts';
import { type Artifact, readArtifact } from './build/index.ts';
import { memoryPagesOf } from './pool/launcher.ts';
import type { ScriptArtifact } from './pool/scripts.ts';
import { testArtifact } from './testing/components.ts';
import { RuntimePlatform } from './testing/platform.ts';
import { callbackGuest, RETURN_42, watComponent } from './testing/wat.ts';

/** Guests of a few hundred bytes, because the tests build each of them several times. ECHO returns its input, OTHER returns 42. */
const ECHO = callbackGuest({ run: '(call $return (i32.const 0) (local.get 0) (local.get 1)) (i32.const 0)' });
const OTHER = callbackGuest({ run: `${RETURN_42} (i32.const 0)` });
const LONG_AGO = new Date(0);

describe('the collector of artifacts', () => {
  let platform: RuntimePlatform;
  let store: string;
  before(async () => {
    store = await mkdtemp(join(tmpdir(), 'pie-artifacts-'));
    platform = await RuntimePlatform.start({ runtime: { artifactsDirectory: store, builds: 2 } });
  });
  after(async () => {
    await platform.stop();
    await rm(store, { recursive: true, force: true });
  });

  const artifactNames = async () => (await readdir(store)).filter((name) => !name.startsWith('.tmp-')).sort();
  const collector = (options: Partial<ConstructorParameters<typeof ArtifactCollector>[0]> = {}) =>
    new ArtifactCollector({
      store,
      isWanted: artifactWanted(platform.scheduler, DEFAULT_LIMITS),
      unusedMs: 0,
      log: failingLog,
      ...options,
    });
  /** Removes the function with all its versions, or (`wholeFunction` false) only this version; no alias may then name the version. */
  const remove = async ({ tenant, name, version }: FunctionVersion, wholeFunction = true) => {
    const { removals, functions } = platform.scheduler;
    if (wholeFunction) await removals.removeFunction(tenant, name, true);
    else await removals.removeVersion(tenant, name, version, true);
    await eventually(async () => {
      await removals.sweep();
      return (await functions.runnable(tenant, name, version)) === null;
    }, `${name} is gone`);
  };
  /** Puts a component's artifact into the store, so that the next deploy need not build it. */
  const prepare = async (component: Uint8Array, memoryMb = DEFAULT_LIMITS.memoryMb) => {
    const { hash, directory } = await testArtifact(component, memoryPagesOf(memoryMb));
    await cp(directory, join(store, hash), { recursive: true });
  };
  /** Copies the artifact `hash` under the hash `to`, and returns `to`. */
  const copyArtifact = async (hash: string, to: string): Promise<string> => {
    await cp(join(store, hash), join(store, to), { recursive: true });
    const meta = await readFile(join(store, to, 'artifact.json'), 'utf8');
    await writeFile(join(store, to, 'artifact.json'), meta.replaceAll(hash, to));
    return to;
  };
  const answer = async (version: FunctionVersion, input: unknown) =>
    (await platform.invoke(version, input)).end.data.output;

  it('removes artifacts without a version, and keeps those of deployed or draining versions', async () => {
    const component = await watComponent(ECHO);
    await prepare(component);
    const keptVersion = await platform.deploy(component, { name: 'kept' });
    const [keptHash = ''] = await artifactNames();
    await prepare(component, 32);
    const withoutAlias = { alias: null };
    const small = await platform.scheduler.deployments.deploy({
      tenant: 'default',
      manifest: { name: 'kept', limits: { memoryMb: 32 } },
      component,
      placement: withoutAlias,
    });
    assert.ok(small.ok);
    assert.equal((await artifactNames()).length, 2);
    // The current toolchain would give `old` another hash, as if another toolchain had made it. `broken` has no valid description.
    const [old, broken] = [await copyArtifact(keptHash, '0'.repeat(64)), '1'.repeat(64)];
    assert.ok(await readArtifact(store, old), 'the copied artifact is complete');
    await mkdir(join(store, broken));
    await writeFile(join(store, broken, 'artifact.json'), '{');

    const artifactCollector = collector();
    assert.deepEqual((await artifactCollector.round()).sort(), [old, broken]);
    assert.equal((await artifactNames()).length, 2);
    await remove(small.version, false);
    assert.equal((await artifactCollector.round()).length, 1);
    assert.deepEqual(await artifactNames(), [keptHash]);
    assert.equal(await answer(keptVersion, 'a'), 'a');
    await remove(keptVersion);
    assert.deepEqual(await artifactCollector.round(), [keptHash]);
    assert.deepEqual(await readdir(store), [], 'the store is empty, without set-aside artifacts');

    // The deploy builds the removed artifact again.
    const again = await platform.deploy(component, { name: 'again' });
    assert.deepEqual(await artifactNames(), [keptHash]);
    assert.equal(await answer(again, 'b'), 'b');
    await remove(again);
  });

  it('keeps artifacts that this or another process begins to use just before the removal', async () => {
    const version = await platform.deploy(await watComponent(ECHO), { name: 'used' });
    await remove(version);
    const [name = ''] = await artifactNames();
    const path = join(store, name);
    // Another process that reads an artifact sets the time of the artifact's folder.
    const uses: [copyHash: string, use: (artifact: Artifact) => Promise<unknown>][] = [
      ['a'.repeat(64), ({ hash }) => readArtifact(store, hash)],
      ['b'.repeat(64), ({ directory }) => utimes(directory, new Date(), new Date())],
    ];
    for (const [copyHash, use] of uses) {
      // The copy looks unused for a long time, so that only `use` protects it.
      const copy = await copyArtifact(name, copyHash);
      await utimes(join(store, copy), LONG_AGO, LONG_AGO);
      const collectorWithUse = collector({
        unusedMs: 3_600_000,
        isWanted: async (artifact) => {
          if (artifact.meta.hash === copy) await use(artifact as Artifact);
          return false;
        },
      });
      assert.deepEqual(await collectorWithUse.round(), []);
      const artifact = await readArtifact(store, copy);
      assert.ok(artifact);
      for (const file of artifact.coreModules) await readFile(join(store, copy, file));
      await rm(join(store, copy), { recursive: true });
    }
    const unused = await copyArtifact(name, 'c'.repeat(64));
    await utimes(join(store, unused), LONG_AGO, LONG_AGO);
    assert.deepEqual(await collector({ unusedMs: 3_600_000, isWanted: async () => false }).round(), [unused]);
    await utimes(path, LONG_AGO, LONG_AGO);
    assert.deepEqual(await collector({ unusedMs: 3_600_000, isWanted: async () => false }).round(), []);
    assert.deepEqual(await artifactNames(), [name], 'this process has read the artifact');
    const missing = 'd'.repeat(64);
    assert.equal(await readArtifact(store, missing), null);
    await utimes(join(store, await copyArtifact(name, missing)), LONG_AGO, LONG_AGO);
    assert.deepEqual(
      await collector({ unusedMs: 3_600_000, isWanted: async () => false }).round(),
      [missing],
      'the failed read of a missing artifact does not protect a later artifact of this name',
    );
  });

  it('removes unused artifacts while concurrent deploys succeed', async () => {
    const components = await Promise.all([watComponent(ECHO), watComponent(OTHER)]);
    const first = await platform.deploy(components[0] ?? '', { name: 'first' });
    const [name = ''] = await artifactNames();
    const unusedHashes = Array.from({ length: 24 }, (_, i) => `${i.toString(16)}`.padStart(64, '0'));
    for (const other of unusedHashes) {
      await cp(join(store, name), join(store, other), { recursive: true });
      await utimes(join(store, other), LONG_AGO, LONG_AGO);
    }
    const busy = collector({ lookedAtOnce: 2, unusedMs: 600_000 });
    let deploying = true;
    const collecting = (async () => {
      const removed: string[] = [];
      // The pause leaves the processor to the builds: one build lasts as long as hundreds of rounds.
      for (; deploying || removed.length < unusedHashes.length; await sleep(10)) removed.push(...(await busy.round()));
      return removed;
    })();
    const versions = await Promise.all(
      [16, 64].flatMap((memoryMb) =>
        components.map((component, i) =>
          platform.deploy(component, { name: `busy-${memoryMb}-${i}`, limits: { memoryMb } }),
        ),
      ),
    );
    deploying = false;
    assert.deepEqual((await collecting).sort(), unusedHashes);
    for (const [i, version] of versions.entries()) {
      assert.equal(await answer(version, 'c'), i % 2 === 0 ? 'c' : 42);
    }
    // Two components with two memory limits give four artifacts; `first` shares one of them.
    assert.equal((await artifactNames()).length, 4);
    for (const version of [first, ...versions]) await remove(version);
    assert.deepEqual(platform.errors, []);
  });

  it('continues after an artifact whose check fails', async () => {
    const { hash, directory } = await testArtifact(await watComponent(ECHO), memoryPagesOf(DEFAULT_LIMITS.memoryMb));
    const folder = await mkdtemp(join(tmpdir(), 'pie-artifacts-'));
    try {
      const [bad, good] = ['0'.repeat(64), '1'.repeat(64)];
      for (const name of [bad, good]) {
        await cp(directory, join(folder, name), { recursive: true });
        const meta = await readFile(join(folder, name, 'artifact.json'), 'utf8');
        await writeFile(join(folder, name, 'artifact.json'), meta.replaceAll(hash, name));
      }
      const isWanted = async ({ meta }: Pick<Artifact, 'meta'> | ScriptArtifact) => {
        if (meta.hash === bad) throw new Error('a version of another release');
        return false;
      };
      const artifactCollector = collector({ store: folder, isWanted });
      await assert.rejects(artifactCollector.round(), /another release/);
      assert.deepEqual(await artifactCollector.round(), [good]);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it('keeps all artifacts while the scheduler does not answer', async () => {
    const namesBefore = await artifactNames();
    assert.ok(namesBefore.length > 0);
    const failing = collector({ isWanted: () => Promise.reject(new Error('Redis is away')) });
    await assert.rejects(failing.round(), /Redis is away/);
    assert.deepEqual(await artifactNames(), namesBefore);
  });
});

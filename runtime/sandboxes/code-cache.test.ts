import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, rm, utimes } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { openCodeCache } from './code-cache.ts';
import type { ConfinedProgram } from './command.ts';
import type { Report } from './fixtures/compiled.ts';
import { layersFor, probeMachine, runConfined } from './index.ts';

const MAIN = fileURLToPath(new URL('fixtures/compiled.ts', import.meta.url));
const LOADING: ConfinedProgram = { main: MAIN, args: [], read: [] };
const LIMITS = { timeoutMs: 60_000, memoryMb: 512 };
const DAY_MS = 24 * 3600 * 1000;
const probe = await probeMachine();
const skip = !('command' in probe.bubblewrap) && 'no namespaces here';

describe('compiled code of confined programs', { skip }, () => {
  const layers = layersFor('auto', probe);
  const { signal } = new AbortController();
  let folder: string;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'pie-code-'));
  });
  after(() => rm(folder, { recursive: true }));

  const open = (program = LOADING, until = signal) => openCodeCache({ folder, program, layers, signal: until });
  const reportWith = async (codeCache: string | undefined): Promise<Report> => {
    const with_ = codeCache === undefined ? layers : { ...layers, codeCache };
    const { output, errors } = await runConfined(with_, { ...LOADING, args: ['report'] }, LIMITS);
    assert.ok(output.startsWith('{'), errors);
    return JSON.parse(output) as Report;
  };

  it('is loaded by them, and they cannot change it', async () => {
    const cache = open();
    await cache?.filled;
    const { compiles, environment, changes } = await reportWith(cache?.directory);
    assert.equal(compiles, false);
    assert.deepEqual(environment, []);
    assert.deepEqual(changes, {
      'write a new file': 'EROFS',
      'write a file that is there': 'EROFS',
      'remove a file': 'EROFS',
    });
  });

  it('is left out by them while it is not there', async () => {
    for (const codeCache of [undefined, join(folder, 'nothing')]) {
      const { compiles, folder: used } = await reportWith(codeCache);
      assert.deepEqual([compiles, used], [true, null]);
    }
  });

  it('is kept for later starts, and made again for other sources and flags', async () => {
    const cache = open();
    await cache?.filled;
    // A second run would not begin.
    const again = open(LOADING, AbortSignal.abort());
    await again?.filled;
    assert.equal(again?.directory, cache?.directory);
    const others = [open({ ...LOADING, once: true }), open({ ...LOADING, read: [fileURLToPath(import.meta.url)] })];
    await Promise.all(others.map((other) => other?.filled));
    assert.equal(new Set([cache, ...others].map((each) => each?.directory)).size, 3);
  });

  it('is removed when no start has used it for days, and a run that breaks off leaves nothing', async () => {
    const unused = join(folder, 'unused');
    const recent = join(folder, 'recent');
    for (const [path, days] of [
      [unused, 4],
      [recent, 2],
    ] as const) {
      await mkdir(path);
      const usedAt = new Date(Date.now() - days * DAY_MS);
      await utimes(path, usedAt, usedAt);
    }
    const broken = new AbortController();
    const program = { ...LOADING, read: [fileURLToPath(new URL('layers.ts', import.meta.url))] };
    const cache = open(program, broken.signal);
    broken.abort(new Error('stopped'));
    await assert.rejects(cache?.filled ?? Promise.resolve(), /stopped/);
    await open(program)?.filled;
    const names = await readdir(folder);
    assert.deepEqual([names.includes('unused'), names.includes('recent')], [false, true]);
    assert.deepEqual(
      names.filter((name) => name.startsWith('.')),
      [],
    );
  });
});

it('is not kept without namespaces, where nothing would refuse a change', () => {
  const folder = join(tmpdir(), 'pie-code-none');
  const options = {
    folder,
    program: LOADING,
    layers: layersFor('process', probe),
    signal: new AbortController().signal,
  };
  assert.equal(openCodeCache(options), null);
});

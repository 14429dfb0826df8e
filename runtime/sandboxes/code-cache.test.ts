import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rm, stat, utimes } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { eventually } from '#scheduler/testing/fixture.ts';
import { failingLog } from '#scheduler/testing/log.ts';
import { type CodeCacheOptions, openCodeCache, type ProgramCode } from './code-cache.ts';
import type { ConfinedProgram } from './command.ts';
import type { Report } from './fixtures/compiled.ts';
import { layersFor, probeMachine, runConfined } from './index.ts';

const MAIN = fileURLToPath(new URL('fixtures/compiled.ts', import.meta.url));
const LOADING: ConfinedProgram = { main: MAIN, args: [], read: [] };
const LIMITS = { timeoutMs: 240_000, memoryMb: 512 };
const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;
/** Program that opens a cache in the folder of its first argument. Once the cache is filled, it prints the folder's names and the errors. */
const OPENS_CACHE = fileURLToPath(new URL('fixtures/opens-cache.ts', import.meta.url));
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

  const open = (code: ProgramCode = { program: LOADING }, more: Partial<CodeCacheOptions> = {}) =>
    openCodeCache({ folder, code, layers, signal, log: failingLog, ...more });
  /** Makes a folder, or changes an existing one, so that its last use was `agoMs` ago. */
  const makeOldFolder = async (name: string, agoMs: number): Promise<void> => {
    const path = join(folder, name);
    await mkdir(path, { recursive: true });
    const usedAt = new Date(Date.now() - agoMs);
    await utimes(path, usedAt, usedAt);
  };
  const reportWith = async (codeCache: string | undefined): Promise<Report> => {
    const usedLayers = codeCache === undefined ? layers : { ...layers, codeCache };
    const { output, errors } = await runConfined(usedLayers, { ...LOADING, args: ['report'] }, LIMITS);
    assert.ok(output.startsWith('{'), errors);
    return JSON.parse(output) as Report;
  };

  it('is loaded by confined programs, which cannot change it', async () => {
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

  it('is compiled by each confined program itself while the folder is missing', async () => {
    for (const codeCache of [undefined, join(folder, 'nothing')]) {
      const { compiles, folder: used } = await reportWith(codeCache);
      assert.deepEqual([compiles, used], [true, null]);
    }
  });

  it('is found by a later start, and has another folder for other sources and flags', async () => {
    const cache = open();
    await cache?.filled;
    assert.ok(existsSync(cache?.directory ?? ''));
    // Runs fail with this wrapper, and the log throws, so the code must be there already.
    const again = open({ program: LOADING }, { layers: { ...layers, wrapper: ['false'] } });
    await again?.filled;
    assert.equal(again?.directory, cache?.directory);
    const more = [fileURLToPath(import.meta.url)];
    const otherCaches = [
      open({ program: { ...LOADING, once: true } }),
      open({ program: { ...LOADING, read: more } }),
      open({ program: LOADING, sources: [...more, fileURLToPath(new URL('layers.ts', import.meta.url))] }),
    ];
    await Promise.all(otherCaches.map((other) => other?.filled));
    assert.equal(new Set([cache, ...otherCaches].map((each) => each?.directory)).size, 4);
  });

  it('is removed at a start when no process has used it for days, and an aborted run leaves no folder', async () => {
    await makeOldFolder('unused', 4 * DAY_MS);
    await makeOldFolder('recent', 2 * DAY_MS);
    const broken = new AbortController();
    const code = { program: { ...LOADING, read: [fileURLToPath(new URL('layers.ts', import.meta.url))] } };
    const cache = open(code, { signal: broken.signal });
    broken.abort(new Error('stopped'));
    await cache?.filled;
    assert.equal(existsSync(cache?.directory ?? ''), false);
    await open(code)?.filled;
    const names = await readdir(folder);
    assert.deepEqual([names.includes('unused'), names.includes('recent')], [false, true]);
    assert.deepEqual(
      names.filter((name) => name.startsWith('.')),
      [],
    );
  });

  it('is marked as used by a process, which fills the folder again when the folder is missing', async () => {
    const using = new AbortController();
    const cache = open({ program: LOADING }, { signal: using.signal, checkMs: 20 });
    const directory = cache?.directory ?? '';
    try {
      await cache?.filled;
      await makeOldFolder(basename(directory), 4 * DAY_MS);
      await eventually(async () => (await stat(directory)).mtimeMs > Date.now() - DAY_MS, 'it is marked');
      await rm(directory, { recursive: true });
      await eventually(() => Promise.resolve(existsSync(directory)), 'it is filled again');
    } finally {
      using.abort();
    }
  });

  it('is removed at a start when the run that stored it was killed before its end', async () => {
    await open()?.filled;
    await makeOldFolder('.killed', 20 * MINUTE_MS);
    await makeOldFolder('.running', MINUTE_MS);
    await open()?.filled;
    const hiddenNames = (await readdir(folder)).filter((name) => name.startsWith('.'));
    assert.deepEqual(hiddenNames, ['.running']);
  });

  it('is not kept at all when the disk has no room for all of it', async () => {
    const small = join(folder, 'small');
    await mkdir(small);
    const openIn = async (bytes: number): Promise<unknown> => {
      const disk = ['--dev-bind', '/', '/', '--size', String(bytes), '--tmpfs', small];
      // These are the permissions of a runtime; Node refuses some calls to a process that has only these.
      const rights = ['--permission', '--allow-fs-read=*', `--allow-fs-write=${small}`, '--allow-child-process'];
      const { stdout } = await promisify(execFile)('bwrap', [
        ...disk,
        process.execPath,
        ...rights,
        OPENS_CACHE,
        small,
        MAIN,
      ]);
      return JSON.parse(stdout);
    };
    const enough = (await openIn(4 << 20)) as { readonly names: readonly string[]; readonly errors: readonly string[] };
    assert.deepEqual([enough.names.length, enough.errors], [1, []]);
    assert.deepEqual(await openIn(8192), { names: [], errors: ['ENOSPC'] });
  });
});

describe('compiled code of confined programs without namespaces', () => {
  it('is not kept, because nothing would keep a confined program from changing it', () => {
    const folder = join(tmpdir(), 'pie-code-none');
    const options = {
      folder,
      code: { program: LOADING },
      layers: layersFor('process', probe),
      signal: new AbortController().signal,
      log: failingLog,
    };
    assert.equal(openCodeCache(options), null);
  });
});

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, readdir, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { GLUE_FILE, META_FILE, TYPE_FILE } from './artifact/artifact.ts';
import { readPlainFile } from './publish.ts';
import { readArtifactAsItIs, removeTree, takeArtifactFiles } from './store.ts';

/** Only a read without end takes this long. */
const FOREVER = { timeout: 240_000 };

suite('files that a build left', () => {
  let folder = '';
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'pie-plain-'));
  });
  after(() => rm(folder, { recursive: true, force: true }));

  test('a regular file is read up to its bound', async () => {
    const path = join(folder, 'plain');
    await writeFile(path, 'twelve bytes');
    assert.equal(String(await readPlainFile(path, 12)), 'twelve bytes');
    await assert.rejects(readPlainFile(path, 11), /12 bytes; 11 is the limit/);
  });

  test('a link, a device, a pipe and a folder are refused', FOREVER, async () => {
    const [link, pipe] = [join(folder, 'link'), join(folder, 'pipe')];
    await symlink('/dev/zero', link);
    execFileSync('mkfifo', [pipe]);
    await assert.rejects(readPlainFile(link, 10), { code: 'ELOOP' });
    for (const path of ['/dev/zero', pipe, folder])
      await assert.rejects(readPlainFile(path, 10), /is not a regular file/);
  });

  test('a folder whose description is a pipe or too long is not taken for an artifact', FOREVER, async () => {
    await mkdir(join(folder, 'piped'));
    execFileSync('mkfifo', [join(folder, 'piped', META_FILE)]);
    assert.equal(await readArtifactAsItIs(folder, 'piped'), null);
    await mkdir(join(folder, 'long'));
    await writeFile(join(folder, 'long', META_FILE), '{}');
    // A sparse file: it takes no space on the disk, but a read would take a gigabyte of memory.
    await truncate(join(folder, 'long', META_FILE), 2 ** 30);
    assert.equal(await readArtifactAsItIs(folder, 'long'), null);
  });

  test(
    'only the files of an artifact are taken, up to a number of bytes and never through a link',
    FOREVER,
    async () => {
      const [from, to] = [join(folder, 'from'), join(folder, 'to')];
      const makeArtifact = async (moduleBytes: number) => {
        await Promise.all([from, to].map((path) => rm(path, { recursive: true, force: true })));
        await mkdir(from);
        for (const name of ['app.core.wasm', GLUE_FILE, TYPE_FILE, 'plan.json', 'filler'])
          await writeFile(join(from, name), '');
        await truncate(join(from, 'app.core.wasm'), moduleBytes);
        await writeFile(join(from, META_FILE), JSON.stringify(description));
      };
      await makeArtifact(2 ** 20);
      await takeArtifactFiles(from, to);
      assert.deepEqual((await readdir(to)).sort(), ['app.core.wasm', GLUE_FILE, META_FILE, TYPE_FILE].sort());
      await makeArtifact(2 ** 29);
      await assert.rejects(takeArtifactFiles(from, to), /more than 268435456 bytes/);
      await makeArtifact(0);
      await rm(join(from, TYPE_FILE));
      await symlink('/dev/zero', join(from, TYPE_FILE));
      await assert.rejects(takeArtifactFiles(from, to), /package\.json of the artifact is not a regular file/);
      const [link, other] = [join(folder, 'linked'), join(folder, 'other')];
      await makeArtifact(0);
      await symlink(from, link);
      await assert.rejects(takeArtifactFiles(link, other), /the artifact is not a folder/);
      assert.ok((await readdir(from)).includes(META_FILE));
    },
  );

  test('folders that are nested beyond the longest path are removed', FOREVER, async () => {
    const deep = join(folder, 'deep');
    await mkdir(deep);
    const nest = `for (let i = 0; i < 30; i++) { fs.mkdirSync('d'.repeat(200)); process.chdir('d'.repeat(200)); }`;
    execFileSync(process.execPath, ['-e', nest], { cwd: deep });
    await removeTree(deep);
    assert.ok(!(await readdir(folder)).includes('deep'));
  });
});

const HASH = '0'.repeat(64);
const description = {
  hash: HASH,
  component: { hash: HASH, bytes: 1 },
  options: { memoryPages: 1 },
  toolchain: {},
  imports: [],
  coreModules: [{ file: 'app.core.wasm', hash: HASH, bytes: 1, checks: 0, role: 'program', memoryPages: [] }],
  glue: { file: GLUE_FILE, bytes: 0, rewrites: [] },
  timings: { checkMs: 0, transpileMs: 0, meterMs: 0, writeMs: 0 },
  createdAt: new Date(0).toISOString(),
};

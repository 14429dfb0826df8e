import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync } from 'node:fs';
import {
  chmod,
  mkdir,
  mkdtemp,
  open as openFile,
  readdir,
  readFile,
  rm,
  symlink,
  utimes,
  writeFile,
} from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { eventually, openTestScheduler } from '#scheduler/testing/fixture.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { CopyReader, CopyWriter, IoTurns, SharedDirectory, SharedDirectoryError } from './shared-directory.ts';

describe('a shared directory', () => {
  let root: string;
  let redis: TestRedis;
  let scheduler: Scheduler;
  before(async () => {
    root = await mkdtemp(path.join(os.tmpdir(), 'pie-shared-'));
    redis = await TestRedis.start();
    scheduler = openTestScheduler(redis);
  });
  after(async () => {
    await scheduler.close();
    await redis.stop();
    await rm(root, { recursive: true, force: true });
  });

  const refused = (directory: string, why: RegExp) =>
    assert.rejects(SharedDirectory.open(directory, scheduler.durableNames), (error) => {
      assert.ok(error instanceof SharedDirectoryError);
      assert.match(error.message, why);
      return true;
    });

  it('is refused at the start unless this user alone can write it', async () => {
    await refused(path.join(root, 'absent'), /cannot be found.*Mount it/);
    await writeFile(path.join(root, 'file'), '');
    await refused(path.join(root, 'file'), /not a directory/);
    const open = path.join(root, 'open');
    await mkdir(open);
    for (const mode of [0o777, 0o770, 0o1777]) {
      await chmod(open, mode);
      await refused(open, /Other users may write.*chmod 700/);
    }
    await mkdir(path.join(open, 'inner'), { mode: 0o700 });
    await chmod(open, 0o777);
    await refused(path.join(open, 'inner'), /Any user may replace/);
    await chmod(open, 0o700);
    await refused('/proc', /must belong|cannot be written|Files cannot/);
    assert.equal(
      await scheduler.durableNames.folder(),
      null,
      'a refused directory has no folder that others would miss',
    );
    await SharedDirectory.open(path.join(open, 'inner'), scheduler.durableNames);
    const folder = await scheduler.durableNames.folder();
    assert.ok(folder !== null);
    assert.deepEqual(await readdir(path.join(open, 'inner'), { recursive: true }), [folder], 'no probe is left');
  });

  it('is refused when the platform already uses another one, as when a mount is missing', async () => {
    const platform = openTestScheduler(redis, { prefix: 'mounts' });
    const { durableNames: names } = platform;
    const mount = path.join(root, 'mount');
    const bare = path.join(root, 'bare');
    for (const directory of [mount, bare]) await mkdir(directory, { mode: 0o700 });
    // When several runtimes open the same directory at once, one of them makes the folder.
    await Promise.all([0, 1, 2].map(() => SharedDirectory.open(mount, names)));
    const [folder = '', ...others] = await readdir(mount);
    assert.deepEqual(others, []);
    const isRefused = (error: unknown) =>
      error instanceof SharedDirectoryError && error.message.includes(`mkdir -m 700 ${path.join(bare, folder)}`);
    await assert.rejects(SharedDirectory.open(bare, names), isRefused);
    assert.deepEqual(await readdir(bare), []);
    await symlink(path.join(mount, folder), path.join(bare, folder));
    await assert.rejects(SharedDirectory.open(bare, names), isRefused);
    await rm(path.join(bare, folder));
    await mkdir(path.join(bare, folder), { mode: 0o700 });
    await SharedDirectory.open(bare, names);
    // When two runtimes open different directories at once, one of them is refused.
    const both = openTestScheduler(redis, { prefix: 'both' });
    const begun = [mount, bare].map((directory) => SharedDirectory.open(directory, both.durableNames));
    const ends = await Promise.allSettled(begun);
    assert.equal(ends.filter(({ status }) => status === 'fulfilled').length, 1);
    for (const each of [platform, both]) await each.close();
  });

  const ownedName = { tenant: 't', model: 'm', kind: 'export', name: 'n' } as const;
  /** Makes a tenant's folder with `count` old files that no entry names. */
  const makeAbandonedFiles = async (turns: IoTurns, count: number) => {
    const mount = await mkdtemp(path.join(root, 'mount-'));
    const platform = openTestScheduler(redis, { prefix: path.basename(mount) });
    const directory = await SharedDirectory.open(mount, platform.durableNames, turns);
    await platform.close();
    const begun = await directory.begin(ownedName);
    assert.ok(begun.tag === 'ok');
    await begun.val.discard();
    const [tenantFolder = ''] = (await readdir(mount, { recursive: true })).filter((name) => name.includes(path.sep));
    const folder = path.join(mount, tenantFolder);
    for (let i = 0; i < count; i++) {
      const file = path.join(folder, `${'a'.repeat(40)}-${i.toString(16).padStart(32, '0')}.kv`);
      await writeFile(file, '');
      await utimes(file, 0, 0);
    }
    return { directory, folder };
  };

  it('a sweep examines 64 files at most, and ends at the first call that hangs', async () => {
    class Turns extends IoTurns {
      calls = 0;
      /** Later calls fail as if the directory hung. */
      lastAnswered = Number.POSITIVE_INFINITY;
      override during<T>(work: () => Promise<T>, undo?: (made: T) => void): Promise<T> {
        return ++this.calls > this.lastAnswered ? Promise.reject(new Error('no answer')) : super.during(work, undo);
      }
    }
    const turns = new Turns();
    const { directory, folder } = await makeAbandonedFiles(turns, 70);
    [turns.calls, turns.lastAnswered] = [0, 3];
    await directory.sweep('t', new Set(), Date.now());
    assert.equal(turns.calls, 4, 'the list, two files, and one that hangs');
    // The first sweep has deleted two files. The second one examines 64 of the others.
    turns.lastAnswered = Number.POSITIVE_INFINITY;
    await directory.sweep('t', new Set(), Date.now());
    assert.equal((await readdir(folder)).length, 70 - 2 - 64);
  });

  it('deletes a discarded file even when its close reports a failed write', async () => {
    const file = path.join(root, 'written');
    const handle = await openFile(file, 'wx');
    // Without its descriptor, the handle can neither write nor close.
    closeSync(handle.fd);
    const writer = new CopyWriter(new IoTurns(), { handle, now: 0, path: file, file: 'f' });
    assert.equal((await writer.write(Buffer.from('x'))).tag, 'err');
    await writer.discard();
    await assert.rejects(readFile(file), { code: 'ENOENT' });
  });

  it('closes files once it answers again, when it hung and they got no turn', async () => {
    const file = path.join(root, 'unfinished');
    const written = await openFile(file, 'wx');
    const read = await openFile(file);
    const turns = new IoTurns(50);
    const hung = Promise.withResolvers<void>();
    await Promise.allSettled([0, 1].map(() => turns.during(() => hung.promise)));
    await new CopyWriter(turns, { handle: written, now: 0, path: file, file: 'f' }).discard();
    await new CopyReader(turns, read).close();
    assert.ok(written.fd >= 0 && read.fd >= 0, 'no thread was free for the closes');
    hung.resolve();
    await eventually(() => written.fd < 0 && read.fd < 0, 'both handles are closed');
    await eventually(async () => !(await readdir(root)).includes('unfinished'), 'the file is deleted');
  });

  it('lets a process end while it hangs', async () => {
    const pipe = path.join(root, 'pipe');
    execFileSync('mkfifo', [pipe]);
    const program = `
      import { open } from 'node:fs/promises';
      import { exitWithoutWaitingFor, IoTurns } from ${JSON.stringify(new URL('shared-directory.ts', import.meta.url).href)};
      const turns = new IoTurns();
      exitWithoutWaitingFor(turns);
      void turns.during(() => open(${JSON.stringify(pipe)}));
      process.stdin.resume().once('end', () => process.exit(1));
      console.log('hangs');
    `;
    const args = ['--permission', '--allow-fs-read=*', '--input-type=module', '--eval', program];
    const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    await once(child.stdout, 'data');
    child.stdin.end();
    const [, signal] = (await once(child, 'close')) as [number | null, string | null];
    assert.equal(signal, 'SIGKILL');
  });

  it('occupies at most two threads while it hangs, and its calls fail in time', async () => {
    const turns = new IoTurns(50);
    const hung = Promise.withResolvers<string>();
    const undone: string[] = [];
    const begun: number[] = [];
    const calls = [0, 1, 2, 3].map((i) =>
      turns.during(
        () => {
          begun.push(i);
          return hung.promise;
        },
        (made) => undone.push(made),
      ),
    );
    for (const end of await Promise.allSettled(calls)) {
      assert.equal(end.status, 'rejected');
      assert.match(String(end.reason), /no answer within 0.05 s/);
    }
    assert.deepEqual(begun, [0, 1]);
    hung.resolve('a handle');
    await hung.promise;
    assert.equal(await turns.during(async () => 'next'), 'next');
    assert.deepEqual(undone, ['a handle', 'a handle']);
  });
});

import assert from 'node:assert/strict';
import { chmod, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { IoTurns } from './io-turns.ts';
import { SharedDirectory, SharedDirectoryError } from './shared-directory.ts';

describe('a shared directory', () => {
  let at: string;
  before(async () => {
    at = await mkdtemp(path.join(os.tmpdir(), 'pie-shared-'));
  });
  after(() => rm(at, { recursive: true, force: true }));

  const folder = '0'.repeat(32);
  const refused = (directory: string, why: RegExp) =>
    assert.rejects(SharedDirectory.open(directory, folder), (error) => {
      assert.ok(error instanceof SharedDirectoryError);
      assert.match(error.message, why);
      return true;
    });

  it('is refused at the start unless this user alone can write it', async () => {
    await refused(path.join(at, 'absent'), /cannot be found.*Mount it/);
    await writeFile(path.join(at, 'file'), '');
    await refused(path.join(at, 'file'), /no directory/);
    const open = path.join(at, 'open');
    await mkdir(open);
    for (const mode of [0o777, 0o770, 0o1777]) {
      await chmod(open, mode);
      await refused(open, /Other users may write.*chmod 700/);
    }
    await mkdir(path.join(open, 'inner'), { mode: 0o700 });
    await chmod(open, 0o777);
    await refused(path.join(open, 'inner'), /Any user may replace/);
    await chmod(open, 0o700);
    await SharedDirectory.open(path.join(open, 'inner'), folder);
    assert.deepEqual(await readdir(path.join(open, 'inner', folder)), [], 'nothing of the probe is left');
    await refused('/proc', /must belong|cannot be written|Files cannot/);
  });

  it('that hangs keeps two threads, and gives errors in time', async () => {
    const turns = new IoTurns(50);
    const hung = Promise.withResolvers<string>();
    const undone: string[] = [];
    const begun: number[] = [];
    const all = [0, 1, 2, 3].map((i) =>
      turns.during(
        () => {
          begun.push(i);
          return hung.promise;
        },
        (made) => undone.push(made),
      ),
    );
    for (const end of await Promise.allSettled(all)) {
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

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, rm, utimes, writeFile } from 'node:fs/promises';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { withLock } from './lock.ts';

describe('withLock', () => {
  let directory: string;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-lock-'));
  });
  after(() => rm(directory, { recursive: true, force: true }));

  it('lets one caller in at a time, and notifies the others that they wait', async () => {
    const file = join(directory, 'one');
    const callers = 8;
    let inside = 0;
    let mostInside = 0;
    let waited = 0;
    const { promise: allWait, resolve } = Promise.withResolvers<void>();
    const onWait = () => {
      waited++;
      if (waited === callers - 1) resolve();
    };
    const enter = () =>
      withLock(file, { pollMs: 5, onWait }, async () => {
        inside++;
        mostInside = Math.max(mostInside, inside);
        // The first holder keeps the lock until `onWait` was called for all others.
        await allWait;
        await delay(1);
        inside--;
      });
    await Promise.all(Array.from({ length: callers }, enter));
    assert.equal(mostInside, 1);
    assert.equal(waited, callers - 1);
    assert.deepEqual(await readdir(directory), []);
  });

  it('releases the lock when the body fails', async () => {
    const file = join(directory, 'fails');
    await assert.rejects(
      withLock(file, {}, async () => {
        throw new Error('body');
      }),
      /body/,
    );
    assert.equal(existsSync(file), false);
  });

  it('takes the lock over from a process that died on this machine', async () => {
    const file = join(directory, 'dead');
    const { pid } = spawnSync(process.execPath, ['-e', '']);
    await writeFile(file, JSON.stringify({ pid, host: hostname(), token: 'gone' }));
    assert.equal(await withLock(file, { pollMs: 5 }, async () => 'in'), 'in');
  });

  it('takes the lock over from a holder on another machine that sends no heartbeat', async () => {
    const file = join(directory, 'far');
    await writeFile(file, JSON.stringify({ pid: 1, host: 'elsewhere', token: 'far' }));
    const abort = new AbortController();
    const waiting = withLock(file, { pollMs: 5, signal: abort.signal, onWait: () => abort.abort() }, async () => 'in');
    await assert.rejects(waiting, { code: 'cancelled' });
    assert.equal(await withLock(file, { pollMs: 5, staleAfterMs: 20 }, async () => 'in'), 'in');
  });

  it('does not take the lock from a living holder when a changed clock makes the file look an hour old', async () => {
    const file = join(directory, 'clock');
    const hourAgo = new Date(Date.now() - 3_600_000);
    const { promise: waits, resolve } = Promise.withResolvers<void>();
    const order: string[] = [];
    const { second } = await withLock(file, {}, async () => {
      await utimes(file, hourAgo, hourAgo);
      const second = withLock(file, { pollMs: 5, onWait: resolve }, async () => order.push('second'));
      await Promise.race([waits, second]);
      order.push('first');
      return { second };
    });
    await second;
    assert.deepEqual(order, ['first', 'second']);
  });

  it('fails when a stale lock cannot be moved', async () => {
    // A file system permits 255 bytes. The name fits with the suffix of a new lock (37 bytes), but not with the suffix of a stale lock (43 bytes).
    const file = join(directory, 'x'.repeat(217));
    await writeFile(file, JSON.stringify({ pid: 1, host: 'elsewhere', token: 'far' }));
    await assert.rejects(
      withLock(file, { pollMs: 5, staleAfterMs: 20, signal: AbortSignal.timeout(5000) }, async () => 'in'),
      { code: 'ENAMETOOLONG' },
    );
  });
});

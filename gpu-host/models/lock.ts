import { randomUUID } from 'node:crypto';
import { link, open, readFile, rename, rm, stat, utimes } from 'node:fs/promises';
import { hostname } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { z } from 'zod';
import { isAlive } from '../process-alive.ts';
import { ModelError } from './errors.ts';

export interface LockOptions {
  readonly signal?: AbortSignal | undefined;
  /** Called once when another holder has the lock. */
  readonly onWait?: () => void;
  /** A holder without a heartbeat for this long counts as dead. 30 s by default. */
  readonly staleAfterMs?: number;
  /** Wait between two tries to take the lock. 200 ms by default. */
  readonly pollMs?: number;
}

/** A lock of another holder. */
interface HeldLock {
  readonly holder: Holder | null;
  /** Changes with each heartbeat of the holder. */
  readonly beat: string;
}

type Holder = z.infer<typeof holderSchema>;
const holderSchema = z.object({ pid: z.int(), host: z.string(), token: z.string() });

/**
 * Runs `body` while holding a lock file, across processes and machines that share the directory. Waits while another holder has the lock, and takes
 * the lock over from a dead holder. A holder is dead if its process on this machine has ended, or if it has not touched the file for `staleAfterMs`.
 *
 * The waiting process measures `staleAfterMs` by the number of its polls, not by a clock: the clocks of machines differ and may be set, and a pause
 * of the waiting process counts as only one poll.
 *
 * The lock saves work and disk. Published models stay correct without it, because publishing is a rename of checked content.
 *
 * @throws ModelError `cancelled` when the signal fires while waiting
 */
export async function withLock<T>(file: string, options: LockOptions, body: () => Promise<T>): Promise<T> {
  const { signal, staleAfterMs = 30_000, pollMs = 200 } = options;
  const token = randomUUID();
  let hasNotified = false;
  let beat: string | undefined;
  let silentMs = 0;
  while (!(await tryTake(file, token))) {
    if (signal?.aborted) throw cancelled();
    const heldLock = await readLock(file);
    if (heldLock === null) continue;
    silentMs = heldLock.beat === beat ? silentMs + pollMs : 0;
    beat = heldLock.beat;
    if (isDead(heldLock) || silentMs >= staleAfterMs) {
      await removeStale(file, heldLock);
      continue;
    }
    if (!hasNotified) options.onWait?.();
    hasNotified = true;
    await delay(pollMs, undefined, signal === undefined ? {} : { signal }).catch(() => {
      throw cancelled();
    });
  }
  // Six heartbeats within `staleAfterMs`, so that a few late or failed heartbeats do no harm.
  const heartbeat = setInterval(() => {
    const now = new Date();
    // A failure only makes the lock look older; the next beat tries again.
    utimes(file, now, now).catch(() => undefined);
  }, staleAfterMs / 6);
  heartbeat.unref();
  try {
    return await body();
  } finally {
    clearInterval(heartbeat);
    if ((await readHolder(file))?.token === token) await rm(file, { force: true });
  }
}

async function tryTake(file: string, token: string): Promise<boolean> {
  // Write a separate file and link it into place, so that no process ever reads half a lock.
  const preparedFile = `${file}.${token}`;
  const handle = await open(preparedFile, 'wx');
  try {
    await handle.writeFile(JSON.stringify({ pid: process.pid, host: hostname(), token }));
    await handle.close();
    await link(preparedFile, file);
    return true;
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw cause;
  } finally {
    // The handle is already closed unless the write failed; the caller then gets the write's error.
    await handle.close().catch(() => undefined);
    await rm(preparedFile, { force: true });
  }
}

/** The lock in the file, or null when its holder has released it meanwhile. */
async function readLock(file: string): Promise<HeldLock | null> {
  const holder = await readHolder(file);
  const stats = await stat(file, { bigint: true }).catch(() => null);
  return stats && { holder, beat: `${holder?.token} ${stats.mtimeNs}` };
}

function isDead({ holder }: HeldLock): boolean {
  return holder !== null && holder.host === hostname() && !isAlive(holder.pid);
}

async function removeStale(file: string, { holder }: HeldLock): Promise<void> {
  // Rename first: if several processes find the lock stale, only one can move it. That process then checks that it moved no newer lock.
  const staleFile = `${file}.stale-${randomUUID()}`;
  try {
    await rename(file, staleFile);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw cause;
  }
  const movedHolder = await readHolder(staleFile);
  // Put a newer lock back, unless another process has taken the lock meanwhile.
  if (movedHolder?.token !== holder?.token) await link(staleFile, file).catch(() => undefined);
  await rm(staleFile, { force: true });
}

async function readHolder(file: string): Promise<Holder | null> {
  try {
    return holderSchema.parse(JSON.parse(await readFile(file, 'utf8')));
  } catch {
    return null;
  }
}

function cancelled(): ModelError {
  return new ModelError('cancelled', 'cancelled while waiting for another pull of the same model');
}

import {
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import type { Config } from './config.ts';
import { ConfigError } from './config-error.ts';

const PID_FILE = 'supervisor.pid';
/** Name of a file that marks a home during a restore. A platform must not start in it: it would delete files whose records are not restored yet. */
const RESTORING = 'restoring';
/** Matches the command lines of the programs that claim a home: the supervisor, and `pie`, which npm starts through a link. */
const OWNER_COMMAND_LINE = /infra\/up\.|gateway\/cli\/|\/pie\0.*(backup|restore)\0/s;

/** Throws {@link ConfigError} when a running platform owns the home. */
export function assertHomeFree({ home, runDirectory }: Pick<Config, 'home' | 'runDirectory'>): void {
  const owner = readPid(path.join(runDirectory, PID_FILE));
  if (owner === null || owner === process.pid || !isPlatform(owner)) return;
  throw inUse(home, owner);
}

function inUse(home: string, owner: number): ConfigError {
  return new ConfigError(
    `${home} is in use by a running platform (process ${owner}). Stop it, or set PIE_HOME and PIE_PORT to run a second one.`,
  );
}

/** Marks a home as one in which a restore has begun, until the returned function is called. */
export function markRestoring({ home }: Pick<Config, 'home'>): () => void {
  const mark = path.join(home, RESTORING);
  writeFileSync(mark, '');
  return () => rmSync(mark, { force: true });
}

/** Throws {@link ConfigError} when a restore into the home has begun and not ended. */
export function assertRestored({ home }: Pick<Config, 'home'>): void {
  if (!existsSync(path.join(home, RESTORING))) return;
  throw new ConfigError(
    `A restore into ${home} broke off, and a part of the platform is missing. Run \`pie restore FILE --force\` again.`,
  );
}

type Directories = Pick<Config, 'home' | 'runDirectory' | 'logsDirectory' | 'artifactsDirectory'>;

/**
 * Creates the home's folders and claims the home for this process: one platform per home. Returns a function that releases the claim.
 *
 * @throws ConfigError when a running platform owns the home, or when its run directory is not this user's alone
 */
export function claimHome(config: Directories): () => void {
  for (const directory of [config.home, config.runDirectory, config.logsDirectory, config.artifactsDirectory]) {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
  }
  assertOwnRunDirectory(config);
  const pidFile = path.join(config.runDirectory, PID_FILE);
  const claim = takePidFile(pidFile, config.home);
  return () => {
    if (readPid(pidFile) === process.pid) rmSync(pidFile, { force: true });
    // The file is missing if the home was deleted, or if this is a second call and another process has claimed the home since.
    attempt('ENOENT', () => truncateSync(claim));
  };
}

/**
 * The run directory of a home with a long path lies in the system's directory for temporary files, and other users can guess its name. A user
 * who creates it first could put false sockets and a false list of machines into it.
 */
function assertOwnRunDirectory({ home, runDirectory }: Directories): void {
  if (runDirectory.startsWith(`${home}${path.sep}`)) return;
  const stats = lstatSync(runDirectory);
  const isOwn = stats.isDirectory() && stats.uid === process.getuid?.();
  if (isOwn && (stats.mode & 0o077) === 0) return;
  const why = isOwn ? 'other users may enter it' : 'it is no directory of this user';
  throw new ConfigError(
    `${runDirectory} is the place for the sockets of ${home}, but ${why}. Remove it, or set PIE_HOME to a directory with a shorter path.`,
  );
}

/**
 * Makes this process the owner in `pidFile`; of several processes that try at once, one succeeds. The process whose claim has the highest number is
 * the owner. When it is dead or has released its claim, another process takes the next number by making a link, which only one process can do.
 *
 * @returns the file of the claim. An empty file is a released claim; the file stays so that its number is not used again.
 * @throws ConfigError when a platform owns the home
 */
function takePidFile(pidFile: string, home: string): string {
  // A link appears with its content, so no process reads half a pid.
  const ownPidFile = `${pidFile}.${process.pid}`;
  const claim = (number: number): string => `${pidFile}.claim-${number}`;
  writeFileSync(ownPidFile, String(process.pid));
  try {
    for (;;) {
      const numbers = claimNumbers(pidFile);
      const lastNumber = Math.max(0, ...numbers);
      for (const owner of [readPid(claim(lastNumber)), readPid(pidFile)])
        if (owner !== null && owner !== process.pid && isPlatform(owner)) throw inUse(home, owner);
      const nextNumber = lastNumber + 1;
      if (!attempt('EEXIST', () => linkSync(ownPidFile, claim(nextNumber)))) continue;
      if (Math.max(...claimNumbers(pidFile)) > nextNumber) {
        // Since this process read the claims, others have taken this number and the next one, and removed the claim with this number.
        rmSync(claim(nextNumber), { force: true });
        continue;
      }
      renameSync(ownPidFile, pidFile);
      for (const number of numbers) rmSync(claim(number), { force: true });
      return claim(nextNumber);
    }
  } finally {
    rmSync(ownPidFile, { force: true });
  }
}

function claimNumbers(pidFile: string): number[] {
  const start = `${path.basename(pidFile)}.claim-`;
  const names = readdirSync(path.dirname(pidFile)).filter((name) => name.startsWith(start));
  return names.map((name) => Number(name.slice(start.length))).filter(Number.isInteger);
}

/** Runs an operation on files. False when it fails with `code`. */
function attempt(code: string, operation: () => void): boolean {
  try {
    operation();
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === code) return false;
    throw error;
  }
}

function readPid(file: string): number | null {
  try {
    const pid = Number(readFileSync(file, 'utf8'));
    return Number.isInteger(pid) && pid > 1 ? pid : null;
  } catch {
    return null; // No supervisor has claimed the home.
  }
}

/** A pid file outlives a killed supervisor, and the kernel reuses pids, so a living process counts only when it is a platform. */
function isPlatform(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    // EPERM: a process of another user, which may be a platform, too.
    if ((error as NodeJS.ErrnoException).code !== 'EPERM') return false;
  }
  try {
    // `kill` and `/proc` also accept the id of a thread. Pids of a container begin anew with each start, so the id of an earlier supervisor
    // is often that of a thread of this process.
    const [, owner] = /^Tgid:\s+(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
    if (owner !== undefined && Number(owner) !== pid) return false;
    return OWNER_COMMAND_LINE.test(readFileSync(`/proc/${pid}/cmdline`, 'utf8'));
  } catch {
    return true; // No /proc here: believe the pid file.
  }
}

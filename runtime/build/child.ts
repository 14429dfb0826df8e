import { spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { packageFolders } from '#infra/install.ts';
import { BuildError, type BuildFailure } from './outcome.ts';

/** Program that runs in the child. */
const MAIN = fileURLToPath(new URL('main.ts', import.meta.url));
/** What the child's code and its tools are made of. Not the whole repository: a home with keys may lie in it. */
const CODE = [
  ...['runtime/build', 'wit', 'package.json'].map((path) => fileURLToPath(new URL(`../../${path}`, import.meta.url))),
  ...packageFolders(),
];

/** How often the child's resident memory is looked at. It can pass the limit by what it touches in that time. */
const MEMORY_POLL_MS = 50;
/** Bound on what a child may print. */
const MAX_OUTPUT_BYTES = 4 * 2 ** 20;
const KERNEL_PAGE_BYTES = 4096;

export interface ChildLimits {
  /** Wall-clock time, after which the child and its group are killed. */
  readonly timeoutMs: number;
  /** Resident memory of the child. */
  readonly memoryMb: number;
  readonly signal?: AbortSignal | undefined;
}

/** What a child may touch beyond reading its own code. */
export interface ChildPermissions {
  readonly read: readonly string[];
  readonly write: readonly string[];
  /** Native addons and child processes: what the bundler and the QuickJS componentizer need. */
  readonly native: boolean;
}

/**
 * Runs `main.ts` with these arguments in a process group of its own, under Node's permission model, and answers the JSON line that it
 * prints last. The whole group is killed at the time limit, when memory passes its limit, and when the signal aborts; it ends
 * itself when this process dies, and by the kernel's CPU limit if it cannot. Throws BuildError `build-timeout` or `build-failed`, or the signal's reason.
 */
export async function runStage<T extends { readonly ok: true }>(
  args: readonly string[],
  permissions: ChildPermissions,
  limits: ChildLimits,
): Promise<T | BuildFailure> {
  limits.signal?.throwIfAborted();
  const cpuSeconds = Math.ceil((limits.timeoutMs / 1000) * 4) + 1;
  const node = [...nodeFlags(permissions, limits), MAIN, ...args, '--json'];
  const child = spawn(
    '/bin/sh',
    ['-c', `ulimit -c 0; ulimit -t ${cpuSeconds}; exec "$0" "$@"`, process.execPath, ...node],
    // The pipe to its standard input closes when this process dies, and then it ends.
    { detached: true, stdio: ['pipe', 'pipe', 'pipe'], env: environment() },
  );
  let killed: Error | null = null;
  const kill = (reason: Error) => {
    killed ??= reason;
    killGroup(child.pid);
  };
  const onAbort = () => kill(limits.signal?.reason instanceof Error ? limits.signal.reason : new Error('aborted'));
  const timer = setTimeout(() => kill(timeout(limits.timeoutMs)), limits.timeoutMs);
  const poll = setInterval(
    () => void overLimit(child.pid, limits.memoryMb).then((over) => over && kill(memory(limits.memoryMb))),
    MEMORY_POLL_MS,
  );
  limits.signal?.addEventListener('abort', onAbort, { once: true });
  try {
    const output = collect(child.stdout);
    const errors = collect(child.stderr);
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', resolve);
    });
    if (killed) throw killed;
    const last = output().trimEnd().split('\n').at(-1) ?? '';
    if (!last.startsWith('{')) throw crashed(code, errors());
    return JSON.parse(last) as T | BuildFailure;
  } finally {
    clearTimeout(timer);
    clearInterval(poll);
    limits.signal?.removeEventListener('abort', onAbort);
    killGroup(child.pid);
  }
}

function nodeFlags({ read, write, native }: ChildPermissions, { memoryMb }: ChildLimits): string[] {
  return [
    '--permission',
    // jco's own WASI shim starts a thread; it is held to the same permissions.
    '--allow-worker',
    ...[...CODE, ...read].map((path) => `--allow-fs-read=${path}`),
    ...write.map((path) => `--allow-fs-write=${path}`),
    ...(native ? ['--allow-addons', '--allow-child-process', '--disable-warning=SecurityWarning'] : []),
    `--max-old-space-size=${Math.max(64, Math.floor(memoryMb / 2))}`,
  ];
}

/** The child gets no secrets: only what it takes to find programs and a place for temporary files. */
function environment(): NodeJS.ProcessEnv {
  const { PATH, HOME, TMPDIR } = process.env;
  return { PIE_LIFELINE: 'stdin', ...(PATH ? { PATH } : {}), ...(HOME ? { HOME } : {}), ...(TMPDIR ? { TMPDIR } : {}) };
}

function killGroup(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // Every process of the group has ended.
  }
}

function collect(stream: NodeJS.ReadableStream): () => string {
  const chunks: Buffer[] = [];
  let bytes = 0;
  stream.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes <= MAX_OUTPUT_BYTES) chunks.push(chunk);
  });
  return () => Buffer.concat(chunks).toString('utf8');
}

/** Whether the process holds more than that; where /proc does not tell, the heap limit alone holds. */
async function overLimit(pid: number | undefined, memoryMb: number): Promise<boolean> {
  try {
    const pages = Number((await readFile(`/proc/${pid}/statm`, 'utf8')).split(' ')[1]);
    return pages * KERNEL_PAGE_BYTES > memoryMb * 2 ** 20;
  } catch {
    return false;
  }
}

const timeout = (timeoutMs: number): BuildError =>
  new BuildError(
    'build-timeout',
    `The build took longer than ${timeoutMs / 1000} s and was stopped.`,
    'Make the component smaller, or raise the build time limit of the platform.',
  );

const memory = (memoryMb: number): BuildError =>
  new BuildError(
    'build-failed',
    `The build needed more than ${memoryMb} MiB of memory and was stopped.`,
    'Make the component smaller, or raise the build memory limit of the platform.',
  );

function crashed(code: number | null, errors: string): BuildError {
  const last = errors.trim().split('\n').slice(-5).join('\n').slice(-2000);
  const cause = /heap out of memory|Allocation failed/.test(errors) ? 'it ran out of memory' : last || 'no message';
  return new BuildError(
    'build-failed',
    `The build process ended with ${code === null ? 'a signal' : `code ${code}`}: ${cause}`,
    'Try again; if it happens again, make the component smaller or report it.',
  );
}

import type { WorkerOptions } from 'node:worker_threads';

/** Node's environment variable for the folder of compiled code. */
const COMPILE_CACHE = 'NODE_COMPILE_CACHE';

/**
 * Environment and arguments of a worker thread that may read these files and folders. While it loads its code, it may also write the compile
 * cache of this process, if there is one: Node uses no other. Its program then calls `giveUpWriting`.
 */
export function threadRights(readable: readonly string[]): Required<Pick<WorkerOptions, 'env' | 'execArgv'>> {
  const cache = process.env[COMPILE_CACHE];
  return {
    env: cache ? { [COMPILE_CACHE]: cache } : {},
    execArgv: [
      // A thread may not read links to folders, so it does not follow them when it imports a package.
      ...['--preserve-symlinks', '--permission'],
      ...[...readable, ...(cache ? [cache] : [])].map((path) => `--allow-fs-read=${path}`),
      ...(cache ? [`--allow-fs-write=${cache}`] : []),
    ],
  };
}

/**
 * Gives up the right to write the compile cache. A thread calls this before it takes its first job, because the process itself loads what lies
 * there. Node still writes the code that this thread has compiled when the thread ends.
 */
export function giveUpWriting(): void {
  if (process.env[COMPILE_CACHE] === undefined) return;
  process.permission.drop('fs.write');
  delete process.env[COMPILE_CACHE];
}

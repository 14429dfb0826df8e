import { existsSync, mkdirSync, realpathSync } from 'node:fs';
import path from 'node:path';
import { loadConfig } from '#infra/config.ts';
import { liveSocket, runtimeName } from '#infra/runtimes.ts';
import { ownGroup } from './sandboxes/cgroups.ts';

/** Environment variable that switches the permission model off: the model would block debuggers and profilers. */
const SWITCH = 'PIE_RUNTIME_PERMISSIONS';
/** Node's environment variable for the folder of compiled code. */
const COMPILE_CACHE = 'NODE_COMPILE_CACHE';

/**
 * Puts this process under Node's permission model. The process may then
 * - read every file (models may be anywhere);
 * - write artifacts, the directory that machines share, its compile cache, its socket and its control group;
 * - open network connections;
 * - start children (sandboxes, builds and examinations) and worker threads (grammars, images and texts). `runtime/sandboxes` confines both; the
 *   threads may only read their own code and tokenizers.
 *
 * It may use neither addons nor the inspector. Node reads these flags only when a process starts, so this function replaces the process image once
 * (same pid, arguments and streams). Call it before opening anything.
 */
export function enterPermissions(): void {
  if (process.permission || process.env[SWITCH] === 'off' || !process.execve) return;
  const group = ownGroup();
  const config = loadConfig();
  const compileCache = ownCompileCache();
  const flags = [
    '--permission',
    '--allow-fs-read=*',
    // Node treats a missing path as a file, so make the directory first.
    `--allow-fs-write=${openArtifactsDirectory(config.artifactsDirectory)}`,
    // The socket of this process. An earlier process may have left one at the same path.
    `--allow-fs-write=${liveSocket(config, runtimeName())}`,
    // The directory that machines share has the copies of durable names.
    ...(config.storage.sharedDirectory === undefined ? [] : [`--allow-fs-write=${config.storage.sharedDirectory}`]),
    // The control groups of sandboxes.
    ...('directory' in group ? [`--allow-fs-write=${group.directory}`] : []),
    ...(compileCache === null ? [] : [`--allow-fs-write=${compileCache}`]),
    '--allow-child-process',
    '--allow-worker',
    '--allow-net',
    // SQLite and FFI open files and libraries without asking the permission model.
    '--no-experimental-sqlite',
    '--no-experimental-ffi',
    '--disable-warning=PERM0002',
    '--disable-warning=PERM0006',
    '--disable-warning=ExperimentalWarning',
  ];
  process.execve(process.execPath, [process.execPath, ...flags, ...process.execArgv, ...process.argv.slice(1)], {
    ...process.env,
    ...(compileCache !== null && { [COMPILE_CACHE]: compileCache }),
  });
}

/**
 * Makes the folder of the runtimes' compiled code and returns its path; null when this installation keeps none. Node uses only a cache
 * that it may write; without a cache, a runtime takes 0.5 s longer to load. The folder serves runtimes only: no other process loads what they wrote.
 */
function ownCompileCache(): string | null {
  const shared = process.env[COMPILE_CACHE];
  if (!shared) return null;
  const runtimeCache = path.join(shared, 'runtime');
  try {
    mkdirSync(runtimeCache, { recursive: true });
    return runtimeCache;
  } catch {
    // Without a writable cache, Node compiles the code at each start.
    return null;
  }
}

/**
 * Makes the directory of artifacts and returns its real path, without symbolic links. The permissions of confined processes apply to real
 * paths, and Node loads modules from them.
 */
export function openArtifactsDirectory(directory: string): string {
  // When the path is a symbolic link, `mkdir` needs permission to write to it even if the directory exists.
  if (!existsSync(directory)) mkdirSync(directory, { recursive: true });
  return realpathSync(directory);
}

import { loadConfig } from '#infra/config.ts';
import { liveSocket, runtimeName } from '#infra/runtimes.ts';
import { openArtifactsDirectory } from './artifacts-directory.ts';
import { ownGroup } from './sandboxes/cgroups/own-group.ts';

/** Switches the permission model off, for debuggers and profilers that it keeps from working. */
const SWITCH = 'PIE_RUNTIME_PERMISSIONS';

/**
 * V8 counts inferlets' linear memories as external, and by default begins to collect the whole heap for every 64 MB or so of them: four times a second under load, half a
 * core's worth and pauses of 20 ms. Counted with the heap, they may grow to a multiple of what is alive first.
 */
const COLLECTING = ['--external-memory-accounted-in-global-limit', '--external-memory-max-growing-factor=2'];

/**
 * Puts this process under Node's permission model: it may read files (models lie anywhere), write artifacts, its own socket and its control group, connect, start children
 * (builds and examinations, confined by `runtime/sandboxes`) and worker threads (grammars, pictures and texts, which may only read their own code and tokenizers). No addons, no
 * inspector. It sets when the heap is collected, too. Flags are read when a process starts, so its image is replaced once: the same process id, arguments and standard streams. Call it
 * before anything is opened.
 */
export function enterPermissions(): void {
  if (process.permission || process.env[SWITCH] === 'off' || !process.execve) return;
  const group = ownGroup();
  const config = loadConfig();
  const flags = [
    '--permission',
    '--allow-fs-read=*',
    // What does not exist yet cannot be named as a directory.
    `--allow-fs-write=${openArtifactsDirectory(config.artifactsDirectory)}`,
    // An earlier process may have left it behind.
    `--allow-fs-write=${liveSocket(config, runtimeName())}`,
    // The control groups of sandboxes.
    ...('directory' in group ? [`--allow-fs-write=${group.directory}`] : []),
    '--allow-child-process',
    '--allow-worker',
    '--allow-net',
    // They open files and libraries that the permission model does not ask about.
    '--no-experimental-sqlite',
    '--no-experimental-ffi',
    '--disable-warning=PERM0002',
    '--disable-warning=PERM0006',
    '--disable-warning=ExperimentalWarning',
    ...COLLECTING,
  ];
  process.execve(process.execPath, [process.execPath, ...flags, ...process.execArgv, ...process.argv.slice(1)], {
    ...process.env,
  });
}

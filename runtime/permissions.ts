import { mkdirSync } from 'node:fs';
import { loadConfig } from '#infra/config.ts';

/** Switches the permission model off, for debuggers and profilers that it keeps from working. */
const SWITCH = 'PIE_RUNTIME_PERMISSIONS';

/**
 * Puts this process under Node's permission model: it may read files (models lie anywhere), write artifacts, connect, start children
 * (builds and planning, which have rights of their own) and worker threads (grammars and pictures, which may only read their own code). No addons, no
 * inspector. Flags are read when a process starts, so its image is replaced once: the same process id, arguments and standard streams. Call it
 * before anything is opened.
 */
export function enterPermissions(): void {
  if (process.permission || process.env[SWITCH] === 'off' || !process.execve) return;
  const { artifactsDirectory } = loadConfig();
  // What does not exist yet cannot be named as a directory.
  mkdirSync(artifactsDirectory, { recursive: true });
  const flags = [
    '--permission',
    '--allow-fs-read=*',
    `--allow-fs-write=${artifactsDirectory}`,
    '--allow-child-process',
    '--allow-worker',
    '--allow-net',
    '--disable-warning=PERM0002',
    '--disable-warning=PERM0006',
    '--disable-warning=ExperimentalWarning',
  ];
  process.execve(process.execPath, [process.execPath, ...flags, ...process.execArgv, ...process.argv.slice(1)], {
    ...process.env,
  });
}

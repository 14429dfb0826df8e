// biome-ignore lint/style/noRestrictedImports: this is the place that confines threads.
import { Worker, type WorkerOptions } from 'node:worker_threads';
import { CLOSED_MODULES, CONFINE, CONFINE_URL, outermost } from './command.ts';

export type Thread = Worker;

/** A worker thread that gets untrusted values. */
export interface ConfinedThread {
  /** Main module. */
  readonly program: URL;
  readonly name: string;
  /** Files and folders that contain its code or its inputs. */
  readonly read: readonly string[];
  readonly resourceLimits: NonNullable<WorkerOptions['resourceLimits']>;
  readonly args?: readonly string[];
}

/**
 * Starts a thread that may read the named files and folders and may do nothing else outside of its memory: no network, processes, threads,
 * signals or environment. A thread with its own `execArgv` does not inherit this process's permissions.
 */
export function startConfinedThread({ program, name, read, resourceLimits, args = [] }: ConfinedThread): Worker {
  return new Worker(program, {
    name,
    env: {},
    argv: [...args],
    execArgv: [
      // A thread may not read links to folders, so it does not follow them when it imports a package.
      '--preserve-symlinks',
      '--permission',
      ...outermost([CONFINE, ...read]).map((path) => `--allow-fs-read=${path}`),
      ...CLOSED_MODULES,
      `--import=${CONFINE_URL.href}`,
    ],
    resourceLimits,
  });
}

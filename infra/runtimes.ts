import path from 'node:path';
import type { Config } from './config.ts';

/** Name of the runtime of one machine. */
export const RUNTIME = 'runtime-1';

/** Name of this process's runtime. */
export function runtimeName(): string {
  return process.env.PIE_RUNTIME_ID ?? RUNTIME;
}

/** Where a runtime shows gateways of the same machine events that are not in the log yet. */
export function liveSocket({ runDirectory }: Pick<Config, 'runDirectory'>, name: string): string {
  return path.join(runDirectory, `${name}-live.sock`);
}

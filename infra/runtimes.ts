import { createHash } from 'node:crypto';
import path from 'node:path';
import type { Config } from './config.ts';

/** Name of a machine's runtime among the machine's processes. */
export const RUNTIME = 'runtime-1';

/** Name of this process's runtime. */
export function runtimeName(): string {
  return process.env.PIE_RUNTIME_ID ?? RUNTIME;
}

/** Bounds the socket's path, which the kernel limits to 107 bytes. */
const LONGEST_NAME = 16;

/** Path of the socket on which a runtime shows events that are not in the log yet to gateways on the same machine. */
export function liveSocket({ runDirectory }: Pick<Config, 'runDirectory'>, name: string): string {
  const short =
    name.length <= LONGEST_NAME ? name : createHash('sha256').update(name).digest('hex').slice(0, LONGEST_NAME);
  return path.join(runDirectory, `${short}-live.sock`);
}

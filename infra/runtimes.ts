import { createHash } from 'node:crypto';
import path from 'node:path';
import type { Config } from './config.ts';

/** Name of a machine's runtime among the machine's processes. */
export const RUNTIME = 'runtime-1';

/**
 * Longest start of a GPU host. It loads a large model and builds its graph. The first start with a card also writes a block-quantized model as
 * floats: 128 GB takes 1,280 s at 100 MB a second. The long limit delays no error, since the supervisor notices at once when a process ends.
 */
export const GPU_HOST_READY_MS = 1_800_000;
/** Longest wait of a runtime for a GPU host of another machine. */
const OTHERS_GPU_HOST_READY_MS = 300_000;

/** Longest wait of this machine's runtime for its first GPU host. */
export function gpuHostWaitMs({ gpuHosts }: Pick<Config, 'gpuHosts'>): number {
  return gpuHosts.length > 0 ? GPU_HOST_READY_MS : OTHERS_GPU_HOST_READY_MS;
}

/** Name of this process's runtime. */
export function runtimeName(): string {
  return process.env.PIE_RUNTIME_ID ?? RUNTIME;
}

/** Longest name in a socket's path, which the kernel limits to 107 bytes. */
const LONGEST_NAME = 16;

/** Path of the socket on which a runtime shows events that are not in the log yet to gateways on the same machine. */
export function liveSocket({ runDirectory }: Pick<Config, 'runDirectory'>, name: string): string {
  const short =
    name.length <= LONGEST_NAME ? name : createHash('sha256').update(name).digest('hex').slice(0, LONGEST_NAME);
  return path.join(runDirectory, `${short}-live.sock`);
}

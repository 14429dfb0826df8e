import type { LogitChanges, RunRequest } from '#gpu-host/protocol/calls.ts';
import { failedRun } from '#gpu-host/protocol/run.ts';
import { RunResource } from './fused.ts';
import type { Inferlet } from './inferlet.ts';
import type { DeviceQueue } from './queue.ts';

/** Implements `wit/penalties.wit`. */
export const penalties = {
  'start-run': (inferlet: Inferlet, queue: DeviceQueue, request: RunRequest, changes: LogitChanges): RunResource => {
    // A GPU host of an earlier release does not know the call, and offers no such trait.
    const offered = queue.offering('penalties');
    return new RunResource(inferlet, queue, offered.tag === 'ok' ? { ...request, changes } : failedRun(offered.val));
  },
};

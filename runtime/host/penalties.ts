import type { LogitChanges, RunRequest } from '#gpu-host/protocol/calls.ts';
import { type HandlerError, handlerError } from '#gpu-host/protocol/errors.ts';
import { failedRun } from '#gpu-host/protocol/run.ts';
import { MAX_CHOSEN } from '#gpu-host/protocol/wire.ts';
import { RunResource } from './fused.ts';
import type { Inferlet } from './inferlet.ts';
import type { DeviceQueue } from './queue.ts';

/** Implements `wit/penalties.wit`. */
export const penalties = {
  'start-run': (inferlet: Inferlet, queue: DeviceQueue, request: RunRequest, changes: LogitChanges): RunResource => {
    // A GPU host of an earlier release does not know the call. It does not offer the trait either.
    const offered = queue.offering('penalties');
    const refused = offered.tag === 'err' ? offered.val : refuseChosen(changes);
    return new RunResource(inferlet, queue, refused ? failedRun(refused) : { ...request, changes });
  },
};

/**
 * The error for a list of chosen tokens that is too long. The GPU host accepts longer ones: when a quota caps a run, the request for the rest of the
 * run also lists the tokens before the cap.
 */
function refuseChosen({ chosen: { length } }: LogitChanges): HandlerError | null {
  if (length <= MAX_CHOSEN) return null;
  return handlerError('limit-exceeded', `${length} chosen tokens; ${MAX_CHOSEN} is the limit`);
}

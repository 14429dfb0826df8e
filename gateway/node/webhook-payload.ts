import { type Invocation, partsOf } from '#scheduler/invocations/types.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { jsonWithOutput } from '../app/http/json-text.ts';
import { withOutput } from './present.ts';

/** Larger outputs are left out; the receiver can fetch the invocation. */
const MAX_OUTPUT_BYTES = 256 * 1024;

/**
 * A webhook's body: `{"type": "invocation.ended", "timestamp", "data"}`, where `data` is the answer of `GET /v1/invocations/{id}`.
 * `outputOmitted` is set for a success without its output: one above 256 KiB, or one that was deleted before a late delivery attempt.
 */
export function webhookPayload(scheduler: Pick<Scheduler, 'events'>): (invocation: Invocation) => Promise<string> {
  return async (invocation) => {
    const last = await scheduler.events.terminal(invocation.id, invocation);
    const output = last?.event === 'result' ? (partsOf(last.data)?.output ?? last.data) : '';
    const isLarge = Buffer.byteLength(output) > MAX_OUTPUT_BYTES;
    const { webhook, ...state } = withOutput(invocation, isLarge ? null : last);
    const head = JSON.stringify({ type: 'invocation.ended', timestamp: state.endedAt });
    const isOmitted = state.status === 'succeeded' && !('output' in state);
    const data = jsonWithOutput({ ...state, ...(isOmitted ? { outputOmitted: true } : {}) });
    return `${head.slice(0, -1)},"data":${data}}`;
  };
}

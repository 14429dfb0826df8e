import { GatewayError } from './gateway-error.ts';

/** Time after which a client should ask again. It is a guess: the gateway cannot know when the invocation will end. */
const RETRY_AFTER_S = 1;

/** The refusal of a request whose idempotency key belongs to an invocation that has not ended. */
export function inFlight(id: string): GatewayError {
  return new GatewayError('idempotency-in-flight', `The invocation ${id} of this key has not ended.`, {
    hint: `Attach to it (GET /v1/invocations/${id}/events), or ask again.`,
    members: { invocation: id },
    headers: { location: `/v1/invocations/${id}`, 'retry-after': String(RETRY_AFTER_S), 'x-should-retry': 'true' },
  });
}

import { GatewayError } from '../errors/gateway-error.ts';
import { durationMs } from './durations.ts';

/** Longest time that an invocation may wait and run. */
const MAX_CANCEL_AFTER_MS = 24 * 3_600_000;

/** The `Cancel-After` header in milliseconds. Throws `invalid-input`. */
export function cancelAfterOf(header: string | undefined): number | undefined {
  if (header === undefined) return undefined;
  const ms = durationMs(header.trim());
  if (ms !== null && ms > 0 && ms <= MAX_CANCEL_AFTER_MS) return ms;
  throw new GatewayError('invalid-input', `The header Cancel-After ("${header}") is no time from 1ms to 24h.`, {
    field: 'cancel-after',
    hint: 'Write seconds (`90`), or a number with a unit: `30s`, `5m`, `1h`.',
  });
}

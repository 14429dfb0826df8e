import type { InvokeRequest } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { durationMs } from './durations.ts';

/** Longest time that an invocation may wait and run. */
const MAX_CANCEL_AFTER_MS = 24 * 3_600_000;

const MIN_DEBOUNCE_MS = 1000;
const MAX_DEBOUNCE_MS = 24 * 3_600_000;
/** The default of `Debounce-Max`, as a multiple of the delay. */
const DEBOUNCE_DELAYS = 10;

const TIME_HINT = 'Write seconds (`90`), or a number with a unit: `30s`, `5m`, `1h`.';

/** Reads the `Debounce-…` headers, and checks that the delay is shorter than `cancelAfterMs`. Throws `invalid-input`. */
export function debounceOf(
  headers: Readonly<Partial<Record<'debounce-key' | 'debounce-delay' | 'debounce-max', string>>>,
  cancelAfterMs: number | undefined,
): InvokeRequest['debounce'] {
  const { 'debounce-key': key, 'debounce-delay': delay, 'debounce-max': max } = headers;
  const refused = (field: string, message: string, hint = TIME_HINT) =>
    new GatewayError('invalid-input', message, { field, hint });
  if (key === undefined && delay === undefined && max === undefined) return undefined;
  if (key === undefined) {
    const hint = 'Send all of them, or none. `pie invoke` sends the key with --debounce-key.';
    throw refused('debounce-key', 'Debounce-Delay and Debounce-Max need a Debounce-Key.', hint);
  }
  const delayMs = durationMs(delay?.trim() ?? '');
  if (delayMs === null || delayMs < MIN_DEBOUNCE_MS || delayMs > MAX_DEBOUNCE_MS)
    throw refused('debounce-delay', 'A Debounce-Key needs a Debounce-Delay from 1s to 24h.');
  const maxMs = max === undefined ? Math.min(DEBOUNCE_DELAYS * delayMs, MAX_DEBOUNCE_MS) : durationMs(max.trim());
  if (maxMs === null || maxMs < delayMs || maxMs > MAX_DEBOUNCE_MS)
    throw refused('debounce-max', 'Debounce-Max is a time from the Debounce-Delay to 24h.');
  if (cancelAfterMs !== undefined && cancelAfterMs <= delayMs)
    throw refused(
      'cancel-after',
      'The invocation would reach its Cancel-After before its Debounce-Delay has passed.',
      'Send a longer Cancel-After, or a shorter Debounce-Delay.',
    );
  return { key, delayMs, maxMs };
}

/** The `Cancel-After` header in milliseconds. Throws `invalid-input`. */
export function cancelAfterOf(header: string | undefined): number | undefined {
  if (header === undefined) return undefined;
  const ms = durationMs(header.trim());
  if (ms !== null && ms > 0 && ms <= MAX_CANCEL_AFTER_MS) return ms;
  throw new GatewayError('invalid-input', `The header Cancel-After ("${header}") is not a time from 1ms to 24h.`, {
    field: 'cancel-after',
    hint: TIME_HINT,
  });
}

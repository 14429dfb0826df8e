import type { InvokeRequest } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';

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

/** The preferences of a request's `Prefer` header (RFC 7240) that the gateway knows. */
export interface Preferences {
  /** Answer 202 instead of waiting for the outcome: at once, or after `waitMs`. */
  readonly respondAsync: boolean;
  /** Wait this long for the outcome, then answer 202. */
  readonly waitMs: number | null;
  /** Cancel the invocation when the client leaves before its end; otherwise it keeps running and can be reattached. */
  readonly cancelOnDisconnect: boolean;
  /** The request's `Idempotency-Key` is for this request alone. Gateways in workerd send this preference with keys that they make themselves. */
  readonly singleUseKey: boolean;
}

/** Longest wait for an answer; a longer one in the request is cut to this. */
const MAX_WAIT_S = 3600;

/** Parses a `Prefer` header. Ignores unknown preferences and invalid values, as RFC 7240 asks. Of a repeated preference, the first one counts. */
export function preferencesOf(header: string | undefined): Preferences {
  const preferences = new Map<string, string>();
  for (const preference of (header ?? '').split(',')) {
    const [name = '', value = ''] = (preference.split(';', 1)[0] ?? '').split('=', 2).map((part) => part.trim());
    const key = name.toLowerCase();
    if (!preferences.has(key)) preferences.set(key, value.replace(/^"(.*)"$/, '$1'));
  }
  const wait = preferences.get('wait') ?? '';
  return {
    respondAsync: preferences.has('respond-async'),
    waitMs: /^\d{1,9}$/.test(wait) ? Math.min(Number(wait), MAX_WAIT_S) * 1000 : null,
    cancelOnDisconnect: preferences.has('cancel-on-disconnect'),
    singleUseKey: preferences.has('single-use-key'),
  };
}

/** The `Preference-Applied` header for the honoured preferences, or undefined. */
export function preferenceApplied(preferences: Partial<Preferences>): string | undefined {
  const { respondAsync, waitMs = null, cancelOnDisconnect } = preferences;
  const applied = [
    ...(respondAsync === true ? ['respond-async'] : []),
    ...(waitMs === null ? [] : [`wait=${waitMs / 1000}`]),
    ...(cancelOnDisconnect === true ? ['cancel-on-disconnect'] : []),
  ];
  return applied.length === 0 ? undefined : applied.join(', ');
}

/**
 * True when `Accept` prefers an event stream to one JSON answer. In a tie, JSON wins unless the header begins with
 * `text/event-stream` and gives that type no `q`.
 */
export function wantsEventStream(accept: string | undefined): boolean {
  let streamQuality = 0;
  let jsonQuality = 0;
  for (const range of (accept ?? '').split(',')) {
    const [type, ...parameters] = range.split(';').map((piece) => piece.trim().toLowerCase());
    const qualityParameter = parameters.find((parameter) => parameter.startsWith('q='));
    const quality = qualityParameter === undefined ? 1 : Number.parseFloat(qualityParameter.slice(2)) || 0;
    if (type === 'text/event-stream' || type === 'text/*') streamQuality = Math.max(streamQuality, quality);
    else if (type === 'application/json' || type === 'application/*' || type === '*/*')
      jsonQuality = Math.max(jsonQuality, quality);
  }
  return streamQuality > 0 && (streamQuality > jsonQuality || listsStreamFirst(accept ?? ''));
}

/** True for a header like `text/event-stream, *\/*`: clients list their preferred type first, unless they state preferences by `q`. */
function listsStreamFirst(accept: string): boolean {
  const ranges = accept.split(',').filter((range) => /^\s*text\/event-stream\b/i.test(range));
  return /^\s*text\/event-stream\b/i.test(accept) && !ranges.some((range) => /;\s*q=/i.test(range));
}

/** Milliseconds of each unit. A number without a unit is in seconds. */
const UNITS: Readonly<Record<string, number>> = { '': 1000, ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const DURATION = /^(\d{1,9})(ms|s|m|h|d)?$/;

/** Parses a duration such as `250ms`, `30s`, `5m`, `1h` or `2d` to milliseconds; a number alone is in seconds. Null for any other text. */
export function durationMs(text: string): number | null {
  const [, count, unit = ''] = DURATION.exec(text) ?? [];
  const factor = UNITS[unit];
  return count === undefined || factor === undefined ? null : Number(count) * factor;
}

/** Parses a time to ms since the epoch. The text is ISO 8601, or a duration with a unit that is subtracted from `nowMs`. Null for any other text. */
export function timeMs(text: string, nowMs: number): number | null {
  const agoMs = /[a-z]$/.test(text) ? durationMs(text) : null;
  if (agoMs !== null) return nowMs - agoMs;
  // Require year and month in digits: `Date.parse` accepts almost any text.
  const time = /^\d{4}-\d{2}/.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(time) ? null : time;
}

/** Visible ASCII characters without spaces: every header carries them unchanged. */
export const VISIBLE_ASCII = /^[\x21-\x7e]+$/;

/** Maximum characters of a key that a client chooses for invocations, such as `Concurrency-Key`. */
export const MAX_CHOSEN_KEY_LENGTH = 256;

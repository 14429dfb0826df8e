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

export interface Preferences {
  /** Answer 202 at once (RFC 7240). */
  readonly respondAsync: boolean;
  /** Cancel the invocation when the client leaves before its end; otherwise it keeps running and can be reattached. */
  readonly cancelOnDisconnect: boolean;
}

/** Reads `Prefer`. Preferences that are not known are ignored, as RFC 7240 asks. */
export function preferencesOf(header: string | undefined): Preferences {
  const tokens = new Set((header ?? '').split(',').map((token) => token.split(/[=;]/, 1)[0]?.trim().toLowerCase()));
  return { respondAsync: tokens.has('respond-async'), cancelOnDisconnect: tokens.has('cancel-on-disconnect') };
}

/** The `Preference-Applied` header for what was honoured, or undefined. */
export function preferenceApplied(preferences: Partial<Preferences>): string | undefined {
  const applied = [
    ...(preferences.respondAsync === true ? ['respond-async'] : []),
    ...(preferences.cancelOnDisconnect === true ? ['cancel-on-disconnect'] : []),
  ];
  return applied.length === 0 ? undefined : applied.join(', ');
}

/** Whether `Accept` asks for an event stream rather than for one JSON answer. JSON wins when both are equally welcome. */
export function wantsEventStream(accept: string | undefined): boolean {
  let stream = 0;
  let json = 0;
  for (const range of (accept ?? '').split(',')) {
    const [type, ...parameters] = range.split(';').map((piece) => piece.trim().toLowerCase());
    const given = parameters.find((parameter) => parameter.startsWith('q='));
    const quality = given === undefined ? 1 : Number.parseFloat(given.slice(2)) || 0;
    if (type === 'text/event-stream' || type === 'text/*') stream = Math.max(stream, quality);
    else if (type === 'application/json' || type === 'application/*' || type === '*/*') json = Math.max(json, quality);
  }
  return stream > 0 && (stream > json || explicitFirst(accept ?? ''));
}

/** `text/event-stream, *\/*` means a stream: clients list what they want first. */
function explicitFirst(accept: string): boolean {
  return /^\s*text\/event-stream\b/i.test(accept) && !/text\/event-stream[^,]*;\s*q=/i.test(accept);
}

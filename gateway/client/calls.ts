/** Options of every client request. */
export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
  readonly requestId?: string | undefined;
  readonly traceparent?: string | undefined;
}

/** The HTTP options that the call options set. */
export function common({ signal, requestId, traceparent }: CallOptions) {
  const headers: Record<string, string> = {};
  if (requestId !== undefined) headers['x-request-id'] = requestId;
  if (traceparent !== undefined) headers.traceparent = traceparent;
  return { signal, headers };
}

/** The members of a query without the call options, which callers pass in the same object. */
export function queryOf<T extends CallOptions>({ signal, requestId, traceparent, ...query }: T) {
  return query;
}

/** The path with a query string of the values that are set. */
export function withQuery(path: string, values: Readonly<Record<string, string | number | undefined>>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value !== undefined) search.set(name, String(value));
  return search.size === 0 ? path : `${path}?${search}`;
}

/** The HTTP options of a call with a JSON body. */
export function withBody(options: CallOptions, method: 'POST' | 'PUT' | 'PATCH', body: unknown) {
  const { signal, headers } = common(options);
  return { signal, method, body: JSON.stringify(body), headers: { ...headers, 'content-type': 'application/json' } };
}

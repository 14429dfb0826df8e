import type {
  FileContent,
  FunctionVersion,
  Health,
  InvocationFile,
  InvocationState,
  Json,
  LogEntry,
  LogLevel,
  ModelInfo,
} from '../app/control.ts';
import { PieError } from './errors.ts';
import { readFrames } from './event-source.ts';
import type { MessageData, Usage } from './events.ts';
import { type ClientOptions, Http, pause } from './http.ts';
import { InvocationStream } from './invocation-stream.ts';

export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
  readonly requestId?: string | undefined;
  readonly traceparent?: string | undefined;
}

export interface InvokeOptions extends CallOptions {
  /** Cancel the invocation when this client goes away before its end. Otherwise it keeps running. */
  readonly cancelOnDisconnect?: boolean;
  /** Invoking again with the same key gives the same invocation. A random one makes this client's own retries safe. */
  readonly idempotencyKey?: string;
}

export interface Outcome {
  readonly id: string;
  readonly status: 'succeeded';
  readonly output: Json;
  readonly messages: readonly MessageData[];
  readonly messagesTruncated?: true;
  readonly usage?: Usage;
}

export interface LogQuery extends CallOptions {
  /** Past lines at most. */
  readonly limit?: number;
  /** This level and worse. */
  readonly level?: LogLevel;
  readonly invocation?: string;
  /** Only lines after this cursor. */
  readonly after?: string;
}

const DEFAULT_MEDIA_TYPE = 'application/octet-stream';

export type Deployed = FunctionVersion & { readonly created: boolean };

/**
 * The HTTP API, typed. It needs nothing but `fetch`. Everything throws {@link PieError}, or the reason of the caller's own signal.
 *
 * @example
 * const pie = new PieClient({ url: 'http://127.0.0.1:8787', apiKey });
 * const story = await pie.invoke('text-completion', { prompt: 'Once', maxTokens: 64 });
 * for await (const piece of story.text()) process.stdout.write(piece);
 */
export class PieClient {
  readonly #http: Http;

  constructor(options: ClientOptions) {
    this.#http = new Http(options);
  }

  /** Deploys a component under the manifest's name. */
  async deploy(
    manifest: { readonly name: string },
    component: Uint8Array<ArrayBuffer>,
    options: CallOptions = {},
  ): Promise<Deployed> {
    const body = new FormData();
    body.set('manifest', new Blob([JSON.stringify(manifest)], { type: 'application/json' }), 'pie.json');
    body.set('component', new Blob([component], { type: 'application/wasm' }), 'component.wasm');
    return this.#http.json(`/v1/functions/${encodeURIComponent(manifest.name)}`, {
      ...common(options),
      method: 'PUT',
      body,
      patient: true,
    });
  }

  /** The current version of each function, by name. */
  async functions(options: CallOptions = {}): Promise<readonly FunctionVersion[]> {
    return (await this.#http.json<{ functions: FunctionVersion[] }>('/v1/functions', common(options))).functions;
  }

  /** One function; `reference` is its name, or `name@version`. */
  async function(reference: string, options: CallOptions = {}): Promise<FunctionVersion> {
    return this.#http.json(functionPath(reference), common(options));
  }

  /** All versions of a function, newest first. */
  async versions(name: string, options: CallOptions = {}): Promise<readonly FunctionVersion[]> {
    return (await this.#http.json<{ versions: FunctionVersion[] }>(`${functionPath(name)}/versions`, common(options)))
      .versions;
  }

  async removeFunction(name: string, options: CallOptions = {}): Promise<void> {
    await this.#http.request(functionPath(name), { ...common(options), method: 'DELETE' });
  }

  /** Invokes a function and streams its events. Resolves once the invocation exists. */
  async invoke(reference: string, input: unknown, options: InvokeOptions = {}): Promise<InvocationStream> {
    const prefer = preferring(options);
    const request = this.#invocation(input, options, { accept: 'text/event-stream', ...prefer });
    const response = await this.#http.retrying(
      () => this.#http.request(`${functionPath(reference)}/invocations`, request),
      options.signal,
    );
    const id = /^\/v1\/invocations\/([^/]+)$/.exec(response.headers.get('content-location') ?? '')?.[1];
    if (id === undefined)
      throw new PieError('bad-response', 'The answer does not name its invocation.', { status: response.status });
    return new InvocationStream(this.#http, decodeURIComponent(id), response, 0, {
      signal: options.signal,
      headers: prefer,
    });
  }

  /** Invokes a function and waits for its outcome. Throws when it fails. */
  async invokeAndWait(reference: string, input: unknown, options: InvokeOptions = {}): Promise<Outcome> {
    const prefer = preferring(options);
    const request = this.#invocation(input, options, { accept: 'application/json', ...prefer });
    return this.#http.json(`${functionPath(reference)}/invocations`, { ...request, patient: true });
  }

  /** Invokes a function and returns at once. */
  async submit(reference: string, input: unknown, options: InvokeOptions = {}): Promise<InvocationState> {
    const request = this.#invocation(input, options, { prefer: 'respond-async' });
    return this.#http.retrying(
      () => this.#http.json(`${functionPath(reference)}/invocations`, request),
      options.signal,
    );
  }

  async invocation(id: string, options: CallOptions = {}): Promise<InvocationState> {
    return this.#http.json(invocationPath(id), common(options));
  }

  /** The events of an invocation after `lastEventId`, past and live. */
  events(
    id: string,
    options: CallOptions & { readonly lastEventId?: number; readonly cancelOnDisconnect?: boolean } = {},
  ): InvocationStream {
    const headers = { ...common(options).headers, ...preferring(options) };
    return new InvocationStream(this.#http, id, null, options.lastEventId ?? 0, { signal: options.signal, headers });
  }

  /** Sends a message to a running invocation: text, or bytes. */
  async send(id: string, message: string | Uint8Array, options: CallOptions = {}): Promise<void> {
    await this.#message(id, typeof message === 'string' ? { text: message } : { base64: toBase64(message) }, options);
  }

  /** Tells a running invocation that no message will follow. */
  async closeSession(id: string, options: CallOptions = {}): Promise<void> {
    await this.#message(id, { close: true }, options);
  }

  /** What files an invocation has, by name. */
  async files(id: string, options: CallOptions = {}): Promise<readonly InvocationFile[]> {
    return (await this.#http.json<{ files: InvocationFile[] }>(`${invocationPath(id)}/files`, common(options))).files;
  }

  /** A file of an invocation. */
  async file(id: string, name: string, options: CallOptions = {}): Promise<FileContent> {
    const { headers, ...rest } = common(options);
    const response = await this.#http.request(filePath(id, name), { ...rest, headers: { ...headers, accept: '*/*' } });
    const mediaType = response.headers.get('content-type') ?? DEFAULT_MEDIA_TYPE;
    return { name, mediaType, content: new Uint8Array(await response.arrayBuffer()) };
  }

  /** Puts a file where a running invocation can get it. A name that is taken gets the new content. */
  async putFile(
    id: string,
    name: string,
    content: Uint8Array<ArrayBuffer>,
    options: CallOptions & { readonly mediaType?: string } = {},
  ): Promise<InvocationFile> {
    return this.#http.json(filePath(id, name), {
      ...common(options),
      method: 'PUT',
      body: content,
      headers: { ...common(options).headers, 'content-type': options.mediaType ?? DEFAULT_MEDIA_TYPE },
      patient: true,
    });
  }

  /** Asks an invocation to stop. One that has ended stays as it is. */
  async cancel(id: string, options: CallOptions = {}): Promise<InvocationState> {
    return this.#http.json(invocationPath(id), { ...common(options), method: 'DELETE' });
  }

  /** The newest kept log lines of a function, oldest first. */
  async logs(name: string, query: LogQuery = {}): Promise<readonly LogEntry[]> {
    return (await this.#http.json<{ logs: LogEntry[] }>(logsPath(name, query), common(query))).logs;
  }

  /** Past log lines, then live ones until the signal aborts or the caller stops. A broken connection is made again. */
  async *followLogs(name: string, query: LogQuery = {}): AsyncGenerator<LogEntry, void, undefined> {
    let cursor = query.after;
    let limit = query.limit;
    for (let pauseMs = 50; ; pauseMs = Math.min(pauseMs * 2, 1000)) {
      const path = logsPath(name, {
        ...query,
        ...(cursor === undefined ? {} : { after: cursor }),
        ...(limit === undefined ? {} : { limit }),
      });
      const response = await this.#http.retrying(
        () =>
          this.#http.request(path, {
            ...common(query),
            headers: { ...common(query).headers, accept: 'text/event-stream' },
          }),
        query.signal,
      );
      try {
        for await (const frame of readFrames(response.body ?? emptyBody(), {
          idleTimeoutMs: this.#http.idleTimeoutMs,
          signal: query.signal,
        })) {
          if (frame.event !== 'log') continue;
          const entry = JSON.parse(frame.data) as LogEntry;
          cursor = entry.cursor;
          // Whatever came while the connection was away is wanted in full.
          limit = undefined;
          pauseMs = 50;
          yield entry;
        }
      } catch {
        // Broken, or aborted: the pause tells which.
      }
      await pause(pauseMs, query.signal);
    }
  }

  async models(options: CallOptions = {}): Promise<readonly ModelInfo[]> {
    const { data } = await this.#http.json<{ data: (Omit<ModelInfo, 'name'> & { id: string })[] }>(
      '/v1/models',
      common(options),
    );
    return data.map(({ id, contextLength, vocabularySize, pageSize, pageCount, traits, aliasOf }) => ({
      name: id,
      contextLength,
      vocabularySize,
      pageSize,
      pageCount,
      traits,
      ...(aliasOf !== undefined && { aliasOf }),
    }));
  }

  /** Whose key this client uses. */
  async self(
    options: CallOptions = {},
  ): Promise<{ readonly tenant: string; readonly keyId: string; readonly scopes: readonly string[] }> {
    return this.#http.json('/v1/keys/self', common(options));
  }

  /** Whether the platform can take work. Throws when the gateway itself cannot be reached. */
  async ready(options: CallOptions = {}): Promise<Health> {
    return this.#http.json('/readyz', { ...common(options), alsoStatus: 503 });
  }

  #invocation(input: unknown, options: InvokeOptions, headers: Record<string, string>) {
    return {
      method: 'POST',
      signal: options.signal,
      body: JSON.stringify(input ?? {}),
      headers: {
        ...common(options).headers,
        ...headers,
        'content-type': 'application/json',
        'idempotency-key': options.idempotencyKey ?? crypto.randomUUID(),
      },
    };
  }

  async #message(id: string, message: object, options: CallOptions): Promise<void> {
    await this.#http.json(`${invocationPath(id)}/messages`, {
      ...common(options),
      method: 'POST',
      body: JSON.stringify(message),
      headers: { ...common(options).headers, 'content-type': 'application/json' },
    });
  }
}

function common({ signal, requestId, traceparent }: CallOptions) {
  const headers: Record<string, string> = {};
  if (requestId !== undefined) headers['x-request-id'] = requestId;
  if (traceparent !== undefined) headers.traceparent = traceparent;
  return { signal, headers };
}

function preferring(options: { readonly cancelOnDisconnect?: boolean }): Record<string, string> {
  return options.cancelOnDisconnect === true ? { prefer: 'cancel-on-disconnect' } : {};
}

function functionPath(reference: string): string {
  return `/v1/functions/${encodeURIComponent(reference)}`;
}

function invocationPath(id: string): string {
  return `/v1/invocations/${encodeURIComponent(id)}`;
}

function filePath(id: string, name: string): string {
  return `${invocationPath(id)}/files/${encodeURIComponent(name)}`;
}

function logsPath(name: string, query: LogQuery): string {
  const search = new URLSearchParams();
  for (const key of ['limit', 'level', 'invocation', 'after'] as const) {
    const value = query[key];
    if (value !== undefined) search.set(key, String(value));
  }
  return `${functionPath(name)}/logs${search.size === 0 ? '' : `?${search}`}`;
}

/** In pieces, since a call takes a limited number of arguments. */
function toBase64(bytes: Uint8Array): string {
  let binary = '';
  for (let at = 0; at < bytes.byteLength; at += 0x8000)
    binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(binary);
}

function emptyBody(): ReadableStream<Uint8Array> {
  return new ReadableStream({ start: (controller) => controller.close() });
}

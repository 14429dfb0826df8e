import {
  DEFAULT_MEDIA_TYPE,
  type FileContent,
  type Health,
  type InvocationFile,
  type InvocationState,
  type Json,
  type LogEntry,
  type ModelInfo,
  type Principal,
} from '../app/control.ts';
import type { ListedModel } from '../app/schemas/platform.ts';
import type { PieError } from './errors.ts';
import { FunctionsClient, functionPath } from './functions.ts';
import { type CallOptions, type ClientOptions, common, Http, withBody } from './http.ts';
import { InvocationStream } from './invocation-stream.ts';
import {
  type InvokeOptions,
  invokeAsync,
  invokeForOutcome,
  invokeStream,
  type Outcome,
  preferenceHeaders,
} from './invoking.ts';
import { followLogs, type LogQuery, readLogs } from './logs.ts';
import { OperationsClient, QuotasClient, SchedulesClient, SecretsClient, TenantsClient } from './resources.ts';

export type { Deployed, DeployOptions } from './functions.ts';
export type { CallOptions } from './http.ts';
export type { InvokeOptions, Outcome } from './invoking.ts';
export type { LogQuery } from './logs.ts';
export type { InvocationListQuery } from './resources.ts';

/** Time for which `send` retries a message; below the minute for which the platform remembers an idempotency key. */
const KEY_KNOWN_MS = 45_000;

/**
 * Typed client of the HTTP API. It needs nothing but `fetch`. Every method throws {@link PieError}, or the reason of the caller's signal.
 *
 * @example
 * const pie = new PieClient({ url: 'http://127.0.0.1:8787', apiKey });
 * const story = await pie.invoke('text-completion', { prompt: 'Once', maxTokens: 64 });
 * for await (const piece of story.text()) process.stdout.write(piece);
 */
export class PieClient extends FunctionsClient {
  readonly quotas: QuotasClient;
  /** Tenants, their API keys and the audit log. */
  readonly tenants: TenantsClient;
  readonly secrets: SecretsClient;
  /** Lists of invocations, load, GPU hosts, machines, join tokens and the webhook secret. */
  readonly operations: OperationsClient;
  readonly schedules: SchedulesClient;
  readonly #http: Http;

  constructor(options: ClientOptions) {
    const http = new Http(options);
    super(http);
    this.#http = http;
    this.quotas = new QuotasClient(this.#http);
    this.tenants = new TenantsClient(this.#http);
    this.secrets = new SecretsClient(this.#http);
    this.operations = new OperationsClient(this.#http);
    this.schedules = new SchedulesClient(this.#http);
  }

  /** Invokes a function and streams its events. Resolves once the invocation exists. */
  async invoke(reference: string, input: unknown, options: InvokeOptions = {}): Promise<InvocationStream> {
    return invokeStream(this.#http, invocationsPath(reference), input, options);
  }

  /** Invokes a function and waits for its outcome. Throws when the invocation fails. */
  async invokeAndWait(reference: string, input: unknown, options: InvokeOptions = {}): Promise<Outcome> {
    return invokeForOutcome(this.#http, invocationsPath(reference), input, options);
  }

  /** Invokes a function and returns at once. */
  async submit(reference: string, input: unknown, options: InvokeOptions = {}): Promise<InvocationState> {
    return invokeAsync(this.#http, invocationsPath(reference), input, options);
  }

  async invocation(id: string, options: CallOptions = {}): Promise<InvocationState> {
    return this.#http.json(invocationPath(id), common(options));
  }

  /** The input of an invocation. Throws `unknown-input` when it is not stored, or was deleted. */
  async input(id: string, options: CallOptions = {}): Promise<Json> {
    return this.#http.json(`${invocationPath(id)}/input`, common(options));
  }

  /** Like {@link input}, as the JSON text that was sent: `input` rounds integers above 2^53. */
  async inputText(id: string, options: CallOptions = {}): Promise<string> {
    return this.#http.text(await this.#http.request(`${invocationPath(id)}/input`, common(options)), options.signal);
  }

  /** Deletes the events of an ended invocation, with its outcome, and its input. Throws `conflict` when the invocation has not ended. */
  async deleteEvents(id: string, options: CallOptions = {}): Promise<void> {
    await this.#http.request(`${invocationPath(id)}/events`, { ...common(options), method: 'DELETE' });
  }

  /** The events of an invocation after the one with the id (or number) `lastEventId`, past and live. */
  events(
    id: string,
    options: CallOptions & { readonly lastEventId?: string | number; readonly cancelOnDisconnect?: boolean } = {},
  ): InvocationStream {
    const headers = { ...common(options).headers, ...preferenceHeaders(options) };
    return new InvocationStream(this.#http, id, null, String(options.lastEventId ?? 0), {
      signal: options.signal,
      headers,
    });
  }

  /**
   * Sends a message to a running invocation: text, or bytes. Repeats it after a transient failure.
   *
   * @param options.idempotencyKey for a minute, another call with the same key and message sends nothing; by default, each call makes a new key
   */
  async send(
    id: string,
    message: string | Uint8Array,
    {
      idempotencyKey = crypto.randomUUID(),
      ...options
    }: CallOptions & { readonly idempotencyKey?: string | undefined } = {},
  ): Promise<void> {
    const body = typeof message === 'string' ? { text: message } : { base64: toBase64(message) };
    const headers = { 'idempotency-key': idempotencyKey };
    const retryTimeout = AbortSignal.timeout(KEY_KNOWN_MS);
    const isTransient = (error: PieError) => error.retryable && !retryTimeout.aborted;
    const isPatient = false;
    await this.#http.retrying(() => this.#message(id, body, options, headers), options.signal, isPatient, isTransient);
  }

  /** Tells a running invocation that no more messages will follow. */
  async closeSession(id: string, options: CallOptions = {}): Promise<void> {
    // Retry: a function that does not hear of the end waits for messages until its deadline.
    await this.#http.retrying(() => this.#message(id, { close: true }, options), options.signal);
  }

  /** Lists the files of an invocation by name. */
  async files(id: string, options: CallOptions = {}): Promise<readonly InvocationFile[]> {
    return (await this.#http.json<{ files: InvocationFile[] }>(`${invocationPath(id)}/files`, common(options))).files;
  }

  async file(id: string, name: string, options: CallOptions = {}): Promise<FileContent> {
    const { headers, ...rest } = common(options);
    const response = await this.#http.request(filePath(id, name), { ...rest, headers: { ...headers, accept: '*/*' } });
    const mediaType = response.headers.get('content-type') ?? DEFAULT_MEDIA_TYPE;
    return { name, mediaType, content: await this.#http.bytes(response, rest.signal) };
  }

  /** Stores a file for a running invocation. A file of the same name is replaced. */
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

  /**
   * Answers the question of a waiting invocation, which then goes on. Throws `not-waiting` when another answer came first.
   *
   * @param options.question number of the question, so that the answer is not taken for that of a later question
   */
  async answer(
    id: string,
    value: unknown,
    { question, ...options }: CallOptions & { readonly question?: number } = {},
  ): Promise<InvocationState> {
    const query = question === undefined ? '' : `?question=${question}`;
    return this.#http.json(`${invocationPath(id)}/answer${query}`, withBody(options, 'POST', value));
  }

  /** Asks an invocation to stop. An ended invocation stays as it is. */
  async cancel(id: string, options: CallOptions = {}): Promise<InvocationState> {
    return this.#http.json(invocationPath(id), { ...common(options), method: 'DELETE' });
  }

  /** The newest stored log lines of a function, or of all functions when `name` is null. The oldest of these lines is the first. */
  async logs(name: string | null, query: LogQuery = {}): Promise<readonly LogEntry[]> {
    return readLogs(this.#http, name, query);
  }

  /** Past log lines, then live ones until the signal aborts or the caller stops. Reconnects after a broken connection. */
  followLogs(name: string | null, query: LogQuery = {}): AsyncGenerator<LogEntry, void, undefined> {
    return followLogs(this.#http, name, query);
  }

  async models(options: CallOptions = {}): Promise<readonly ModelInfo[]> {
    const { data } = await this.#http.json<{ data: ListedModel[] }>('/v1/models', common(options));
    return data.map(({ id, object: _object, created: _created, owned_by: _owner, ...model }) => ({
      name: id,
      ...model,
    }));
  }

  /** The tenant, id and scopes of this client's key. */
  async self(options: CallOptions = {}): Promise<Principal> {
    return this.#http.json('/v1/keys/self', common(options));
  }

  /** Tells whether the platform can take work. Throws when the gateway itself cannot be reached. */
  async ready(options: CallOptions = {}): Promise<Health> {
    return this.#http.json('/readyz', { ...common(options), alsoStatus: 503 });
  }

  async #message(
    id: string,
    message: object,
    options: CallOptions,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<void> {
    const request = withBody(options, 'POST', message);
    await this.#http.json(`${invocationPath(id)}/messages`, {
      ...request,
      headers: { ...request.headers, ...headers },
    });
  }
}

function invocationsPath(reference: string): string {
  return `${functionPath(reference)}/invocations`;
}

function invocationPath(id: string): string {
  return `/v1/invocations/${encodeURIComponent(id)}`;
}

function filePath(id: string, name: string): string {
  return `${invocationPath(id)}/files/${encodeURIComponent(name)}`;
}

/** Bytes that `toBase64` converts in one call of `String.fromCharCode`: a call takes a limited number of arguments. */
const CHUNK_BYTES = 0x8000;

function toBase64(bytes: Uint8Array): string {
  let binary = '';
  for (let at = 0; at < bytes.byteLength; at += CHUNK_BYTES)
    binary += String.fromCharCode(...bytes.subarray(at, at + CHUNK_BYTES));
  return btoa(binary);
}

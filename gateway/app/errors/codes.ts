/** One error code: its HTTP status and its documentation. */
export interface CodeEntry {
  readonly status: ErrorStatus;
  /** The same for every occurrence (RFC 9457, `title`). */
  readonly title: string;
  /** Remedy, used when an occurrence brings no hint of its own. */
  readonly hint: string;
  /** Body of the documentation page: cause and background. */
  readonly explanation: string;
  /** OpenAI's name for the error. Programs that were written for OpenAI's API match on this name. Absent when OpenAI has none. */
  readonly openAiCode?: string;
}

export type ErrorStatus = 400 | 401 | 403 | 404 | 405 | 408 | 409 | 413 | 414 | 415 | 422 | 429 | 431 | 500 | 503 | 504;

/** Refusals of a component or its manifest. Nothing was stored. */
const DEPLOYMENT_CODES = {
  'not-wasm': {
    status: 422,
    title: 'The component is not WebAssembly',
    hint: 'Upload the .wasm file that `pie build` writes, or deploy the source with `pie deploy`.',
    explanation: 'The bytes do not start with the WebAssembly magic number.',
  },
  'core-module': {
    status: 422,
    title: 'A core module instead of a component',
    hint: 'Wrap the module into a component (`wasm-tools component new`), or build it with `pie build`.',
    explanation:
      'The bytes are a WebAssembly core module. Pie runs components: modules whose imports and exports are typed by the world pie:inferlet.',
  },
  'wrong-world': {
    status: 422,
    title: 'The component implements another world',
    hint: 'Target the world `inferlet` of the WIT in wit/: it exports `run: async func(input: string) -> result<string, string>` and imports only pie:inferlet.',
    explanation:
      'The component lacks the export `run`, or imports something that the platform does not offer (a file system, sockets, another version).',
  },
  'unsupported-component': {
    status: 422,
    title: 'The component is built in a way that the platform does not run',
    hint: 'Build it as one component with one core module that exports `run`, as `pie build` does, instead of composing several.',
    explanation:
      'The component is of the world `inferlet`, but the platform cannot link its core modules: the message says what stands in the way. Nothing was stored.',
  },
  'component-too-large': {
    status: 413,
    title: 'The component is too large',
    hint: 'Make it smaller: leave out data and engines that are not needed, strip names and debug information.',
    explanation:
      'The component exceeds the limit of this platform (64 MiB unless its operator set another). Nothing was stored.',
  },
  'build-failed': {
    status: 422,
    title: 'The component does not build',
    hint: 'Read the message; it names what was refused. A component that other tools accept and Pie does not is worth a bug report.',
    explanation: 'The component is valid, but translating or compiling it failed. Nothing was stored.',
  },
  'build-timeout': {
    status: 422,
    title: 'Building the component took too long',
    hint: 'Make the component smaller, or try again when the machine is less busy.',
    explanation:
      'Each component is built in a process of its own with limits on time and memory; this build exceeded them. Nothing was stored.',
  },
  'invalid-manifest': {
    status: 422,
    title: 'The manifest is not valid',
    hint: 'Compare the named field with the schema of pie.json: `/pie.schema.json` of this gateway, or `node_modules/pie/pie.schema.json`.',
    explanation:
      'The manifest (pie.json) breaks its schema, or names another function than the address does. Nothing was stored.',
  },
} as const satisfies Record<string, CodeEntry>;

/** Refusals of requests, and ends of invocations, by the quotas of a tenant or function. */
const QUOTA_CODES = {
  'quota-requests': {
    status: 429,
    title: 'The quota of requests is used up',
    hint: 'Wait as long as `Retry-After` says; `pie quota` shows what is left.',
    explanation: 'The tenant, or this function of it, may not start more invocations in this minute, day or month.',
  },
  'quota-concurrency': {
    status: 429,
    title: 'Too many invocations at once',
    hint: 'Wait for some of them to end; `pie ps` shows them.',
    explanation:
      'The number of running and waiting invocations of the tenant, or of this function, has reached its limit.',
  },
  'quota-tokens': {
    status: 429,
    title: 'The quota of tokens is used up',
    hint: 'Wait until the window ends, as `Retry-After` says; `pie quota` shows what is left.',
    explanation:
      'The tokens that the tenant, or this function of it, may embed and sample in this minute, day or month are used up. A running invocation is ended with this code.',
  },
  'quota-gpu-time': {
    status: 429,
    title: 'The quota of GPU time is used up',
    hint: 'Wait until the window ends, as `Retry-After` says; `pie quota` shows what is left.',
    explanation:
      'The device time of the tenant, or of this function, is used up for this minute, day or month. A running invocation is ended with this code.',
  },
  'quota-cpu-time': {
    status: 429,
    title: 'The quota of CPU time is used up',
    hint: 'Wait until the window ends, as `Retry-After` says; `pie quota` shows what is left.',
    explanation:
      'The CPU time of the tenant, or of this function, is used up for this minute, day or month. A running invocation is ended with this code.',
  },
  'quota-pages': {
    status: 429,
    title: 'The quota of KV pages is used up',
    hint: 'Hold fewer pages at once, or run fewer invocations at a time.',
    explanation: 'The invocations of the tenant would hold more KV pages at once than it may.',
  },
  'quota-schedules': {
    status: 429,
    title: 'The quota of schedules is used up',
    hint: 'Remove schedules that are not needed: `pie schedule list` shows them.',
    explanation: 'The number of schedules of the tenant has reached its limit (`schedules`; 100 by default).',
  },
  'quota-storage': {
    status: 429,
    title: 'The quota of storage is used up',
    hint: 'Delete stored values or versions, or let invocations end; `pie quota` shows what is used.',
    explanation:
      'The stored data of the tenant would exceed its quota: stored values, files and components (`storage-bytes`), the same together with waiting inputs, events, logs and messages (`redis-bytes`), or compiled versions (`disk-bytes`). Nothing was stored. A running invocation whose events or result cannot be stored ends with this code.',
  },
} as const satisfies Record<string, CodeEntry>;

/**
 * Failed ends of invocations, besides those by a quota (`quota-codes.ts`). Only `memory-unavailable` is a refusal:
 * such an invocation is never stored.
 */
const INVOCATION_CODES = {
  'inferlet-error': {
    status: 422,
    title: 'The function answered with an error',
    hint: "Read the message; it is the function's own. `pie logs` shows what it wrote before.",
    explanation: 'The inferlet ran and ended with an error of its own: it threw, or returned one.',
  },
  trap: {
    status: 422,
    title: 'The function crashed',
    hint: '`pie logs` shows what it wrote before the trap.',
    explanation: 'The inferlet trapped: unreachable code, an access outside its memory, a stack overflow.',
  },
  'invalid-result': {
    status: 422,
    title: 'The function returned something other than JSON',
    hint: 'Return a string that holds one JSON value (`JSON.stringify(…)`).',
    explanation: 'The text that the inferlet returned could not be read as its result.',
  },
  'cpu-limit': {
    status: 422,
    title: 'The function used up its CPU time',
    hint: 'Raise `limits.cpuMs` in the manifest, or compute less between calls.',
    explanation:
      'The inferlet computed for longer than its manifest, or the platform, allows. Waiting for the model does not count.',
  },
  'memory-unavailable': {
    status: 422,
    title: 'The function may take more memory than the platform has',
    hint: 'Lower `limits.memoryMb` in the manifest, or have the operator raise `[runtime] total_memory_mb` in pie.toml.',
    explanation:
      'An invocation starts when its expected memory fits beside that of all others. This one could never start, so nothing was stored.',
  },
  'memory-limit': {
    status: 422,
    title: 'The function used up its memory',
    hint: 'Raise `limits.memoryMb` in the manifest, or hold less.',
    explanation: 'The inferlet asked for more memory than its manifest, or the platform, allows.',
  },
  'output-limit': {
    status: 422,
    title: 'The function wrote too much',
    hint: 'Send fewer or smaller messages and log lines.',
    explanation: "The invocation's events exceeded the limit on the output of one invocation.",
  },
  'deadline-exceeded': {
    status: 504,
    title: 'The deadline passed',
    hint: 'Raise `limits.wallMs` in the manifest, or ask for less at once.',
    explanation: 'The invocation did not end within its wall time, or before the deadline that `Cancel-After` has set.',
  },
  cancelled: {
    status: 409,
    title: 'The invocation was cancelled',
    hint: 'Invoke the function again if the cancellation was a mistake.',
    explanation:
      'A client cancelled the invocation, or a client that sent `Prefer: cancel-on-disconnect` left before the invocation ended.',
  },
  superseded: {
    status: 409,
    title: 'A later invocation took its place',
    hint: 'Follow the invocation that `successor` names.',
    explanation:
      'Before the delay of its `Debounce-Key` had passed, a later request for the function came with the same key. The successor has the later input; this invocation never ran.',
  },
  terminated: {
    status: 503,
    title: 'The invocation was terminated to free memory',
    hint: 'Try again; ask for fewer pages, or declare the function `restartable`.',
    explanation: 'The KV memory was exhausted, and the most recently started invocations give way first.',
  },
  unavailable: {
    status: 503,
    title: 'Something that the function needs was unavailable',
    hint: 'Try again in a moment; the message says what was unavailable.',
    explanation:
      'The inferlet ended with the error `unavailable` of a call: workers were busy, a GPU host or another service of the platform was away, a file was locked, or a server that the function asks could not be reached.',
  },
  'device-lost': {
    status: 503,
    title: 'The device was lost',
    hint: 'Try again; the supervisor restarts the GPU host.',
    explanation:
      'The GPU host that held the KV pages of this invocation died, or its device failed. All that the invocation had computed is lost.',
  },
  'runtime-lost': {
    status: 503,
    title: 'The runtime was lost',
    hint: 'Try again; the supervisor restarts the runtime.',
    explanation:
      'The process that ran the invocation died, or could not be reached: the message says which one, and why. It is not run twice unless the function declares itself `restartable`. A function that ends its own sandbox again and again is quarantined.',
  },
  quarantined: {
    status: 409,
    title: 'The version is quarantined',
    hint: 'Deploy a new version, or lift the quarantine: `pie quarantine lift NAME` (`DELETE /v1/functions/{name}/quarantine`).',
    explanation:
      'Twice within ten minutes the sandbox of this version crashed or stopped answering while nothing but this version computed in it. It is not run again for this tenant until the quarantine is lifted; other versions still run.',
  },
  'artifact-unavailable': {
    status: 503,
    title: 'The function could not be loaded',
    hint: 'Try again. If the error persists, deploy the function again.',
    explanation: 'The runtime could not get or build the artifact of this version.',
  },
  internal: {
    status: 500,
    title: 'A fault of the platform',
    hint: 'Try again. If the error persists, report it with the request id.',
    explanation: "Something failed that should not. The details are in the platform's log under the request id.",
  },
} as const satisfies Record<string, CodeEntry>;

/**
 * Every error that a client of the HTTP API can receive, as a problem or as the `error` event of a stream. The set is closed: programs
 * match on the code, and each code has a page at `/docs/errors/{code}`.
 */
export const CODES = {
  ...DEPLOYMENT_CODES,
  'invalid-input': {
    status: 422,
    title: 'The input is not valid',
    hint: "Correct the named field. /docs describes the fields of every route; `GET /v1/functions/{name}` shows the schema of a function's input under `manifest.input`.",
    explanation:
      "The request breaks the function's input schema, or a parameter breaks the API's. `field` names the place.",
  },
  'invalid-parameter': {
    status: 400,
    title: 'A parameter is not valid',
    hint: 'Compare the named parameter (`param`) with the documentation of the route.',
    explanation:
      'The body of a request to an OpenAI-compatible route, such as `/v1/chat/completions`, or to `/v1/messages` has a parameter that is missing, out of range, or not supported by this platform or this model.',
  },
  'context-too-long': {
    status: 400,
    title: 'The prompt is too long for the model',
    hint: "Send less text; `GET /v1/models/{id}` shows the model's `contextLength`.",
    explanation: 'The prompt and the requested completion have more tokens than the context of the model.',
    openAiCode: 'context_length_exceeded',
  },
  'unknown-model': {
    status: 404,
    title: 'No such model',
    hint: '`GET /v1/models` lists the models and their aliases.',
    explanation: 'The platform serves no model by that name or alias.',
    openAiCode: 'model_not_found',
  },
  'unknown-function': {
    status: 404,
    title: 'No such function',
    hint: '`pie list` (`GET /v1/functions`) shows what is deployed; `pie deploy` deploys.',
    explanation: "This tenant has no function by that name. Other tenants' functions are never visible.",
  },
  'function-pending': {
    status: 503,
    title: 'The function is not deployed yet',
    hint: 'Try again after `retry-after`. `pie list` and `GET /readyz` show which functions are missing, and why.',
    explanation:
      'A start of the platform deploys the functions that came with it one after the other, the first few before it serves. This one has not had its turn, or its last try failed and is repeated.',
  },
  'unknown-invocation': {
    status: 404,
    title: 'No such invocation',
    hint: 'Check the id. Invocations are forgotten some time after they end.',
    explanation: 'This tenant has no invocation with that id.',
  },
  'unknown-response': {
    status: 404,
    title: 'No such response',
    hint: 'Responses are kept as long as the results of invocations, unless their request had `store: false`.',
    explanation:
      'This tenant has no kept response of `POST /v1/responses` with that id, or what the request asks of the response is not kept.',
  },
  'unknown-file': {
    status: 404,
    title: 'No such file',
    hint: '`pie files list` (`GET /v1/invocations/{id}/files`) shows what is there.',
    explanation:
      'The invocation has no file of that name. Files are deleted together with the events of their invocation.',
  },
  'unknown-schedule': {
    status: 404,
    title: 'No such schedule',
    hint: '`pie schedule list` (`GET /v1/schedules`) shows those of the tenant.',
    explanation: 'The tenant has no schedule of that name. The removal of a function removes its schedules.',
  },
  'unknown-input': {
    status: 404,
    title: 'The input is not kept',
    hint: 'Give an input of your own: `pie replay ID --input JSON`.',
    explanation:
      'The input of an ended invocation is kept as long as its events, if it has at most 16 KiB. The input of a child is not kept.',
  },
  unauthorized: {
    status: 401,
    title: 'The API key is missing or wrong',
    hint: 'Send `Authorization: Bearer pie_…` or `x-api-key: pie_…`. The first start writes a key to credentials.json in $PIE_HOME.',
    explanation:
      'The request has no key, or a key that is unknown, removed or expired. A stream ends with this code when its key is removed or expires; the invocation continues.',
  },
  forbidden: {
    status: 403,
    title: 'The API key may not do this',
    hint: 'Use a key with the named scope: `invoke`, `deploy`, `admin` or `operator`.',
    explanation: 'The key is known, but lacks the scope that this route asks for.',
  },
  'join-refused': {
    status: 403,
    title: 'The machine may not join',
    hint: 'Make another token with `pie machines token`: a token admits one machine and expires soon.',
    explanation:
      'The token is not one of this platform, was used by another machine, or has expired. Nothing about the machine was stored.',
  },
  'malformed-json': {
    status: 400,
    title: 'The body is not JSON',
    hint: 'Check quotes and commas; in a shell, put the JSON in single quotes.',
    explanation: 'The body was expected to be one JSON value in UTF-8 and does not parse as such.',
  },
  'malformed-request': {
    status: 400,
    title: 'The request cannot be read',
    hint: 'Send the body as the documentation of the route shows it.',
    explanation:
      'The body breaks its own format (a multipart body without its end, a part that is missing), or a header has no meaning.',
  },
  'body-too-large': {
    status: 413,
    title: 'The request body is too large',
    hint: 'Send less: the error names the limit.',
    explanation:
      'The body passes the limit of its route: 4 MiB for an input, 1 MiB for a message, 16 MiB for a file. It is refused while it is read; nothing was stored.',
  },
  'unsupported-media-type': {
    status: 415,
    title: 'The content type or coding is not supported',
    hint: 'Send `Content-Type: application/json` (deployments: `multipart/form-data`).',
    explanation:
      'The `Content-Type` of the request is missing, or not one that the route takes. Or the gateway does not decode its `Content-Encoding`: the header `Accept-Encoding` of the answer names those that it decodes.',
  },
  'not-found': {
    status: 404,
    title: 'Nothing is at this address',
    hint: '/docs lists every route.',
    explanation: 'No route of this API has that path.',
  },
  'method-not-allowed': {
    status: 405,
    title: 'The address does not take this method',
    hint: 'The `Allow` header names the methods that it takes.',
    explanation: 'The path exists, but not for this HTTP method.',
  },
  conflict: {
    status: 409,
    title: 'The state does not allow this',
    hint: 'Read the current state (`GET`), then decide whether to repeat the request.',
    explanation:
      'The request is valid but does not fit the state of its target, such as a message to an invocation that has ended.',
  },
  'too-many-requests': {
    status: 429,
    title: 'Too many requests',
    hint: 'Wait as long as `Retry-After` says, then send the request again.',
    explanation: 'A limit of the tenant or of the platform is reached for now.',
  },
  'body-timeout': {
    status: 408,
    title: 'The body came too slowly',
    hint: 'Send the request again, over a faster connection or with a smaller body.',
    explanation:
      'A body must come at 16 KiB a second on average, after a grace of 20 seconds (`[gateway] body_grace_ms`). Nothing was stored, and the connection is closed.',
  },
  'head-timeout': {
    status: 408,
    title: 'The headers came too slowly',
    hint: 'Send the headers of a request at once.',
    explanation:
      'The headers of a request must be complete within 10 seconds of its first byte, or of the opening of the connection. Nothing was stored, and the connection is closed.',
  },
  'gateway-busy': {
    status: 503,
    title: 'The gateway is busy',
    hint: 'Wait as long as `Retry-After` says, then send the request again.',
    explanation:
      'All tenants together send as many bytes, or have as many streams or requests open, as this gateway may hold at once (`[gateway] body_memory_mb`, `streams`, `connections`). Nothing was stored, unless `invocation` names an invocation whose outcome did not fit.',
  },
  'unknown-tenant': {
    status: 404,
    title: 'No such tenant',
    hint: '`pie tenants list` shows them, to an operator.',
    explanation: 'There is no tenant by that name, or the key may not see it.',
  },
  'unknown-alias': {
    status: 404,
    title: 'No such alias or version',
    hint: '`pie versions` shows the versions of a function and the names that serve them.',
    explanation: 'The function exists, but has no alias, tag or version of that name.',
  },
  'unknown-gpu-host': {
    status: 404,
    title: 'No such GPU host',
    hint: '`pie ps --hosts` shows them.',
    explanation: 'No running runtime knows a GPU host of that name.',
  },
  'unknown-machine': {
    status: 404,
    title: 'No such machine',
    hint: '`pie machines` shows them.',
    explanation: 'No machine of that name is registered.',
  },
  'unknown-key': {
    status: 404,
    title: 'No such key',
    hint: '`pie keys list` shows the keys of a tenant.',
    explanation: 'The tenant has no key with that id, or the key was removed.',
  },
  'unknown-secret': {
    status: 404,
    title: 'No such secret',
    hint: '`pie secrets list` shows the names; `pie secrets set` stores one.',
    explanation: 'The tenant has no secret of that name.',
  },
  'tenant-suspended': {
    status: 403,
    title: 'The tenant is suspended',
    hint: 'Ask the operator of the platform.',
    explanation:
      'An operator has suspended the tenant: its keys are refused, its streams end, and none of its invocations start. Running ones go on.',
  },
  'invalid-alias': {
    status: 422,
    title: 'The alias is not valid',
    hint: 'An alias is a short lower-case name; its weights are whole percents that sum to 100.',
    explanation: 'The name of the alias, a version that it names, or the weights are wrong. Nothing was changed.',
  },
  'invalid-secret': {
    status: 422,
    title: 'The secret is not valid',
    hint: 'Names are upper-case letters, digits and `_`; a value has at most 16 KiB.',
    explanation: 'The name or the value of the secret breaks its rules. Nothing was stored.',
  },
  'invalid-quota': {
    status: 422,
    title: 'The quota is not valid',
    hint: '`pie quota list` shows the names; a limit is a whole number, 0 or more.',
    explanation: 'The quota, its limit or its expiry is wrong. Nothing was changed.',
  },
  'invalid-webhook': {
    status: 422,
    title: 'The webhook is not valid',
    hint: 'Give an https URL of a public host.',
    explanation: 'The address for the notification cannot be used: not a URL, not https, or of a private network.',
  },
  'idempotency-in-flight': {
    status: 409,
    title: 'The first request with this key is still being served',
    hint: 'Attach to the named invocation, or try again after `Retry-After`.',
    explanation: 'The `Idempotency-Key` belongs to an invocation that has not ended; `invocation` names it.',
  },
  'idempotency-key-reused': {
    status: 422,
    title: 'The idempotency key was used for something else',
    hint: 'Use a new key for each separate invocation.',
    explanation: 'A request with this `Idempotency-Key` had another function or another body.',
  },
  'address-too-long': {
    status: 414,
    title: 'The address is too long',
    hint: 'Send long values in the body; the request line and all headers together may have 16 KiB.',
    explanation:
      'The address of the request alone passes the limit of the server for the request line and the headers. Nothing was read beyond it.',
  },
  'headers-too-large': {
    status: 431,
    title: 'The headers are too large',
    hint: 'Send less in headers; all together may have 16 KiB.',
    explanation: 'The headers of the request pass the limit of the server. Nothing was read beyond them.',
  },
  'concurrency-key-busy': {
    status: 429,
    title: 'The limit of the concurrency key is reached',
    hint: 'Wait until an invocation with the key ends, or allow more with `Concurrency-Limit`.',
    explanation:
      'The request names a `Concurrency-Key`, and the number of waiting and running invocations of the tenant with this key has reached its `Concurrency-Limit` (one by default). Nothing was stored.',
  },
  'not-waiting': {
    status: 409,
    title: 'The invocation does not wait for this answer',
    hint: 'Read the invocation: `status` and `question` show its current question.',
    explanation:
      'The invocation has no open question: it asked none, or the question was answered or has expired. Or the request names another question than the open one. Nothing was stored.',
  },
  'debounce-keys-full': {
    status: 429,
    title: 'Too many debounce keys wait',
    hint: 'Wait until some of the delays have passed, or use fewer keys.',
    explanation:
      'The request names a new `Debounce-Key`, and 1,000 keys of the tenant already have an invocation that waits for its delay. Nothing was stored.',
  },
  ...QUOTA_CODES,
  'runtime-unavailable': {
    status: 503,
    title: 'No runtime answers',
    hint: 'Try again in a few seconds; the log of the gateway and `pie doctor` show the operator more.',
    explanation: 'No runtime process is available. The supervisor restarts one that died.',
  },
  'store-unavailable': {
    status: 503,
    title: 'The store does not serve the request',
    hint: 'Try again in a few seconds. A stream can be resumed with `Last-Event-ID`.',
    explanation:
      'Redis, which keeps functions, invocations and their events, cannot be reached, has no memory left, or cannot write to its disk. The `detail` of the problem says which.',
  },
  'shutting-down': {
    status: 503,
    title: 'The gateway is shutting down',
    hint: 'Try again; resume a stream with `GET /v1/invocations/{id}/events` and `Last-Event-ID`.',
    explanation: 'The process is being stopped or replaced. The invocation itself was not touched.',
  },
  'origin-unavailable': {
    status: 503,
    title: 'The origin does not answer',
    hint: 'Try again in a few seconds.',
    explanation: 'This gateway runs at the edge and forwards to a Node gateway, which cannot be reached.',
  },
  ...INVOCATION_CODES,
} as const satisfies Record<string, CodeEntry>;

export type ErrorCode = keyof typeof CODES;

export function isErrorCode(value: unknown): value is ErrorCode {
  return typeof value === 'string' && Object.hasOwn(CODES, value);
}

/** Codes after which the same request may succeed a little later. */
export const RETRYABLE_CODES = [
  'function-pending',
  'runtime-unavailable',
  'store-unavailable',
  'shutting-down',
  'origin-unavailable',
  'too-many-requests',
  'gateway-busy',
] as const satisfies readonly ErrorCode[];

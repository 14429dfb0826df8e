import assert from 'node:assert/strict';
import { CODES } from '../../app/errors/codes.ts';
import { type Frame, FrameParser } from '../../client/event-source.ts';
import type { Attempt, GatewayPlatform } from '../platform.ts';
import { Conformance } from './conformance.ts';

/** A gateway under test: its own address, and the Node platform behind it (both may be the same gateway). */
export interface Target {
  readonly url: string;
  readonly platform: GatewayPlatform;
  stop(): Promise<void>;
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: tests read arbitrary answers.
  readonly body: any;
}

export interface Init {
  readonly method?: string;
  readonly body?: string | Uint8Array<ArrayBuffer> | FormData | ReadableStream<Uint8Array>;
  readonly headers?: Record<string, string>;
  readonly signal?: AbortSignal;
}

export const JSON_TYPE = { 'content-type': 'application/json' };
export const SSE = { accept: 'text/event-stream' };
export const ASYNC = { prefer: 'respond-async' };

/** Input schema of the function `echo`, which every target has. */
export const ECHO_SCHEMA = {
  type: 'object',
  properties: { prompt: { type: 'string' }, maxTokens: { type: 'integer', minimum: 1 } },
  required: ['prompt'],
  additionalProperties: false,
};

/** Sends requests to one target, and checks its refusals. */
export class Harness {
  readonly target: Target;
  #conformance: Conformance | undefined;

  constructor(target: Target) {
    this.target = target;
  }

  get platform(): GatewayPlatform {
    return this.target.platform;
  }

  send(path: string, init: Init = {}): Promise<Response> {
    const duplex = init.body instanceof ReadableStream ? { duplex: 'half' as const } : {};
    return fetch(`${this.target.url}${path}`, {
      ...init,
      ...duplex,
      headers: { authorization: `Bearer ${this.platform.apiKey}`, ...init.headers },
    });
  }

  /** Sends a request, and checks a JSON answer against the API's documentation. */
  async ask(path: string, init: Init = {}): Promise<Answer> {
    // Fetch the documentation first: the request may end the gateway.
    this.#conformance ??= new Conformance(await json(await this.send('/openapi.json')));
    const response = await this.send(path, init);
    const text = await response.text();
    const { status, headers } = response;
    if (!text.startsWith('{')) return { status, headers, body: text };
    const body = JSON.parse(text);
    const mediaType = headers.get('content-type')?.split(';', 1)[0] ?? '';
    this.#conformance.check(init.method ?? 'GET', path, status, mediaType, body);
    return { status, headers, body };
  }

  /** Deploys under `address`; by default the name in the manifest, or `story` if it has none. */
  deploy(manifest: unknown, component: Uint8Array<ArrayBuffer>, address = nameOf(manifest)): Promise<Answer> {
    const form = new FormData();
    form.set('manifest', new Blob([typeof manifest === 'string' ? manifest : JSON.stringify(manifest)]));
    form.set('component', new Blob([component]), 'a.wasm');
    return this.ask(`/v1/functions/${address}`, { method: 'PUT', body: form });
  }

  invoke(headers: Record<string, string>, signal?: AbortSignal): Promise<Response> {
    return this.send('/v1/functions/echo/invocations', {
      method: 'POST',
      body: '{"prompt":"a"}',
      headers: { ...JSON_TYPE, ...headers },
      ...(signal === undefined ? {} : { signal }),
    });
  }

  /** Invokes `echo` as a stream and begins an attempt. */
  async stream(
    headers: Record<string, string> = {},
    signal?: AbortSignal,
  ): Promise<{ response: Response; attempt: Attempt }> {
    const response = await this.invoke({ ...SSE, ...headers }, signal);
    const id = response.headers.get('content-location')?.split('/').at(-1) ?? '';
    return { response, attempt: await this.platform.attempt(id) };
  }

  /** Invokes `echo` with a request that waits for the outcome. Returns the pending answer, and the attempt, which the caller controls. */
  async waiting(): Promise<{ answer: Promise<Answer>; attempt: Attempt }> {
    const known = await this.invocations();
    const answer = this.ask('/v1/functions/echo/invocations', {
      method: 'POST',
      body: '{"prompt":"a"}',
      headers: JSON_TYPE,
    });
    return { answer, attempt: await this.platform.attempt(await this.platform.submitted('echo', known)) };
  }

  async submit(): Promise<string> {
    return (await json(await this.invoke(ASYNC))).id;
  }

  /** Ids of the invocations of `echo`. */
  async invocations(): Promise<Set<string>> {
    return new Set((await this.platform.scheduler.invocations.recent('default', 'echo', 200)).map(({ id }) => id));
  }

  /** Asserts that the answer is a complete problem of this code. */
  refused({ status, headers, body }: Answer, code: keyof typeof CODES, field?: string): void {
    const text = JSON.stringify(body);
    assert.deepEqual([body.code, status, body.status], [code, CODES[code].status, CODES[code].status], text);
    assert.equal(headers.get('content-type'), 'application/problem+json');
    assert.equal(body.title, CODES[code].title);
    assert.equal(body.type, `${this.target.url}/docs/errors/${code}`);
    assert.equal(body.requestId, headers.get('x-request-id'));
    assert.ok(body.hint.length > 0 && body.detail.length > 0);
    assert.deepEqual([body.error.code, body.error.message], [code, body.detail]);
    assert.equal(body.field, field, text);
    assert.equal(text.includes('.ts:'), false, 'an answer must contain no stack trace');
  }
}

/** The frames of a stream that ends. */
export async function frames(response: Response): Promise<Frame[]> {
  return new FrameParser().push(await response.text());
}

// biome-ignore lint/suspicious/noExplicitAny: tests read arbitrary answers.
export async function json(response: Response): Promise<any> {
  return response.json();
}

function nameOf(manifest: unknown): string {
  return typeof manifest === 'object' && manifest !== null && 'name' in manifest ? String(manifest.name) : 'story';
}

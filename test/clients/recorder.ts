import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { deployFunction, functionsPlatform } from '#test/harness/functions.ts';

/** The bundled functions behind the routes of OpenAI's and Anthropic's APIs. */
const FUNCTIONS = ['openai-chat', 'openai-completions', 'openai-responses', 'openai-embeddings', 'anthropic-messages'];

// biome-ignore lint/suspicious/noExplicitAny: the tests read what clients sent
type Body = any;

/**
 * A server between a client and the platform that records the bodies of requests. It adds a `script` to each request for which the test has given one:
 * the models of the tests are too small to call tools by themselves, and no client has a parameter for scripts.
 */
export class Recorder implements AsyncDisposable {
  /** Address of the platform itself. */
  readonly platformUrl: string;
  readonly apiKey: string;
  /** Bodies of the requests, without scripts. */
  readonly bodies: Body[] = [];
  readonly #scripts: (readonly string[])[] = [];
  readonly #server = createServer((request, response) => {
    this.#pass(request, response).catch((error: unknown) => response.destroy(error as Error));
  });

  private constructor(platformUrl: string, apiKey: string) {
    this.platformUrl = platformUrl;
    this.apiKey = apiKey;
  }

  static async start(): Promise<Recorder> {
    const platform = await functionsPlatform();
    await Promise.all(FUNCTIONS.map(deployFunction));
    const recorder = new Recorder(platform.url, platform.apiKey);
    await new Promise<void>((resolve) => recorder.#server.listen(0, '127.0.0.1', resolve));
    return recorder;
  }

  /** The base URL for clients of OpenAI's API. Those of Anthropic's take {@link origin}. */
  get baseURL(): string {
    return `${this.origin}/v1`;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Forces the replies of the model to the next requests: one list for each request, with one reply for each generation. */
  script(...replies: readonly (readonly string[])[]): void {
    this.#scripts.push(...replies);
  }

  /** Number of scripts that no request has used yet. */
  get unusedScripts(): number {
    return this.#scripts.length;
  }

  async #pass(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = 'POST', url, headers } = request;
    const { authorization, 'x-api-key': apiKey } = headers;
    const key = apiKey === undefined ? { authorization: authorization ?? '' } : { 'x-api-key': String(apiKey) };
    const sent = await text(request);
    let written: string | undefined;
    // Requests that read or delete have no body.
    if (sent !== '') {
      const body: Body = JSON.parse(sent);
      this.bodies.push(body);
      const script = this.#scripts.shift();
      written = JSON.stringify(script ? { ...body, script } : body);
    }
    const answer = await fetch(`${this.platformUrl}${url}`, {
      method,
      headers: written === undefined ? key : { ...key, 'content-type': 'application/json' },
      ...(written !== undefined && { body: written }),
    });
    response.writeHead(answer.status, { 'content-type': answer.headers.get('content-type') ?? 'application/json' });
    if (answer.body)
      await pipeline(Readable.fromWeb(answer.body as import('node:stream/web').ReadableStream), response);
    else response.end();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

/** Replies for a turn in which the model says something and then calls the only tool. */
export const CALLING: readonly string[] = ['Let me look.\n<tool_call>', '{"city": "Rome"}', ''];
/** Replies for the turn after the result of the call. */
export const ANSWERING: readonly string[] = ['It is sunny in Rome.'];
export const THANKED: readonly string[] = ['You are welcome.'];

/** The weather tool of the tests: its parameters as a JSON schema, and its result. */
export const WEATHER_PARAMETERS = {
  type: 'object',
  properties: { city: { type: 'string', enum: ['Rome', 'Oslo'] } },
  required: ['city'],
  additionalProperties: false,
};
export const weatherIn = (city: string): string => `Sunny in ${city}, 20 degrees`;

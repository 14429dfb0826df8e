import type { Readable, Writable } from 'node:stream';
import { z } from 'zod';

/** Most bytes of one message: a tool's arguments are an invocation's input, which the gateway bounds further. */
const MAX_MESSAGE_BYTES = 16 << 20;
const NEWLINE = 10;

const messageSchema = z.looseObject({
  jsonrpc: z.literal('2.0'),
  id: z.union([z.string(), z.int()]).optional(),
  method: z.string().optional(),
  params: z.looseObject({}).optional(),
});

export type RequestId = string | number;
export type Params = Readonly<Record<string, unknown>>;

/** JSON-RPC's codes of refusals. */
export const RPC_ERROR = { parse: -32700, request: -32600, method: -32601, params: -32602, internal: -32603 } as const;

/** An answer to a request that the other side gets as an error. */
export class RpcError extends Error {
  override readonly name = 'RpcError';
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

export interface Handlers {
  /** Answers a request; the signal aborts when the other side cancels it or leaves. */
  request(method: string, params: Params, signal: AbortSignal): Promise<object>;
}

/**
 * One side of JSON-RPC over lines, as the Model Context Protocol's stdio transport has it. Requests run at the same time, `maxRequests` at most;
 * further ones are refused.
 */
export class Connection {
  readonly #out: Writable;
  readonly #handlers: Handlers;
  readonly #maxRequests: number;
  readonly #open = new Map<RequestId, AbortController>();
  readonly #running = new Set<Promise<void>>();

  constructor(out: Writable, handlers: Handlers, maxRequests: number) {
    this.#out = out;
    this.#handlers = handlers;
    this.#maxRequests = maxRequests;
  }

  /** Serves until the input ends or the signal aborts; requests that run then are cancelled. */
  async serve(input: Readable, signal: AbortSignal): Promise<void> {
    const stop = () => input.destroy();
    signal.addEventListener('abort', stop, { once: true });
    try {
      if (signal.aborted) return;
      for await (const line of linesOf(input)) await this.#take(line);
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      signal.removeEventListener('abort', stop);
      for (const request of this.#open.values()) request.abort();
      await Promise.all(this.#running);
    }
  }

  /** Tells the other side something. Resolves when there is room for more. */
  async notify(method: string, params: object): Promise<void> {
    await this.#send({ method, params });
  }

  async #take(line: Buffer | null): Promise<void> {
    if (line === null) return this.#refuse(null, RPC_ERROR.parse, `A message has at most ${MAX_MESSAGE_BYTES} bytes.`);
    let json: unknown;
    try {
      json = JSON.parse(line.toString('utf8'));
    } catch {
      return this.#refuse(null, RPC_ERROR.parse, 'The line is not JSON.');
    }
    const parsed = messageSchema.safeParse(json);
    if (!parsed.success) return this.#refuse(null, RPC_ERROR.request, 'The message is no JSON-RPC 2.0 request.');
    const { id, method, params = {} } = parsed.data;
    // An answer: this side makes no requests.
    if (method === undefined) return;
    if (id === undefined) {
      if (method === 'notifications/cancelled') this.#open.get(params.requestId as RequestId)?.abort();
      return;
    }
    if (this.#open.has(id))
      return this.#refuse(id, RPC_ERROR.request, `A request with the id ${id} is being answered.`);
    if (this.#open.size >= this.#maxRequests)
      return this.#refuse(
        id,
        RPC_ERROR.internal,
        `At most ${this.#maxRequests} requests run at once; try again later.`,
      );
    const running = this.#answer(id, method, params).finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  async #answer(id: RequestId, method: string, params: Params): Promise<void> {
    const request = new AbortController();
    this.#open.set(id, request);
    try {
      const result = await this.#handlers.request(method, params, request.signal);
      // A cancelled request gets no answer.
      if (!request.signal.aborted) await this.#send({ id, result });
    } catch (error) {
      if (request.signal.aborted) return;
      const code = error instanceof RpcError ? error.code : RPC_ERROR.internal;
      await this.#refuse(id, code, error instanceof Error ? error.message : String(error));
    } finally {
      this.#open.delete(id);
    }
  }

  #refuse(id: RequestId | null, code: number, message: string): Promise<void> {
    return this.#send({ id, error: { code, message } });
  }

  async #send(message: object): Promise<void> {
    const out = this.#out;
    if (out.destroyed || out.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)) return;
    await new Promise<void>((resolve) => {
      const end = () => {
        out.off('drain', end).off('close', end).off('error', end);
        resolve();
      };
      out.once('drain', end).once('close', end).once('error', end);
    });
  }
}

/** The lines of a stream without their ends; null for one that is too long. Skips empty ones. */
async function* linesOf(input: Readable): AsyncGenerator<Buffer | null> {
  let parts: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of input as AsyncIterable<Buffer>) {
    for (let rest = chunk; rest.length > 0; ) {
      const end = rest.indexOf(NEWLINE);
      const part = end < 0 ? rest : rest.subarray(0, end);
      bytes += part.length;
      // What is too long is counted, not kept.
      if (bytes <= MAX_MESSAGE_BYTES) parts.push(part);
      else parts = [];
      if (end < 0) break;
      if (bytes > MAX_MESSAGE_BYTES) yield null;
      else if (bytes > 0) yield Buffer.concat(parts);
      [parts, bytes, rest] = [[], 0, rest.subarray(end + 1)];
    }
  }
}

import type { Readable, Writable } from 'node:stream';
import { z } from 'zod';
import { EXIT, Failure } from '../failure.ts';

/** Maximum bytes of one message: a tool's arguments are an invocation's input, which the gateway bounds further. */
const MAX_MESSAGE_BYTES = 16 << 20;
const NEWLINE = 10;

/** Maximum unread answers to messages that start no request (refusals, pings). While so many wait, the server reads no further input. */
const MAX_UNREAD = 8192;
/** Longest time for which the server pauses its input until the client reads answers. After it, the connection ends. */
const UNREAD_MS = 10_000;

// The length is bounded, because a refusal repeats the id.
const idSchema = z.union([z.string().max(256), z.int()]);
const messageSchema = z.looseObject({
  jsonrpc: z.literal('2.0'),
  id: idSchema.optional(),
  method: z.string().optional(),
  params: z.looseObject({}).optional(),
});
/** The members that decide how to answer a malformed message: its sender may wait for an answer under the id. */
const malformedSchema = z.looseObject({ id: z.unknown().optional(), method: z.unknown().optional() });

export type RequestId = string | number;
export type Params = Readonly<Record<string, unknown>>;

/** JSON-RPC's codes of refusals. */
export const RPC_ERROR = { parse: -32700, request: -32600, method: -32601, params: -32602, internal: -32603 } as const;

/** An error that the other side gets as the answer to its request. */
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
 * One side of JSON-RPC over lines, as in the stdio transport of the Model Context Protocol. At most `maxRequests` requests run at the same time;
 * the connection refuses further ones.
 */
export class Connection {
  readonly #output: Writable;
  readonly #handlers: Handlers;
  readonly #maxRequests: number;
  readonly #openRequests = new Map<RequestId, AbortController>();
  readonly #runningWork = new Set<Promise<void>>();
  /** Resolves when the output takes more, and when the connection ends. */
  #room: PromiseWithResolvers<void> | undefined;
  #hasEnded = false;

  constructor(output: Writable, handlers: Handlers, maxRequests: number) {
    this.#output = output;
    this.#handlers = handlers;
    this.#maxRequests = maxRequests;
  }

  /**
   * Serves until the input ends or the signal aborts; requests that run then are cancelled, and unread answers stay in the output's buffer.
   * @throws Failure when the other side goes on sending and does not read
   */
  async serve(input: Readable, signal: AbortSignal): Promise<void> {
    const stop = () => {
      input.destroy();
      this.#end();
    };
    signal.addEventListener('abort', stop, { once: true });
    try {
      if (signal.aborted) return;
      for await (const line of linesOf(input)) {
        this.#track(this.#handleLine(line));
        if (this.#runningWork.size - this.#openRequests.size >= MAX_UNREAD) await this.#awaitRoom();
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      signal.removeEventListener('abort', stop);
      this.#end();
      for (const request of this.#openRequests.values()) request.abort();
      await Promise.all(this.#runningWork);
    }
  }

  /** Sends a notification. Resolves when there is room for more. */
  async notify(method: string, params: object): Promise<void> {
    await this.#send({ method, params });
  }

  /** Handles one message. `serve` does not await it, in order to see the end of the input even while the other side does not read. */
  async #handleLine(line: Buffer | null): Promise<void> {
    if (line === null) return this.#refuse(null, RPC_ERROR.parse, `A message has at most ${MAX_MESSAGE_BYTES} bytes.`);
    const text = line.toString('utf8');
    if (text.trim() === '') return;
    let json: unknown;
    try {
      json = JSON.parse(text);
    } catch {
      return this.#refuse(null, RPC_ERROR.parse, 'The line is not JSON.');
    }
    const parsed = messageSchema.safeParse(json);
    if (!parsed.success) {
      const malformed = malformedSchema.safeParse(json).data;
      // A notification gets no answer, not even a refusal.
      if (malformed?.id === undefined && typeof malformed?.method === 'string') return;
      const id = idSchema.safeParse(malformed?.id).data ?? null;
      return this.#refuse(id, RPC_ERROR.request, 'The message is no JSON-RPC 2.0 request.');
    }
    const { id, method, params = {} } = parsed.data;
    // Ignore answers, because this side makes no requests.
    if (method === undefined) return;
    if (id === undefined) {
      if (method === 'notifications/cancelled') this.#openRequests.get(params.requestId as RequestId)?.abort();
      return;
    }
    if (this.#openRequests.has(id))
      return this.#refuse(id, RPC_ERROR.request, `A request with the id ${id} is being answered.`);
    // Clients give up a server that does not answer pings, so the bound on requests does not apply to pings.
    if (method === 'ping') return this.#send({ id, result: {} });
    if (this.#openRequests.size >= this.#maxRequests) {
      const message = `At most ${this.#maxRequests} requests run at once; try again later.`;
      return this.#refuse(id, RPC_ERROR.internal, message);
    }
    return this.#answer(id, method, params);
  }

  #track(work: Promise<void>): void {
    const running = work.finally(() => this.#runningWork.delete(running));
    this.#runningWork.add(running);
  }

  async #answer(id: RequestId, method: string, params: Params): Promise<void> {
    const request = new AbortController();
    this.#openRequests.set(id, request);
    try {
      const result = await this.#handlers.request(method, params, request.signal);
      // A cancelled request gets no answer.
      if (!request.signal.aborted) await this.#send({ id, result });
    } catch (error) {
      if (request.signal.aborted) return;
      const code = error instanceof RpcError ? error.code : RPC_ERROR.internal;
      await this.#refuse(id, code, error instanceof Error ? error.message : String(error));
    } finally {
      this.#openRequests.delete(id);
    }
  }

  #refuse(id: RequestId | null, code: number, message: string): Promise<void> {
    return this.#send({ id, error: { code, message } });
  }

  async #send(message: object): Promise<void> {
    const out = this.#output;
    if (this.#hasEnded || out.destroyed || out.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)) return;
    if (this.#room === undefined) {
      const room = Promise.withResolvers<void>();
      this.#room = room;
      const end = () => room.resolve();
      out.once('drain', end).once('close', end).once('error', end);
      void room.promise.then(() => {
        out.off('drain', end).off('close', end).off('error', end);
        this.#room = undefined;
      });
    }
    await this.#room.promise;
  }

  async #awaitRoom(): Promise<void> {
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      this.#end();
    }, UNREAD_MS);
    try {
      await this.#room?.promise;
    } finally {
      clearTimeout(timer);
    }
    if (!isLate) return;
    throw new Failure('The MCP client keeps sending requests but does not read the answers.', {
      exitCode: EXIT.failed,
      code: 'answers-unread',
    });
  }

  #end(): void {
    this.#hasEnded = true;
    this.#room?.resolve();
  }
}

/** The lines of a stream without their line breaks; null for a line that is too long. Skips empty lines. */
async function* linesOf(input: Readable): AsyncGenerator<Buffer | null> {
  let parts: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of input as AsyncIterable<Buffer>) {
    for (let remainingBytes = chunk; remainingBytes.length > 0; ) {
      const end = remainingBytes.indexOf(NEWLINE);
      const part = end < 0 ? remainingBytes : remainingBytes.subarray(0, end);
      bytes += part.length;
      // Count the bytes of a line that is too long, but keep none of them.
      if (bytes <= MAX_MESSAGE_BYTES) parts.push(part);
      else parts = [];
      if (end < 0) break;
      if (bytes > MAX_MESSAGE_BYTES) yield null;
      else if (bytes > 0) yield Buffer.concat(parts);
      [parts, bytes, remainingBytes] = [[], 0, remainingBytes.subarray(end + 1)];
    }
  }
}

import net, { type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  answerSchema,
  encodeFrame,
  FRAME,
  FrameReader,
  type IndexRequest,
  MAX_FRAME_BYTES,
  MAX_NAME,
} from './messages.ts';
import {
  type Condition,
  type Entry,
  IndexError,
  type IndexStats,
  type IndexSum,
  type IndexWriteOutcome,
  type Match,
  type Shape,
} from './types.ts';

/** Time to reach an index host: as long as the supervisor may take to start it again. */
const CONNECT_MS = 2000;
const RETRY_MS = 50;
/** Time after a call's deadline for which the client still waits for the host's answer that the call is late. */
const LATE_ANSWER_MS = 2000;

interface PendingCall {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: IndexError) => void;
}

export interface CallOptions {
  readonly signal: AbortSignal;
  /** Longest time for the call, in milliseconds. */
  readonly deadlineMs: number;
}

/**
 * One tenant's connection to an index host. Calls fail with an `IndexError`. Its code is `unavailable` when the host dies or cannot be reached; the
 * next call then connects again.
 */
export class IndexClient {
  readonly #path: string;
  readonly #tenant: string;
  readonly #pending = new Map<number, PendingCall>();
  #socket: Promise<Socket> | null = null;
  #isClosed = false;
  #lastId = 0;

  constructor(path: string, tenant: string) {
    this.#path = path;
    this.#tenant = tenant;
  }

  create({ name, dimensions, metric }: Shape, options: CallOptions): Promise<IndexStats> {
    return this.#call({ op: 'create', name, dimensions, metric }, options) as Promise<IndexStats>;
  }

  /**
   * @param vectors the vectors of all entries, one after the other
   * @param options.maxBytes the tenant's own limit for all of its indexes
   */
  upsert(
    name: string,
    entries: readonly Omit<Entry, 'vector'>[],
    vectors: Float32Array,
    options: CallOptions & { readonly maxBytes?: number | undefined },
  ): Promise<IndexWriteOutcome> {
    const { maxBytes } = options;
    const list = entries.map(({ id, text, metadata }) => ({
      id,
      text,
      metadata: metadata.map(([field, value]): [string, typeof value] => [field, value]),
    }));
    const request = { op: 'upsert', name, entries: list, ...(maxBytes !== undefined && { maxBytes }) } as const;
    return this.#call(request, options, vectors) as Promise<IndexWriteOutcome>;
  }

  delete(name: string, ids: readonly string[], options: CallOptions): Promise<IndexWriteOutcome> {
    return this.#call({ op: 'delete', name, ids: [...ids] }, options) as Promise<IndexWriteOutcome>;
  }

  query(
    name: string,
    query: {
      readonly vector: Float32Array | null;
      readonly text: string | null;
      readonly filter: readonly Condition[];
      readonly limit: number;
    },
    options: CallOptions,
  ): Promise<Match[]> {
    const { vector, text, limit } = query;
    const filter = query.filter.map((condition) => ({ ...condition, values: [...condition.values] }));
    return this.#call({ op: 'query', name, text, filter, limit }, options, vector ?? undefined) as Promise<Match[]>;
  }

  stats(name: string, options: CallOptions): Promise<IndexStats> {
    return this.#call({ op: 'stats', name }, options) as Promise<IndexStats>;
  }

  list(options: CallOptions): Promise<IndexStats[]> {
    return this.#call({ op: 'list' }, options) as Promise<IndexStats[]>;
  }

  sum(options: CallOptions): Promise<IndexSum> {
    return this.#call({ op: 'sum' }, options) as Promise<IndexSum>;
  }

  drop(name: string, options: CallOptions): Promise<IndexWriteOutcome> {
    return this.#call({ op: 'drop', name }, options) as Promise<IndexWriteOutcome>;
  }

  close(): void {
    this.#isClosed = true;
    void this.#socket?.then(
      (socket) => socket.destroy(),
      () => undefined,
    );
  }

  async #call(request: IndexRequest, { signal, deadlineMs }: CallOptions, floats?: Float32Array): Promise<unknown> {
    if (signal.aborted) throw IndexError.from(signal.reason);
    if ('name' in request && request.name.length > MAX_NAME) {
      throw new IndexError('invalid-argument', `the name has more than ${MAX_NAME} characters`);
    }
    const startedMs = performance.now();
    // Copy the vectors now: the caller may reuse their memory before the connection is open.
    const copiedFloats = floats?.slice();
    this.#socket ??= this.#connect();
    const socket = await this.#socket;
    if (signal.aborted) throw IndexError.from(signal.reason);
    if (socket.destroyed) throw hostLostError();
    const remainingMs = Math.max(0, deadlineMs - (performance.now() - startedMs));
    const id = (this.#lastId + 1) % 2 ** 32;
    const frame = encodeFrame(FRAME.request, id, { deadlineMs: remainingMs, request }, copiedFloats);
    // `messages.ts` bounds the texts of a call before JSON escapes them, so the frame of a valid call can be too long.
    if (frame.length > MAX_FRAME_BYTES) {
      const text = `the call has ${frame.length} bytes as JSON, and at most ${MAX_FRAME_BYTES} are allowed; JSON writes a control character as six bytes`;
      throw new IndexError('invalid-argument', text);
    }
    this.#lastId = id;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const withdraw = (reason: unknown) => {
      if (this.#pending.delete(id)) socket.write(encodeFrame(FRAME.cancel, id, null));
      reject(IndexError.from(reason));
    };
    const onAbort = () => withdraw(signal.reason);
    signal.addEventListener('abort', onAbort, { once: true });
    const timer = setTimeout(() => withdraw(noAnswerError()), remainingMs + LATE_ANSWER_MS);
    this.#pending.set(id, { resolve, reject });
    socket.write(frame);
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
    }
  }

  async #connect(): Promise<Socket> {
    const deadline = performance.now() + CONNECT_MS;
    for (;;) {
      try {
        const socket = await openSocket(this.#path);
        // `close` was called meanwhile. The waiting calls get the destroyed socket, and fail as when the host ends.
        if (this.#isClosed) socket.destroy();
        this.#follow(socket);
        socket.write(encodeFrame(FRAME.hello, 0, { tenant: this.#tenant }));
        return socket;
      } catch (cause) {
        if (this.#isClosed || performance.now() > deadline) {
          this.#socket = null;
          throw new IndexError('unavailable', 'the index host cannot be reached now; try again', { cause });
        }
        await sleep(RETRY_MS);
      }
    }
  }

  #follow(socket: Socket): void {
    const reader = new FrameReader();
    socket.on('data', (chunk: Buffer) => {
      try {
        for (const { id, json } of reader.take(chunk)) this.#onAnswer(id, json);
      } catch (cause) {
        socket.destroy(cause instanceof Error ? cause : undefined);
      }
    });
    socket.on('error', () => undefined); // `close` follows.
    socket.on('close', () => {
      this.#socket = null;
      for (const { reject } of this.#pending.values()) reject(hostLostError());
      this.#pending.clear();
    });
  }

  #onAnswer(id: number, json: unknown): void {
    const answer = answerSchema.parse(json);
    const pending = this.#pending.get(id);
    // The answer to a withdrawn call has no reader.
    if (!pending) return;
    this.#pending.delete(id);
    if (answer.outcome === 'ok') pending.resolve(answer.value);
    else pending.reject(new IndexError(answer.code, answer.message));
  }
}

const hostLostError = (): IndexError =>
  new IndexError('unavailable', 'the index host ended during the call, which may have taken effect; try again');

const noAnswerError = (): IndexError =>
  new IndexError('deadline-exceeded', 'the index host did not answer the call, which may have taken effect; try again');

function openSocket(path: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = net.connect(path, () => {
      socket.off('error', reject);
      resolve(socket);
    });
    socket.once('error', reject);
  });
}

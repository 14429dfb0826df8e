import { rmSync } from 'node:fs';
import net, { type Socket } from 'node:net';
import { callSchema, encodeFrame, FRAME, type Frame, FrameReader, helloSchema } from './protocol/messages.ts';
import { IndexError } from './protocol/types.ts';
import { answer } from './service/calls.ts';
import { Catalog, LIMITS, type Limits, type Log } from './service/catalog.ts';
import { Turns } from './service/turns.ts';

/** Maximum pending requests of one connection; above it, the host reads no more until some have ended. */
const MAX_PENDING = 64;
/** Maximum bytes of answers that a client has not read; above it, the host reads no more requests. */
const MAX_UNREAD_BYTES = 8 * 2 ** 20;
/** Longest time for one request, whatever deadline it names. */
const MAX_CALL_MS = 300_000;

export interface IndexHostOptions {
  readonly directory: string;
  readonly limits?: Partial<Limits>;
  readonly log: Log;
}

/** The index host: serves the indexes of a directory on a unix socket. Each connection belongs to the tenant that its first frame names. */
export class IndexHost {
  readonly #catalog: Catalog;
  readonly #server: net.Server;
  readonly #sockets = new Set<Socket>();
  readonly #log: Log;

  constructor({ directory, limits, log }: IndexHostOptions) {
    this.#log = log;
    this.#catalog = new Catalog(directory, new Turns(), { ...LIMITS, ...limits }, log);
    this.#server = net.createServer((socket) => this.#serve(socket));
  }

  async listen(socketPath: string): Promise<void> {
    // A killed process leaves its socket file behind, which would make `listen` fail.
    rmSync(socketPath, { force: true });
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(socketPath, resolve);
    });
    // The server reports an error, for example, when no file descriptor is left for a new connection. Open connections go on.
    this.#server.on('error', (error) => this.#log.error({ error }, 'a connection could not be accepted'));
  }

  /** Ends all connections, and saves the open indexes. */
  async close(): Promise<void> {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await this.#catalog.close();
  }

  #serve(socket: Socket): void {
    const reader = new FrameReader();
    const pending = new Map<number, AbortController>();
    let tenant: string | null = null;
    /** Stops reading while this connection has too many pending requests or unread answers. */
    const pace = () => {
      const isFull = pending.size >= MAX_PENDING || socket.writableLength > MAX_UNREAD_BYTES;
      if (isFull) socket.pause();
      else if (socket.isPaused()) socket.resume();
    };
    const take = ({ kind, id, json, floats }: Frame) => {
      if (tenant === null) {
        if (kind !== FRAME.hello) throw new Error('the first frame of a connection does not name the tenant');
        tenant = helloSchema.parse(json).tenant;
      } else if (kind === FRAME.cancel) pending.get(id)?.abort(new IndexError('cancelled', 'the call was withdrawn'));
      else if (kind === FRAME.request && !pending.has(id)) {
        const withdrawal = new AbortController();
        pending.set(id, withdrawal);
        void this.#answer(tenant, json, floats, withdrawal.signal).then((reply) => {
          pending.delete(id);
          if (!socket.destroyed) socket.write(encodeFrame(FRAME.answer, id, reply));
          pace();
        });
      } else
        throw new Error(
          `a frame of kind ${kind} is not allowed here: a second hello, an unknown kind, or a request number in use`,
        );
    };
    this.#sockets.add(socket);
    socket.on('data', (chunk: Buffer) => {
      try {
        for (const frame of reader.take(chunk)) take(frame);
        pace();
      } catch (error) {
        this.#log.error({ error, tenant }, 'a frame could not be handled');
        socket.destroy();
      }
    });
    socket.on('drain', pace);
    socket.on('error', () => undefined); // `close` follows.
    socket.on('close', () => {
      this.#sockets.delete(socket);
      for (const withdrawal of pending.values()) withdrawal.abort(new IndexError('cancelled', 'the caller is gone'));
    });
  }

  async #answer(tenant: string, json: unknown, floats: Float32Array, withdrawn: AbortSignal): Promise<object> {
    try {
      const parsed = callSchema.safeParse(json);
      if (!parsed.success) {
        const [issue] = parsed.error.issues;
        throw new IndexError('invalid-argument', `${issue?.path.slice(1).join('.')}: ${issue?.message}`);
      }
      const { deadlineMs, request } = parsed.data;
      using deadline = deadlineAfter(Math.min(deadlineMs, MAX_CALL_MS));
      const signal = AbortSignal.any([withdrawn, deadline.signal]);
      return { outcome: 'ok', value: await answer(this.#catalog, tenant, request, floats, signal) };
    } catch (thrown) {
      const error = IndexError.from(thrown);
      if (error.code === 'internal') this.#log.error({ error: thrown, tenant }, 'a call failed');
      return { outcome: 'error', code: error.code, message: error.message };
    }
  }
}

function deadlineAfter(ms: number): Disposable & { readonly signal: AbortSignal } {
  const deadline = new AbortController();
  const text = `the call took longer than ${Math.round(ms)} ms`;
  const end = () => deadline.abort(new IndexError('deadline-exceeded', text));
  if (ms <= 0) end();
  const timer = setTimeout(end, ms);
  return { signal: deadline.signal, [Symbol.dispose]: () => clearTimeout(timer) };
}

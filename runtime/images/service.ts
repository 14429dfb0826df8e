import type { ImagePreparation } from '#gpu-host/models/vision/preparation.ts';
import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { ImageAccount } from './account.ts';
import { ImageThread } from './worker-thread.ts';

/** Each has a default. */
export interface ImageOptions {
  /** Worker threads at once: 2. The largest picture takes some 700 MB while it is decoded. */
  readonly maxWorkers?: number;
  /** For one picture to be decoded and resized, once its turn has come: 10 s. */
  readonly decodeMs?: number;
  /** A worker that nobody uses for so long ends: 30 s. */
  readonly idleMs?: number;
}

/** Whose picture it is, what it is for, and who answers for it. */
export interface ImageRequest {
  readonly tenant: string;
  /** Of its own: it goes over to a worker. */
  readonly image: Uint8Array;
  readonly preparation: ImagePreparation;
  readonly account: ImageAccount;
  /** Aborts when nobody wants it any more. */
  readonly signal: AbortSignal;
}

interface Waiting extends ImageRequest {
  readonly resolve: (outcome: Outcome<Uint8Array>) => void;
}

/** Bytes of pictures that wait, of all tenants. */
const MAX_WAITING_BYTES = 256 * 1024 * 1024;

const CLOSED = handlerError('closed', 'the runtime is going down');

/**
 * Turns strangers' pictures into the pixels that models take, in worker threads: a picture may take long, and much memory. Tenants take turns,
 * one picture each.
 */
export class ImageService {
  readonly #maxWorkers: number;
  readonly #decodeMs: number;
  readonly #idleMs: number;
  /** Pictures that wait, by tenant; the tenant whose turn it is first. */
  readonly #waiting = new Map<string, Waiting[]>();
  #waitingBytes = 0;
  #busy = 0;
  /** Threads without a picture, and when each is ended. */
  readonly #idle = new Map<ImageThread, NodeJS.Timeout>();
  readonly #threads = new Set<ImageThread>();
  #closed = false;

  constructor({ maxWorkers = 2, decodeMs = 10_000, idleMs = 30_000 }: ImageOptions = {}) {
    this.#maxWorkers = maxWorkers;
    this.#decodeMs = decodeMs;
    this.#idleMs = idleMs;
  }

  /** Worker threads that exist. */
  get workers(): number {
    return this.#threads.size;
  }

  /** Decodes, resizes and cuts one picture: `size × size` pixels of three bytes, or `invalid-argument` with what is wrong with it. */
  prepare(request: ImageRequest): Promise<Outcome<Uint8Array>> {
    const { account, image } = request;
    const bytes = image.length;
    const refused = this.#refuse(bytes) ?? account.begin(bytes);
    if (refused) return Promise.resolve(err(refused));
    this.#waitingBytes += bytes;
    return new Promise<Outcome<Uint8Array>>((resolve) => {
      const line = this.#waiting.get(request.tenant) ?? [];
      line.push({ ...request, resolve });
      this.#waiting.set(request.tenant, line);
      this.#next();
    }).finally(() => {
      account.end(bytes);
      this.#waitingBytes -= bytes;
    });
  }

  /** Ends all workers; what waits is answered `closed`. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const line of this.#waiting.values()) for (const { resolve } of line) resolve(err(CLOSED));
    this.#waiting.clear();
    for (const timer of this.#idle.values()) clearTimeout(timer);
    this.#idle.clear();
    await Promise.all([...this.#threads].map((thread) => thread.end()));
  }

  #refuse(bytes: number): HandlerError | null {
    if (this.#closed) return CLOSED;
    if (this.#waitingBytes + bytes <= MAX_WAITING_BYTES) return null;
    return handlerError('unavailable', 'too many pictures wait to be decoded; try again later');
  }

  #next(): void {
    while (this.#busy < this.#maxWorkers) {
      const waiting = this.#take();
      if (!waiting) return;
      const refused = waiting.signal.aborted
        ? handlerError('cancelled', 'nobody waits for the picture any more')
        : waiting.account.refuse();
      if (refused) waiting.resolve(err(refused));
      else void this.#run(waiting);
    }
  }

  /** The next picture of the tenant whose turn it is, which then comes last. */
  #take(): Waiting | undefined {
    const [first] = this.#waiting;
    if (!first) return undefined;
    const [tenant, line] = first;
    const waiting = line.shift();
    this.#waiting.delete(tenant);
    if (line.length > 0) this.#waiting.set(tenant, line);
    return waiting;
  }

  async #run({ image, preparation, account, resolve }: Waiting): Promise<void> {
    this.#busy++;
    const thread = this.#thread();
    const outcome = await thread.run({ image, preparation }, this.#decodeMs, (cpuMs) => account.charge(cpuMs));
    this.#busy--;
    if (thread.ended || this.#closed) void thread.end().then(() => this.#threads.delete(thread));
    else this.#rest(thread);
    resolve(outcome);
    this.#next();
  }

  #thread(): ImageThread {
    for (const [thread, timer] of this.#idle) {
      clearTimeout(timer);
      this.#idle.delete(thread);
      if (!thread.ended) return thread;
      this.#threads.delete(thread);
    }
    const made = new ImageThread();
    this.#threads.add(made);
    return made;
  }

  #rest(thread: ImageThread): void {
    const end = () => {
      this.#idle.delete(thread);
      void thread.end().then(() => this.#threads.delete(thread));
    };
    this.#idle.set(thread, setTimeout(end, this.#idleMs).unref());
  }
}

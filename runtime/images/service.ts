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
  /** Where it is prepared, once its turn has come. */
  thread: ImageThread | undefined;
}

/** Bytes of pictures that wait or are prepared: of all tenants, and of one. */
const MAX_BYTES = 256 * 1024 * 1024;
const MAX_TENANT_BYTES = MAX_BYTES / 4;

const CLOSED = handlerError('closed', 'the runtime is going down');
const CANCELLED = handlerError('cancelled', 'nobody waits for the picture any more');

/** What a tenant has here. */
interface Tenant {
  bytes: number;
  /** Pictures that are prepared now. */
  running: number;
}

/**
 * Turns strangers' pictures into the pixels that models take, in worker threads: a picture may take long, and much memory. Tenants take turns,
 * one picture each; while others wait none takes the last worker. A picture that nobody wants any more is ended with its thread.
 */
export class ImageService {
  readonly #maxWorkers: number;
  readonly #decodeMs: number;
  readonly #idleMs: number;
  /** Pictures that wait, by tenant; the tenant whose turn it is first. */
  readonly #waiting = new Map<string, Waiting[]>();
  /** Those with pictures that wait or are prepared. */
  readonly #tenants = new Map<string, Tenant>();
  #bytes = 0;
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
    const { account, image, signal } = request;
    const bytes = image.length;
    const tenant = this.#tenants.get(request.tenant) ?? { bytes: 0, running: 0 };
    const refused = this.#refuse(bytes, tenant) ?? account.begin(bytes);
    if (refused) return Promise.resolve(err(refused));
    this.#tenants.set(request.tenant, tenant);
    this.#bytes += bytes;
    tenant.bytes += bytes;
    const { promise, resolve } = Promise.withResolvers<Outcome<Uint8Array>>();
    const waiting: Waiting = { ...request, resolve, thread: undefined };
    const cancel = () => this.#cancel(waiting);
    signal.addEventListener('abort', cancel);
    const line = this.#waiting.get(request.tenant) ?? [];
    line.push(waiting);
    this.#waiting.set(request.tenant, line);
    this.#next();
    return promise.finally(() => {
      signal.removeEventListener('abort', cancel);
      account.end(bytes);
      this.#bytes -= bytes;
      tenant.bytes -= bytes;
      if (tenant.bytes === 0) this.#tenants.delete(request.tenant);
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

  #refuse(bytes: number, tenant: Tenant): HandlerError | null {
    if (this.#closed) return CLOSED;
    if (tenant.bytes + bytes > MAX_TENANT_BYTES) {
      const text = `more than ${MAX_TENANT_BYTES} bytes of this tenant's pictures wait to be decoded; try again later`;
      return handlerError('unavailable', text);
    }
    if (this.#bytes + bytes <= MAX_BYTES) return null;
    return handlerError('unavailable', 'too many pictures wait to be decoded; try again later');
  }

  #cancel(waiting: Waiting): void {
    if (waiting.thread) {
      waiting.thread.cancel(CANCELLED);
      return;
    }
    const line = this.#waiting.get(waiting.tenant) ?? [];
    const left = line.filter((other) => other !== waiting);
    if (left.length > 0) this.#waiting.set(waiting.tenant, left);
    else this.#waiting.delete(waiting.tenant);
    waiting.resolve(err(CANCELLED));
  }

  #next(): void {
    while (this.#busy < this.#maxWorkers) {
      const waiting = this.#take();
      if (!waiting) return;
      const refused = waiting.signal.aborted ? CANCELLED : waiting.account.refuse();
      if (refused) waiting.resolve(err(refused));
      else void this.#run(waiting);
    }
  }

  /** The next picture of the tenant whose turn it is, which then comes last. Who has all workers but one lets others go before. */
  #take(): Waiting | undefined {
    const lines = [...this.#waiting];
    const mayTake = ([tenant]: (typeof lines)[number]) => this.#running(tenant) < Math.max(1, this.#maxWorkers - 1);
    const next = lines.find(mayTake) ?? lines[0];
    if (!next) return undefined;
    const [tenant, line] = next;
    const waiting = line.shift();
    this.#waiting.delete(tenant);
    if (line.length > 0) this.#waiting.set(tenant, line);
    return waiting;
  }

  #running(tenant: string): number {
    return this.#tenants.get(tenant)?.running ?? 0;
  }

  async #run(waiting: Waiting): Promise<void> {
    const { image, preparation, account, resolve } = waiting;
    const tenant = this.#tenants.get(waiting.tenant);
    this.#busy++;
    if (tenant) tenant.running++;
    const thread = this.#thread();
    waiting.thread = thread;
    const outcome = await thread.run({ image, preparation }, this.#decodeMs, (cpuMs) => account.charge(cpuMs));
    this.#busy--;
    if (tenant) tenant.running--;
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

import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ImagePreparation } from '#gpu-host/models/vision/preparation.ts';
import { err, type Outcome } from '#gpu-host/protocol/errors.ts';
import { CallAccount, type CpuBudget } from '../workers/account.ts';
import { WorkerPool } from '../workers/pool.ts';
import { MAX_IMAGE_BYTES } from './header.ts';
import type { Request } from './messages.ts';

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
  readonly account: CallAccount;
  /** Aborts when nobody wants it any more. */
  readonly signal: AbortSignal;
}

/** What the pictures of one inferlet may hold of this process. */
const BOUNDS = { what: 'pictures', calls: 64, bytes: 4 * MAX_IMAGE_BYTES };
/** Bytes of pictures that wait or are prepared, of all tenants. */
const MAX_BYTES = 256 * 1024 * 1024;
/** JavaScript heap; the pixels themselves are beside it, bounded by the size that the header says. */
const HEAP_MB = 512;
/** The worker's own code and the decoders'. */
const CODE = [
  ...['.', '../workers', '../../gpu-host/protocol', '../../package.json'].map((path) =>
    fileURLToPath(new URL(path, import.meta.url)),
  ),
  ...['pngjs', 'jpeg-js'].map((name) => dirname(fileURLToPath(import.meta.resolve(`${name}/package.json`)))),
];

/** Counts one inferlet's pictures. */
export const imageAccount = (cpu?: CpuBudget): CallAccount => new CallAccount(BOUNDS, cpu);

/**
 * Turns strangers' pictures into the pixels that models take, in worker threads: a picture may take long, and much memory. A picture that nobody
 * wants any more is ended with its thread.
 */
export class ImageService {
  readonly #pool: WorkerPool<Request, Uint8Array>;

  constructor({ maxWorkers = 2, decodeMs = 10_000, idleMs = 30_000 }: ImageOptions = {}) {
    this.#pool = new WorkerPool({
      ...{ program: new URL('./worker.ts', import.meta.url), noun: 'the picture', heapMb: HEAP_MB },
      ...{ maxWorkers, idleMs, deadlineMs: decodeMs, maxBytes: MAX_BYTES, endCancelled: true },
      readable: () => CODE,
    });
  }

  /** Worker threads that exist. */
  get workers(): number {
    return this.#pool.workers;
  }

  /** Decodes, resizes and cuts one picture: `size × size` pixels of three bytes, or `invalid-argument` with what is wrong with it. */
  async prepare({ tenant, image, preparation, account, signal }: ImageRequest): Promise<Outcome<Uint8Array>> {
    const bytes = image.length;
    const refused = account.begin(bytes);
    if (refused) return err(refused);
    try {
      const request = { image, preparation };
      return await this.#pool.run({ tenant, request, transfer: [image.buffer as ArrayBuffer], bytes, account, signal });
    } finally {
      account.end(bytes);
    }
  }

  /** Ends all workers; what waits is answered `closed`. */
  close(): Promise<void> {
    return this.#pool.close();
  }
}

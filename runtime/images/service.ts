import { fileURLToPath } from 'node:url';
import type { ImagePreparation } from '#gpu-host/models/vision/preparation.ts';
import { err, type Outcome } from '#gpu-host/protocol/errors.ts';
import { packagePaths } from '#infra/install.ts';
import { CallAccount, type CpuBudget } from '../workers/account.ts';
import { WorkerPool } from '../workers/pool.ts';
import { MAX_IMAGE_BYTES } from './header.ts';

export interface ImageOptions {
  /** Maximum worker threads; 2 by default. Decoding the largest image takes about 700 MB. */
  readonly maxWorkers?: number;
  /** Time limit for decoding and resizing one image, from the start of its turn; 10 s by default. */
  readonly decodeMs?: number;
  /** An idle worker ends after this time; 30 s by default. */
  readonly idleMs?: number;
}

/** A request to prepare an image, with its tenant and the account that pays. */
export interface ImageRequest {
  readonly tenant: string;
  /** Must own its buffer, which is transferred to a worker. */
  readonly image: Uint8Array;
  readonly preparation: ImagePreparation;
  readonly account: CallAccount;
  /** Aborts when the inferlet no longer waits for the result. */
  readonly signal: AbortSignal;
}

/** Bounds on the pending images of one inferlet. */
const BOUNDS = { what: 'images', calls: 64, bytes: 4 * MAX_IMAGE_BYTES };
/** Maximum bytes of images that wait or are prepared, of all tenants. */
const MAX_BYTES = 256 * 1024 * 1024;
/** JavaScript heap of a worker; the pixels are outside the heap, bounded by the size in the header. */
const HEAP_MB = 512;
/** Code of the worker and the decoders. */
const CODE = [
  ...['.', '../workers', '../../gpu-host/protocol', '../../package.json'].map((path) =>
    fileURLToPath(new URL(path, import.meta.url)),
  ),
  ...['pngjs', 'jpeg-js'].flatMap(packagePaths),
];

/** Makes the account that counts one inferlet's images. */
export const imageAccount = (cpu?: CpuBudget): CallAccount => new CallAccount(BOUNDS, cpu);

/**
 * Turns untrusted images into the pixels that models take. It uses worker threads, because an image may take much time and memory.
 * Cancelling a request ends its thread.
 */
export class ImageService {
  readonly #pool: WorkerPool<Request, Uint8Array>;

  constructor({ maxWorkers = 2, decodeMs = 10_000, idleMs = 30_000 }: ImageOptions = {}) {
    this.#pool = new WorkerPool({
      program: new URL('./worker.ts', import.meta.url),
      noun: 'the image',
      heapMb: HEAP_MB,
      maxWorkers,
      idleMs,
      deadlineMs: decodeMs,
      maxBytes: MAX_BYTES,
      endCancelled: true,
      readable: () => CODE,
    });
  }

  get workers(): number {
    return this.#pool.workers;
  }

  /** Decodes, resizes and crops one image: `size × size` pixels of three bytes, or `invalid-argument` with the image's fault. */
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

  /** Ends all workers; waiting requests get `closed`. */
  close(): Promise<void> {
    return this.#pool.close();
  }
}

/** A job for a worker: one image. */
export interface Request {
  readonly image: Uint8Array;
  readonly preparation: ImagePreparation;
}

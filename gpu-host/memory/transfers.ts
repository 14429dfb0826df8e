import type { PageDevice } from './device-memory.ts';

/** Bytes of a buffer in pinned memory; more when a page needs more. */
const BUFFER_BYTES = 4 * 1024 * 1024;
/** Upper bound of the bytes that precede a page's keys and values in its record for another host. */
const RECORD_HEAD_BYTES = 4096;
/** Further transfers at the same time use ordinary memory, and the thread waits for their copies. */
const MAX_PINNED_BUFFERS = 8;

/** Memory for pages on their way between the device and a file or another host. */
export interface TransferBuffer {
  readonly bytes: Uint8Array;
  /** Gives the memory back once the queued copies that use it have ended. */
  release(): void;
}

/** The buffers of one device. Copies from and to them leave the thread free, where the device can queue copies. */
export class TransferBuffers {
  readonly #device: PageDevice;
  readonly #size: number;
  /** Pinned memory that no transfer uses. */
  readonly #idle: Uint8Array[] = [];
  #pinnedCount = 0;

  constructor(device: PageDevice) {
    this.#device = device;
    this.#size = Math.max(BUFFER_BYTES, device.pageBytes + RECORD_HEAD_BYTES);
  }

  /** Number of pages of `bytes` each that one pinned buffer holds; at least 1. */
  countOf(bytes: number): number {
    return Math.max(1, Math.floor(this.#size / bytes));
  }

  take(bytes: number): TransferBuffer {
    const memory = bytes > this.#size ? undefined : (this.#idle.pop() ?? this.#allocate());
    if (!memory) return { bytes: new Uint8Array(bytes), release: () => undefined };
    let isTaken = true;
    return {
      bytes: memory.subarray(0, bytes),
      release: () => {
        if (!isTaken) return;
        isTaken = false;
        const reuse = () => void this.#idle.push(memory);
        const settled = this.settled();
        // After a failure of the device, no copy can be trusted to have ended.
        if (settled) settled.then(reuse, () => undefined);
        else reuse();
      },
    };
  }

  /** Resolves when the copies that were queued before have ended; undefined where the device queues none. */
  settled(): Promise<void> | undefined {
    return this.#device.pagesSettled?.();
  }

  #allocate(): Uint8Array | undefined {
    if (this.#pinnedCount === MAX_PINNED_BUFFERS) return undefined;
    const memory = this.#device.allocatePinned?.(this.#size);
    if (memory) this.#pinnedCount++;
    return memory;
  }
}

import { PIE_EXPORTS, stateName } from '../build/wasm/names.ts';

/** Memories of an instance that are kept for others like it hold no more than this together. */
const MAX_KEPT_BYTES = 16 << 20;
/** Memory is compared and copied in blocks: a run touches few of them. */
const BLOCK_BYTES = 16 << 10;

type NumberGlobal = { value: number | bigint };

/** What an instance changes while it runs: the memories and mutable globals of its core instances. */
export class InstanceState {
  readonly #memories: WebAssembly.Memory[] = [];
  readonly #globals: NumberGlobal[] = [];
  #whole = true;

  /** Adds what a core instance defines. */
  add(exports: WebAssembly.Exports): void {
    if (exports[PIE_EXPORTS.restorable] === undefined) this.#whole = false;
    for (let i = 0; ; i++) {
      const part = exports[stateName(i)];
      if (part === undefined) return;
      if (part instanceof WebAssembly.Memory) this.#memories.push(part);
      else this.#globals.push(part as unknown as NumberGlobal);
    }
  }

  /** Adds a global that the host made for it. */
  addGlobal(global: WebAssembly.Global): void {
    this.#globals.push(global as unknown as NumberGlobal);
  }

  /** Copies it, as it is right after the instance was made; null when it is not all of what the instance changes, or too much. */
  snapshot(): Snapshot | null {
    const bytes = this.#memories.reduce((sum, { buffer }) => sum + buffer.byteLength, 0);
    if (!this.#whole || bytes > MAX_KEPT_BYTES) return null;
    return {
      memories: this.#memories.map(({ buffer }) => blocksOf(Buffer.from(buffer))),
      globals: this.#globals.map(({ value }) => value),
    };
  }

  /** Puts it back to how another instance of the same program was right after it was made. False when a memory has grown: then nothing was done. */
  restore({ memories, globals }: Snapshot): boolean {
    const buffers = this.#memories.map(({ buffer }) => Buffer.from(buffer));
    if (buffers.some((buffer, i) => buffer.length !== memories[i]?.bytes)) return false;
    for (const [i, buffer] of buffers.entries()) {
      // Only what differs is written: an instance keeps no memory resident that its guest did not touch.
      for (const [at, block] of memories[i]?.blocks.entries() ?? []) {
        const start = at * BLOCK_BYTES;
        if (buffer.compare(block, 0, block.length, start, start + block.length) !== 0) block.copy(buffer, start);
      }
    }
    for (const [i, value] of globals.entries()) {
      const global = this.#globals[i];
      if (global) global.value = value;
    }
    return true;
  }
}

/** The state of an instance right after it was made, which is that of every instance of its program: start functions import nothing. */
export interface Snapshot {
  readonly memories: readonly KeptMemory[];
  readonly globals: readonly (number | bigint)[];
}

interface KeptMemory {
  readonly bytes: number;
  readonly blocks: readonly Buffer[];
}

/** Most of a memory is zeros: those blocks are one. */
const ZEROS = Buffer.alloc(BLOCK_BYTES);

function blocksOf(memory: Buffer): KeptMemory {
  const count = Math.ceil(memory.length / BLOCK_BYTES);
  const blocks = Array.from({ length: count }, (_, i) => {
    const block = memory.subarray(i * BLOCK_BYTES, (i + 1) * BLOCK_BYTES);
    return block.equals(ZEROS) ? ZEROS : Buffer.from(block);
  });
  return { bytes: memory.length, blocks };
}

import { PIE_EXPORTS, stateName } from '../build/wasm/names.ts';

/** Bound on the total memory of an instance that is kept as a snapshot. A larger instance is made anew for each run. */
export const MAX_KEPT_BYTES = 32 << 20;
/** Memory is compared and copied in blocks of this size: a run touches few of the blocks. */
const BLOCK_BYTES = 16 << 10;

/** A mutable global that holds a number. */
type NumberGlobal = { value: number | bigint };

/** The mutable state of an instance: the memories and mutable globals of its core instances. */
export class InstanceState {
  readonly #memories: WebAssembly.Memory[] = [];
  readonly #globals: NumberGlobal[] = [];
  /** False when a core instance changes state that it does not export. */
  #isWhole = true;

  /** Adds the state that a core instance defines. */
  add(exports: WebAssembly.Exports): void {
    if (exports[PIE_EXPORTS.restorable] === undefined) this.#isWhole = false;
    for (let i = 0; ; i++) {
      const exported = exports[stateName(i)];
      if (exported === undefined) return;
      if (exported instanceof WebAssembly.Memory) this.#memories.push(exported);
      else this.#globals.push(exported as unknown as NumberGlobal);
    }
  }

  /** Adds a global that the host made for the instance. */
  addGlobal(global: WebAssembly.Global): void {
    this.#globals.push(global as unknown as NumberGlobal);
  }

  /** Bytes of all memories together. */
  get memoryBytes(): number {
    return this.#memories.reduce((sum, { buffer }) => sum + buffer.byteLength, 0);
  }

  /** Values of all mutable globals. */
  get globals(): readonly (number | bigint)[] {
    return this.#globals.map(({ value }) => value);
  }

  /** Copies the state of a new instance; null when the state is incomplete or too large. */
  snapshot(): Snapshot | null {
    if (!this.#isWhole || this.memoryBytes > MAX_KEPT_BYTES) return null;
    return {
      memories: this.#memories.map(({ buffer }) => blocksOf(Buffer.from(buffer))),
      globals: this.globals,
    };
  }

  /** Restores the state to that of a new instance of the same program. Returns false, without changes, when a memory has grown. */
  restore({ memories, globals }: Snapshot): boolean {
    const buffers = this.#memories.map(({ buffer }) => Buffer.from(buffer));
    if (buffers.some((buffer, i) => buffer.length !== memories[i]?.bytes)) return false;
    for (const [i, buffer] of buffers.entries()) {
      // Writes only blocks that differ: a write to memory that the guest did not touch would make the memory resident.
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

/** The state of a new instance. All new instances of a program have the same state, because a start function that calls the platform traps. */
export interface Snapshot {
  readonly memories: readonly KeptMemory[];
  readonly globals: readonly (number | bigint)[];
}

/** A copy of a memory: its length and its blocks. */
interface KeptMemory {
  readonly bytes: number;
  readonly blocks: readonly Buffer[];
}

/** The one copy of all blocks of zeros, which are most of a memory. */
const ZEROS = Buffer.alloc(BLOCK_BYTES);

function blocksOf(memory: Buffer): KeptMemory {
  const count = Math.ceil(memory.length / BLOCK_BYTES);
  const blocks = Array.from({ length: count }, (_, i) => {
    const block = memory.subarray(i * BLOCK_BYTES, (i + 1) * BLOCK_BYTES);
    return block.equals(ZEROS) ? ZEROS : Buffer.from(block);
  });
  return { bytes: memory.length, blocks };
}

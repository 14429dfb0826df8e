/** Bytes of a block, the unit in which a heap is compared and stored. */
export const HEAP_BLOCK_BYTES = 512;
/** Largest memory that a heap may describe, in pages of 64 KiB: 256 MiB. */
export const MAX_HEAP_PAGES = 4096;

const PAGE_BYTES = 65_536;
const BLOCKS_PER_PAGE = PAGE_BYTES / HEAP_BLOCK_BYTES;
const MAGIC = Buffer.from('pieheap1');
const ENGINE_BYTES = 32;
/** The magic number, the engine's hash, then three words: pages of the engine's memory, pages of the heap's, and the number of runs. */
const HEADER_BYTES = MAGIC.length + ENGINE_BYTES + 12;
/** Two words: a run's first block and its number of blocks. */
const RUN_BYTES = 8;

/** Says why bytes are no heap, or why a heap does not fit an instance. */
export class HeapError extends Error {
  override readonly name = 'HeapError';
}

/** Adjacent blocks that differ from the engine's new memory. */
interface Run {
  /** Address of the first byte, a multiple of HEAP_BLOCK_BYTES. */
  readonly at: number;
  /** Content of the blocks. */
  readonly bytes: Uint8Array;
}

/** The difference between the memory of a new instance of an engine and the memory after the engine has evaluated a script. */
export interface Heap {
  /** sha256 of the engine's component, as 64 hexadecimal digits. */
  readonly engine: string;
  /** Pages of a new instance's memory. */
  readonly basePages: number;
  /** Pages after the evaluation. */
  readonly pages: number;
  /** In ascending order, without overlaps. */
  readonly runs: readonly Run[];
}

/** Compares the memory after an evaluation with the memory before it. Both have whole pages; memory never shrinks. The result shares memory with `after`. */
export function heapBetween(engine: string, before: Uint8Array, after: Uint8Array): Heap {
  const runs: Run[] = [];
  const [base, now] = [before, after].map(({ buffer, byteOffset, length }) =>
    Buffer.from(buffer, byteOffset, length),
  ) as [Buffer, Buffer];
  const zeros = Buffer.alloc(HEAP_BLOCK_BYTES);
  const differs = (at: number): boolean =>
    at < base.length
      ? now.compare(base, at, at + HEAP_BLOCK_BYTES, at, at + HEAP_BLOCK_BYTES) !== 0
      : now.compare(zeros, 0, HEAP_BLOCK_BYTES, at, at + HEAP_BLOCK_BYTES) !== 0;
  for (let at = 0; at < now.length; at += HEAP_BLOCK_BYTES) {
    if (!differs(at)) continue;
    const from = at;
    while (at < now.length && differs(at)) at += HEAP_BLOCK_BYTES;
    runs.push({ at: from, bytes: now.subarray(from, at) });
  }
  return { engine, basePages: before.length / PAGE_BYTES, pages: after.length / PAGE_BYTES, runs };
}

export function encodeHeap({ engine, basePages, pages, runs }: Heap): Buffer {
  const head = Buffer.alloc(12);
  for (const [index, word] of [basePages, pages, runs.length].entries()) head.writeUInt32LE(word, index * 4);
  const places = Buffer.alloc(runs.length * RUN_BYTES);
  for (const [index, { at, bytes }] of runs.entries()) {
    places.writeUInt32LE(at / HEAP_BLOCK_BYTES, index * RUN_BYTES);
    places.writeUInt32LE(bytes.length / HEAP_BLOCK_BYTES, index * RUN_BYTES + 4);
  }
  return Buffer.concat([MAGIC, Buffer.from(engine, 'hex'), head, places, ...runs.map(({ bytes }) => bytes)]);
}

/**
 * Reads a heap that an untrusted process wrote. Every heap has exactly one encoding: runs ascend, are not empty and do not touch each other, and
 * no byte is left over. The contents of the result share memory with `data`. Throws HeapError for anything else.
 * @param engine hash of the engine that the heap must be for
 */
export function decodeHeap(data: Uint8Array, engine: string): Heap {
  const buffer = Buffer.from(data.buffer, data.byteOffset, data.length);
  if (buffer.length < HEADER_BYTES || !buffer.subarray(0, MAGIC.length).equals(MAGIC))
    throw new HeapError('the bytes are no heap');
  const found = buffer.toString('hex', MAGIC.length, MAGIC.length + ENGINE_BYTES);
  if (found !== engine) throw new HeapError(`the heap is for the engine ${found}, not for ${engine}`);
  const words = MAGIC.length + ENGINE_BYTES;
  const [basePages, pages, count] = [0, 4, 8].map((at) => buffer.readUInt32LE(words + at)) as [number, number, number];
  if (basePages > pages || pages > MAX_HEAP_PAGES)
    throw new HeapError(`a heap cannot grow from ${basePages} to ${pages} pages`);
  const places = HEADER_BYTES;
  let from = places + count * RUN_BYTES;
  if (from > buffer.length) throw new HeapError(`the heap ends inside its list of ${count} runs`);
  const runs: Run[] = [];
  /** The first block that a run may begin at. */
  let next = 0;
  for (let index = 0; index < count; index++) {
    const first = buffer.readUInt32LE(places + index * RUN_BYTES);
    const blocks = buffer.readUInt32LE(places + index * RUN_BYTES + 4);
    if (first < next || blocks === 0 || first + blocks > pages * BLOCKS_PER_PAGE)
      throw new HeapError(`run ${index} of the heap, ${blocks} blocks from block ${first}, is outside of its bounds`);
    const to = from + blocks * HEAP_BLOCK_BYTES;
    if (to > buffer.length) throw new HeapError(`the heap ends inside run ${index}`);
    runs.push({ at: first * HEAP_BLOCK_BYTES, bytes: buffer.subarray(from, to) });
    from = to;
    next = first + blocks + 1;
  }
  if (from !== buffer.length) throw new HeapError(`${buffer.length - from} bytes follow the heap`);
  return { engine, basePages, pages, runs };
}

/** Turns the memory of a new instance into the memory after the evaluation. Throws HeapError when the memory is another one, or cannot grow so far. */
export function applyHeap({ basePages, pages, runs }: Heap, memory: WebAssembly.Memory): void {
  const found = memory.buffer.byteLength / PAGE_BYTES;
  if (found !== basePages) throw new HeapError(`the heap is for a memory of ${basePages} pages, not of ${found}`);
  try {
    memory.grow(pages - basePages);
  } catch {
    throw new HeapError(`the instance's memory cannot grow to the ${pages} pages of the heap`);
  }
  const bytes = new Uint8Array(memory.buffer);
  for (const run of runs) bytes.set(run.bytes, run.at);
}

/** Bytes that the allocator uses at the beginning of a free chunk: the head, and the links in a list or tree. */
const CHUNK_HEAD = 32;

/**
 * Zeroes free chunks in the heap of dlmalloc (wasi-libc's allocator, Doug Lea, version 2.8). The word at offset 4 of a chunk is its size plus
 * the flags 1, "the previous chunk is in use", and 2, "this chunk is in use". A free chunk also has list links at offsets 8 and 12, and its size
 * again in the word behind it. Only a chunk whose size, flags and links all agree with those of its neighbours is zeroed.
 */
export function wipeFreeChunks(image: Uint8Array): void {
  // All chunks begin at multiples of 8. Wasm and its hosts are little-endian, so words can be read through a view.
  const aligned = image.byteOffset % 4 === 0 ? image : image.slice();
  const words = new Uint32Array(aligned.buffer, aligned.byteOffset, aligned.length >>> 2);
  const word = (at: number): number => words[at >>> 2] ?? 0;
  for (let at = 8; at + CHUNK_HEAD < image.length; at += 8) {
    const head = words[(at + 4) >>> 2] ?? 0;
    const size = head - 1;
    // Flag 1 without flag 2: the previous chunk is in use, and this one is free.
    if ((head & 7) !== 1 || size <= CHUNK_HEAD || at + size + 8 > image.length) continue;
    // The word behind this chunk repeats its size. The next chunk has flag 2 without flag 1: it is in use, and this one is free.
    if (word(at + size) !== size || (word(at + size + 4) & 3) !== 2) continue;
    const [next, previous] = [word(at + 8), word(at + 12)];
    if (word(next + 12) !== at || word(previous + 8) !== at) continue;
    image.fill(0, at + CHUNK_HEAD, at + size);
    at += size - 8;
  }
}

import { leb, signedLeb } from '#runtime/build/wasm/binary.ts';

/**
 * A WebAssembly module whose `sum(from, bytes)` reads memory with 128-bit loads, eight at a time: no other way lets a JavaScript thread
 * read at the memory's speed. `bytes` must be a multiple of 128.
 */
export function streamModule(): Uint8Array<ArrayBuffer> {
  // Locals: 0 and 1 are `from` and `end`, 2 to 5 add up the loaded vectors.
  const accumulators = [2, 3, 4, 5];
  const load = (offset: number, into: number) => [
    // local.get into; local.get 0; v128.load align=16 offset; i32x4.add; local.set into
    ...[0x20, into, 0x20, 0, 0xfd, 0, 4, ...leb(offset), 0xfd, ...leb(0xae), 0x21, into],
  ];
  const body = [
    // end = from + bytes
    ...[0x20, 0, 0x20, 1, 0x6a, 0x21, 1],
    // loop
    ...[0x03, 0x40],
    ...Array.from({ length: 8 }, (_, i) => load(i * 16, accumulators[i % 4] as number)).flat(),
    // from += 128; continue while from < end
    ...[0x20, 0, 0x41, ...signedLeb(128), 0x6a, 0x22, 0, 0x20, 1, 0x49, 0x0d, 0],
    0x0b,
    // Return the sum, so that the compiler cannot drop the loads.
    ...[0x20, 2, 0x20, 3, 0xfd, ...leb(0xae), 0x20, 4, 0xfd, ...leb(0xae), 0x20, 5, 0xfd, ...leb(0xae), 0xfd, 0x1b, 0],
    0x0b,
  ];
  const code = [1, 4, 0x7b, ...body];
  return Uint8Array.from([
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    // (i32, i32) -> i32
    ...section(1, [1, 0x60, 2, 0x7f, 0x7f, 1, 0x7f]),
    // import e.m: memory
    ...section(2, [1, 1, 0x65, 1, 0x6d, 2, 0, 1]),
    // one function, of that type
    ...section(3, [1, 0]),
    // export sum
    ...section(7, [1, 3, 0x73, 0x75, 0x6d, 0, 0]),
    ...section(10, [1, ...leb(code.length), ...code]),
  ]);
}

function section(id: number, bytes: readonly number[]): number[] {
  return [id, ...leb(bytes.length), ...bytes];
}

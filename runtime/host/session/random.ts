const BLOCK = 1024;
const words = new Uint32Array(BLOCK);
let usedCount = BLOCK;

/** A random 32-bit number for a guest. The numbers come from the system in blocks, since each request costs a system call. */
export function randomWord(): number {
  if (usedCount === BLOCK) {
    crypto.getRandomValues(words);
    usedCount = 0;
  }
  return words[usedCount++] ?? 0;
}

/** A cheap 32-bit hash of token ids (the multiply-and-rotate steps of MurmurHash3). Compare the tokens as well: hashes collide. */
export function hashTokens(tokens: Uint32Array): number {
  let hash = tokens.length;
  for (let i = 0; i < tokens.length; i++) {
    const scrambled = Math.imul(tokens[i] as number, 0xcc9e2d51);
    hash ^= Math.imul((scrambled << 15) | (scrambled >>> 17), 0x1b873593);
    hash = (Math.imul((hash << 13) | (hash >>> 19), 5) + 0xe6546b64) | 0;
  }
  return hash;
}

export function sameTokens(a: Uint32Array, b: Uint32Array): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** The tokens of `first`, then those of `second`. */
export function joined(first: Uint32Array, second: Uint32Array): Uint32Array {
  if (first.length === 0) return second;
  const both = new Uint32Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}

/** Number of tokens with which both begin. */
export function commonStart(a: Uint32Array, b: Uint32Array): number {
  const maxCount = Math.min(a.length, b.length);
  let count = 0;
  while (count < maxCount && a[count] === b[count]) count++;
  return count;
}

import { random } from 'pie:inferlet/runtime@0.1.0';
import { define, isRunning, onStart, requireRunning } from './phase.ts';

/** State of the generator, sfc32 (Chris Doty-Humphrey): 128 bits, passes the PractRand tests. */
let a = 0x9e3779b9;
let b = 0x243f6a88;
let c = 0xb7e15162;
let counter = 1;
let seeded = false;

function next(): number {
  const sum = (a + b + counter) | 0;
  counter = (counter + 1) | 0;
  a = b ^ (b >>> 9);
  b = (c + (c << 3)) | 0;
  c = ((c << 21) | (c >>> 11)) + sum;
  return sum >>> 0;
}

function seed(): void {
  seeded = true;
  a = random();
  b = random();
  c = random();
  counter = 1;
  // These rounds mix the seed into the whole state.
  for (let i = 0; i < 12; i += 1) next();
}

onStart(() => {
  seeded = false;
});

/** Replaces the engine's generator, whose state is part of the snapshot: every instance would draw the same numbers. */
Math.random = (): number => {
  if (!seeded && isRunning()) seed();
  // 53 random bits: 32 of the first number and 21 of the second.
  return (next() * 2 ** 21 + (next() >>> 11)) / 2 ** 53;
};

function getRandomValues<T extends ArrayBufferView>(array: T): T {
  requireRunning('crypto.getRandomValues');
  const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  for (let i = 0; i < bytes.length; i += 4) {
    const word = random();
    for (let j = 0; j < 4 && i + j < bytes.length; j += 1) bytes[i + j] = word >>> (8 * j);
  }
  return array;
}

function randomUUID(): string {
  const bytes = getRandomValues(new Uint8Array(16));
  // The bits of version 4 and of the variant (RFC 9562).
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

define('crypto', { getRandomValues, randomUUID });

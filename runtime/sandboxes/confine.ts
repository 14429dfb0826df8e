/**
 * Runs first in each confined process and each of its threads (`--import`). Removes functions that reach other processes or bypass Node's
 * permission model, and ends the process when its starter dies.
 */
import { syncBuiltinESMExports } from 'node:module';
import os from 'node:os';
import { setImmediate } from 'node:timers/promises';
import v8 from 'node:v8';
import { isMainThread } from 'node:worker_threads';

/** Functions of `process` that signal other processes, by signal or through the debugger. */
const SIGNALLING = ['kill', '_kill', '_debugProcess', '_debugEnd'];

/** Turns of the event loop after which Node has read the end of a closed standard input. */
const LOOKS_AT_LIFELINE = 2;

function refused(): never {
  throw Object.assign(new Error('Confined processes have no access to this function.'), { code: 'ERR_ACCESS_DENIED' });
}

const { setFlagsFromString } = v8;

/**
 * Compiles all functions of a module. V8 otherwise compiles each function at its first call, which delays the first run of a guest. A
 * compilation that begins meanwhile does the same.
 */
export async function compileWhole(bytes: Uint8Array<ArrayBuffer>): Promise<WebAssembly.Module> {
  setFlagsFromString('--no-wasm-lazy-compilation');
  try {
    return await WebAssembly.compile(bytes);
  } finally {
    setFlagsFromString('--wasm-lazy-compilation');
  }
}

// Node has read the name of the folder of compiled code.
delete process.env.NODE_COMPILE_CACHE;
for (const name of SIGNALLING) Object.defineProperty(process, name, { value: refused });
Object.defineProperty(os, 'setPriority', { value: refused });
Object.defineProperty(v8, 'setFlagsFromString', { value: refused });
syncBuiltinESMExports();

if (isMainThread) {
  // The starter holds the other end of standard input, so its death closes the stream.
  process.stdin.on('end', () => process.exit(1)).on('error', () => process.exit(1));
  process.stdin.resume();
  (process.stdin as unknown as { unref(): void }).unref();
  // Detects a starter that died before the parent-death signal was set; later, the program could be too busy to detect it.
  for (let turn = 0; turn < LOOKS_AT_LIFELINE; turn++) await setImmediate();
}

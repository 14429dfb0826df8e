/**
 * Runs first in each confined process, each of its threads and each confined thread (`--import`). Removes functions that reach other
 * processes or bypass Node's permission model. In a thread, withdraws a permission that Node adds. Ends a process when its starter dies.
 *
 * Plain JavaScript: in a process without compiled code, such as that of the probe, Node takes 80 ms of processor time to remove types.
 */
import { syncBuiltinESMExports } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import v8 from 'node:v8';
import { isMainThread } from 'node:worker_threads';

/** Functions of `process` that signal other processes, by signal or through the debugger. */
const SIGNALLING = ['kill', '_kill', '_debugProcess', '_debugEnd'];

/** Turns of the event loop after which Node has read the end of a closed standard input. */
const TURNS_TO_READ_END = 2;

/** @returns {never} */
function refused() {
  throw Object.assign(new Error('Confined processes have no access to this function.'), { code: 'ERR_ACCESS_DENIED' });
}

/**
 * Withdraws the right to read the working folder. Node lets a program read its own file, whose path it takes from the arguments. A thread has no
 * such argument, and Node takes the empty path for the working folder.
 */
function forgetWorkingFolder() {
  const folder = process.cwd();
  const option = '--allow-fs-read=';
  const isNamed = process.execArgv.some(
    (argument) => argument.startsWith(option) && path.resolve(argument.slice(option.length)) === folder,
  );
  if (!isNamed) process.permission.drop('fs.read', folder);
}

const { setFlagsFromString } = v8;

/**
 * Compiles all functions of a module. V8 otherwise compiles each function at its first call, which delays the first run of a guest. The flag counts
 * for the whole process, so another compilation that begins meanwhile does the same.
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @returns {Promise<WebAssembly.Module>}
 */
export async function compileWhole(bytes) {
  setFlagsFromString('--no-wasm-lazy-compilation');
  try {
    return await WebAssembly.compile(bytes);
  } finally {
    setFlagsFromString('--wasm-lazy-compilation');
  }
}

// Node has already read this variable, and the program need not see it.
delete process.env.NODE_COMPILE_CACHE;
for (const name of SIGNALLING) Object.defineProperty(process, name, { value: refused });
Object.defineProperty(os, 'setPriority', { value: refused });
Object.defineProperty(v8, 'setFlagsFromString', { value: refused });
syncBuiltinESMExports();

if (!isMainThread) forgetWorkingFolder();
else {
  // The starter holds the other end of standard input, so its death closes the stream.
  process.stdin.on('end', () => process.exit(1)).on('error', () => process.exit(1));
  process.stdin.resume();
  process.stdin.unref();
  // Detects a starter that died before the parent-death signal was set; later, the program could be too busy to detect it.
  for (let turn = 0; turn < TURNS_TO_READ_END; turn++) await setImmediate();
}

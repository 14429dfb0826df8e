/**
 * Runs first in each confined process and in each of its threads (`--import`): takes away what reaches other processes and what Node's
 * permission model does not ask about, and ends the process with its starter.
 */
import { syncBuiltinESMExports } from 'node:module';
import os from 'node:os';
import v8 from 'node:v8';
import { isMainThread } from 'node:worker_threads';

/** Functions of `process` that signal other processes, by name or through the debugger. */
const SIGNALLING = ['kill', '_kill', '_debugProcess', '_debugEnd'];

function refused(): never {
  throw Object.assign(new Error('Confined processes have no access to this function.'), { code: 'ERR_ACCESS_DENIED' });
}

for (const name of SIGNALLING) Object.defineProperty(process, name, { value: refused });
Object.defineProperty(os, 'setPriority', { value: refused });
Object.defineProperty(v8, 'setFlagsFromString', { value: refused });
syncBuiltinESMExports();

if (isMainThread) {
  // The starter holds the other end of standard input: its death closes it.
  process.stdin.on('end', () => process.exit(1)).on('error', () => process.exit(1));
  process.stdin.resume();
  (process.stdin as unknown as { unref(): void }).unref();
}

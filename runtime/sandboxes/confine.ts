/**
 * Runs first in each confined process and in each of its threads (`--import`): takes away what reaches other processes and what Node's
 * permission model does not ask about, and ends the process with its starter.
 */
import { syncBuiltinESMExports } from 'node:module';
import os from 'node:os';
import { setImmediate } from 'node:timers/promises';
import v8 from 'node:v8';
import { isMainThread } from 'node:worker_threads';

/** Functions of `process` that signal other processes, by name or through the debugger. */
const SIGNALLING = ['kill', '_kill', '_debugProcess', '_debugEnd'];

/** Turns of the event loop after which the end of a closed standard input has been read. */
const LOOKS_AT_LIFELINE = 2;

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
  // A starter that died before the parent-death signals were set is noticed here, before the program can be too busy to notice it.
  for (let turn = 0; turn < LOOKS_AT_LIFELINE; turn++) await setImmediate();
}

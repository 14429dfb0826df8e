// Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import path from 'node:path';

/**
 * Runs the pinned Node with `args`, forwards signals to it, and resolves when it exits.
 * @param {string} root the clone
 * @param {string} node the pinned Node
 * @param {string[]} args
 * @returns {Promise<number>} the exit code, as a shell reports it: 128 plus the signal's number when a signal ended Node
 */
export function runPinned(root, node, args) {
  const child = spawn(node, args, { cwd: root, stdio: 'inherit', env: environment(root) });
  // The terminal sends Ctrl-C to the whole process group; this process ignores SIGINT so that it outlives the child.
  process.on('SIGINT', () => undefined);
  for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code, signal) => resolve(code ?? (signal === null ? 1 : 128 + constants.signals[signal])));
  });
}

/**
 * Environment for programs of the clone.
 * @param {string} root the clone
 * @returns {NodeJS.ProcessEnv}
 */
export function environment(root) {
  const bin = path.join(root, 'node_modules', '.bin');
  return {
    // All processes load the same sources: with the cache, Node strips their types and compiles them once.
    NODE_COMPILE_CACHE: path.join(root, 'node_modules', '.cache', 'compile'),
    ...process.env,
    PATH: `${bin}${path.delimiter}${process.env.PATH}`,
  };
}

// Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { spawn } from 'node:child_process';
import path from 'node:path';

/**
 * Goes on under the pinned Node: runs it with `args`, hands signals on, and ends as it ends.
 * @param {string} root the clone
 * @param {string} node the pinned Node
 * @param {string[]} args
 * @returns {Promise<number>} its exit code
 */
export function runPinned(root, node, args) {
  const child = spawn(node, args, { cwd: root, stdio: 'inherit', env: environment(root) });
  // Ctrl-C reaches the whole terminal group by itself; this process only has to outlive it.
  process.on('SIGINT', () => undefined);
  for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code, signal) => resolve(code ?? (signal === null ? 1 : 128)));
  });
}

/**
 * Of programs of the clone.
 * @param {string} root the clone
 * @returns {NodeJS.ProcessEnv}
 */
export function environment(root) {
  const bin = path.join(root, 'node_modules', '.bin');
  return {
    // Each process of the platform reads the same sources: their types are stripped and their code is compiled once.
    NODE_COMPILE_CACHE: path.join(root, 'node_modules', '.cache', 'compile'),
    ...process.env,
    PATH: `${bin}${path.delimiter}${process.env.PATH}`,
  };
}

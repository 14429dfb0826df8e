#!/usr/bin/env node
// The `pie` command. Plain JavaScript for the Node that a fresh machine has (20 or newer): it only goes on under the pinned Node, which
// runs TypeScript directly.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.resolve(here, '../..');
const node = path.join(root, 'node_modules', '.bin', 'node');
const main = path.join(here, 'main.ts');

/** First major version that runs TypeScript by itself and has everything that the command uses. */
const NEW_ENOUGH = 26;

if (!existsSync(path.join(root, 'node_modules', 'commander')) || !existsSync(node)) {
  console.error(
    `error: Pie is not installed yet: ${path.join(root, 'node_modules')} is missing or incomplete.\n` +
      `  what to do: run \`npm start\` in ${root}: it installs what is missing, then starts the platform.`,
  );
  process.exitCode = 4;
} else if (Number(process.versions.node.split('.')[0]) >= NEW_ENOUGH) {
  await import(main);
} else {
  const child = spawn(node, [main, ...process.argv.slice(2)], { stdio: 'inherit' });
  // Ctrl-C reaches the child by itself; this process only has to outlive it.
  process.on('SIGINT', () => undefined);
  for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
  child.once('error', (error) => {
    console.error(
      `error: ${node} cannot be run: ${error.message}\n  what to do: run \`npm start\` in ${root}: it installs what is missing.`,
    );
    process.exitCode = 4;
  });
  child.once('exit', (code, signal) => {
    process.exitCode = code ?? (signal === null ? 1 : 128);
  });
}

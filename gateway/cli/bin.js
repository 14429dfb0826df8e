#!/usr/bin/env node
// The `pie` command. Plain JavaScript, because the Node of a fresh machine (20 or newer) runs this file. A new enough
// Node then runs the command itself. An older one starts the command under the pinned Node, which has every feature
// that the command uses.
import { spawn } from 'node:child_process';
import { existsSync, realpathSync } from 'node:fs';
import module from 'node:module';
import { constants } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
const main = new URL('main.ts', import.meta.url);
const installed = path.basename(path.dirname(path.resolve(root))) === 'node_modules';

/** First major version that runs TypeScript directly and has every feature that the command uses. */
const NEW_ENOUGH = 26;
/** The exit code without an installed platform (`EXIT.unreachable` in failure.ts). */
const EXIT_UNREACHABLE = 4;
/** Packages that contain a Node binary. */
const NODES = ['node', `node-${process.platform}-${process.arch}`, `node-bin-${process.platform}-${process.arch}`];

/** The first existing file of `names`, by Node's rule for packages: in `node_modules` of the root, then of each folder above. */
function find(...names) {
  for (let at = path.resolve(root); ; at = path.dirname(at)) {
    for (const name of names) {
      const file = path.join(path.basename(at) === 'node_modules' ? at : path.join(at, 'node_modules'), name);
      if (existsSync(file)) return file;
    }
    if (at === path.dirname(at)) return null;
  }
}

/** Lets the next command load this one's compiled code. Compiling takes longer than all else that a short command does. */
function keepCompiledCode() {
  const { XDG_CACHE_HOME, HOME } = process.env;
  const caches = XDG_CACHE_HOME || (HOME && path.join(HOME, '.cache'));
  // Node runs without the cache if it cannot write the folder.
  if (caches) module.enableCompileCache(path.join(caches, 'pie', 'compile'));
}

const newEnough = Number(process.versions.node.split('.')[0]) >= NEW_ENOUGH;
const node = find(...NODES.map((name) => path.join(name, 'bin', 'node')));
const pinned = node !== null && process.execPath === realpathSync(node);
/** A clone needs the pinned Node; an installed Pie also runs on another Node that is new enough. */
const hasNode = node !== null || (newEnough && installed);
const advice = installed
  ? 'install Pie again with npm, optional packages included.'
  : `run \`npm start\` in ${path.resolve(root)}: it installs what is missing.`;

if (!find('commander') || !hasNode) {
  console.error(
    `error: Pie is not installed yet: ${path.join(root, 'node_modules')} is missing or incomplete.\n` +
      `  what to do: ${advice}`,
  );
  process.exitCode = EXIT_UNREACHABLE;
} else if (newEnough || pinned) {
  keepCompiledCode();
  await import(main.href);
} else {
  const child = spawn(node, [fileURLToPath(import.meta.url), ...process.argv.slice(2)], { stdio: 'inherit' });
  // The terminal sends Ctrl-C to the child too; this process only has to outlive it.
  process.on('SIGINT', () => undefined);
  for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
  child.once('error', (error) => {
    console.error(`error: ${node} cannot be run: ${error.message}\n  what to do: ${advice}`);
    process.exitCode = EXIT_UNREACHABLE;
  });
  child.once('exit', (code, signal) => {
    process.exitCode = code ?? (signal === null ? 1 : 128 + constants.signals[signal]);
  });
}

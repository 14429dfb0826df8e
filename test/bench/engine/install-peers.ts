import { spawn } from 'node:child_process';
import { copyFile, mkdir, readFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const MANIFEST = path.join(import.meta.dirname, 'peers', 'package.json');

/** Directory of the peer libraries: outside the clone, and installed only by the benchmarks that need them. */
export const PEERS_DIRECTORY = path.join(
  process.env.XDG_CACHE_HOME ?? path.join(os.homedir(), '.cache'),
  'pie',
  'bench-peers',
);

/** Installs the pinned peers when they are missing or outdated. They take about 1.2 GB, since they contain binaries for every kind of GPU. */
export async function installPeers(progress: (line: string) => void): Promise<void> {
  const manifest = await readFile(MANIFEST, 'utf8');
  const target = path.join(PEERS_DIRECTORY, 'package.json');
  const marker = path.join(PEERS_DIRECTORY, 'installed.json');
  if ((await readFile(marker, 'utf8').catch(() => '')) === manifest) return;
  progress(`installing node-llama-cpp and transformers.js into ${PEERS_DIRECTORY} (once)`);
  await mkdir(PEERS_DIRECTORY, { recursive: true });
  await copyFile(MANIFEST, target);
  await npmInstall();
  await copyFile(MANIFEST, marker);
}

/** Imports a module of a peer by its file; untyped, since the peers are not installed when the types are checked. */
export async function importPeer(file: string): Promise<Record<string, unknown>> {
  return (await import(pathToFileURL(path.join(PEERS_DIRECTORY, 'node_modules', file)).href)) as Record<
    string,
    unknown
  >;
}

function npmInstall(): Promise<void> {
  return new Promise((resolve, reject) => {
    const npm = spawn('npm', ['install', '--ignore-scripts', '--no-audit', '--no-fund', '--omit=dev'], {
      cwd: PEERS_DIRECTORY,
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    npm.once('error', reject);
    npm.once('exit', (code) =>
      code === 0 ? resolve() : reject(new Error(`npm install of the benchmark's peers ended with ${code}`)),
    );
  });
}

import { spawn } from 'node:child_process';
import { copyFile, mkdir, readFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const MANIFEST = path.join(import.meta.dirname, 'peers', 'package.json');

/** Where the libraries that we are measured against live: outside the clone, so that nobody who does not run this pays for them. */
export const PEERS_DIRECTORY = path.join(
  process.env.XDG_CACHE_HOME ?? path.join(os.homedir(), '.cache'),
  'pie',
  'bench-peers',
);

/** Installs the pinned peers when they are not there. Some 1.2 GB, since they bring binaries for every card. */
export async function installPeers(progress: (line: string) => void): Promise<void> {
  const wanted = await readFile(MANIFEST, 'utf8');
  const target = path.join(PEERS_DIRECTORY, 'package.json');
  const done = path.join(PEERS_DIRECTORY, 'installed.json');
  if ((await readFile(done, 'utf8').catch(() => '')) === wanted) return;
  progress(`installing node-llama-cpp and transformers.js into ${PEERS_DIRECTORY} (once)`);
  await mkdir(PEERS_DIRECTORY, { recursive: true });
  await copyFile(MANIFEST, target);
  await npmInstall();
  await copyFile(MANIFEST, done);
}

/** A module of the peers, by its file. Their types are not ours to have. */
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

// Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { spawnSync } from 'node:child_process';
import { ensureInstalled, runs } from './packages.js';

const PACKAGES = ['clang', 'lld', 'wasi-libc'];

/** @type {import('./packages.js').Wanted} */
export const CLANG = {
  name: 'clang, wasm-ld or wasi-libc',
  reason: 'the tests compile inferlets in C',
  packages: {
    'apt-get': PACKAGES,
    dnf: ['clang', 'lld', 'wasi-libc-devel'],
    apk: PACKAGES,
    pacman: PACKAGES,
    brew: ['llvm', 'lld', 'wasi-libc'],
  },
  isThere,
};

/** Finds the C compiler and linker for the tests, or installs them with the system's package manager. The platform itself needs neither. */
export function ensureClang() {
  ensureInstalled(CLANG);
}

/** True when clang compiles and links for WebAssembly with a C library. */
function isThere() {
  if (!runs('wasm-ld')) return false;
  const libc = spawnSync('clang', ['--target=wasm32-wasi', '-print-file-name=libc.a'], { encoding: 'utf8' });
  // For a file that clang does not find, it prints the bare name.
  return libc.status === 0 && libc.stdout.trim() !== 'libc.a';
}

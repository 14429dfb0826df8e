// Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { ensureInstalled } from './packages.js';

const TARGET = 'wasm32-unknown-unknown';

/** @type {import('./packages.js').Wanted} */
export const RUST = {
  name: `rustc with its library for ${TARGET}`,
  reason: 'some tests compile inferlets in Rust',
  packages: {
    'apt-get': ['rustc', 'libstd-rust-dev-wasm32', 'lld'],
    dnf: ['rust', `rust-std-static-${TARGET}`, 'lld'],
    apk: ['rust', 'rust-wasm', 'lld'],
    pacman: ['rust', 'rust-wasm', 'lld'],
  },
  isThere,
  timeoutMs: 300_000,
};

/** Finds Rust for the tests, or installs it with the system's package manager. Without Rust, the tests that need it are skipped, and say why. */
export function ensureRust() {
  try {
    ensureInstalled(RUST);
  } catch (error) {
    console.log(`${error instanceof Error ? error.message : error}\nThe tests that compile Rust are skipped.`);
  }
}

/** True when any rustc on the PATH compiles for WebAssembly: a machine may have several, some without the library. */
function isThere() {
  return (process.env.PATH ?? '').split(path.delimiter).some((folder) => {
    const rustc = path.join(folder, 'rustc');
    if (!path.isAbsolute(rustc) || !existsSync(rustc)) return false;
    const { status, stdout } = spawnSync(rustc, ['--print', 'target-libdir', '--target', TARGET], { encoding: 'utf8' });
    const library = stdout?.trim();
    return status === 0 && existsSync(library) && readdirSync(library).some((file) => file.startsWith('libstd-'));
  });
}

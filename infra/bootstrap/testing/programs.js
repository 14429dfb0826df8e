// Programs that only the tests need. Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { ensureInstalled, runs } from '../packages.js';

const TARGET = 'wasm32-unknown-unknown';

/** @type {import('../packages.js').Wanted} */
export const RUST = {
  name: `rustc with its library for ${TARGET}`,
  reason: 'some tests compile inferlets in Rust',
  packages: {
    'apt-get': ['rustc', 'libstd-rust-dev-wasm32', 'lld'],
    dnf: ['rust', `rust-std-static-${TARGET}`, 'lld'],
    apk: ['rust', 'rust-wasm', 'lld'],
    pacman: ['rust', 'rust-wasm', 'lld'],
  },
  isThere: hasRust,
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
function hasRust() {
  return (process.env.PATH ?? '').split(path.delimiter).some((folder) => {
    const rustc = path.join(folder, 'rustc');
    if (!path.isAbsolute(rustc) || !existsSync(rustc)) return false;
    const { status, stdout } = spawnSync(rustc, ['--print', 'target-libdir', '--target', TARGET], { encoding: 'utf8' });
    const library = stdout?.trim();
    return status === 0 && existsSync(library) && readdirSync(library).some((file) => file.startsWith('libstd-'));
  });
}

const CLANG_PACKAGES = ['clang', 'lld', 'wasi-libc'];

/** @type {import('../packages.js').Wanted} */
export const CLANG = {
  name: 'clang, wasm-ld or wasi-libc',
  reason: 'the tests compile inferlets in C',
  packages: {
    'apt-get': CLANG_PACKAGES,
    dnf: ['clang', 'lld', 'wasi-libc-devel'],
    apk: CLANG_PACKAGES,
    pacman: CLANG_PACKAGES,
    brew: ['llvm', 'lld', 'wasi-libc'],
  },
  isThere: hasClang,
};

/** Finds the C compiler and linker for the tests, or installs them with the system's package manager. The platform itself needs neither. */
export function ensureClang() {
  ensureInstalled(CLANG);
}

/** True when clang compiles and links for WebAssembly with a C library. */
function hasClang() {
  if (!runs('wasm-ld')) return false;
  const libc = spawnSync('clang', ['--target=wasm32-wasi', '-print-file-name=libc.a'], { encoding: 'utf8' });
  // For a file that clang does not find, it prints the bare name.
  return libc.status === 0 && libc.stdout.trim() !== 'libc.a';
}

/** @type {import('../packages.js').Wanted} */
export const COMPILER = {
  name: 'A C++ compiler',
  reason: 'the tests compile the CUDA kernels for the CPU',
  packages: {
    'apt-get': ['g++', 'libc6-dev'],
    dnf: ['gcc-c++', 'libubsan'],
    apk: ['g++', 'linux-headers'],
    pacman: ['gcc'],
    zypper: ['gcc-c++'],
    brew: ['llvm'],
  },
  isThere: hasCompiler,
};

/**
 * Finds a C++ compiler or installs one with the system's package manager: the tests compile the CUDA kernels for the CPU. The platform
 * itself needs no compiler.
 */
export function ensureCplusplus() {
  ensureInstalled(COMPILER);
}

/** True when g++, clang++ or the compiler that CXX names compiles a program with the standard library. */
function hasCompiler() {
  return [process.env.CXX, 'g++', 'clang++'].some((program) => {
    if (!program) return false;
    const run = spawnSync(program, ['-std=c++17', '-fsyntax-only', '-x', 'c++', '-'], {
      input: '#include <vector>\n#include <thread>\nint main() { return 0; }\n',
      stdio: ['pipe', 'ignore', 'ignore'],
    });
    return run.error === undefined && run.status === 0;
  });
}

/** Program names to try for the browser, in this order; `test/browser/chromium.ts` tries the same names. */
const BROWSERS = ['chromium', 'chromium-browser', 'google-chrome'];
const CHROMIUM_PACKAGES = ['chromium'];

/** @type {import('../packages.js').Wanted} */
export const CHROMIUM = {
  name: 'Chromium',
  reason: 'the tests look at the dashboard in it',
  packages: {
    'apt-get': CHROMIUM_PACKAGES,
    dnf: CHROMIUM_PACKAGES,
    apk: CHROMIUM_PACKAGES,
    pacman: CHROMIUM_PACKAGES,
    zypper: CHROMIUM_PACKAGES,
  },
  isThere: () => BROWSERS.some((browser) => runs(browser)),
};

/** Finds the browser for the dashboard's tests or installs it with the system's package manager. The platform itself needs no browser. */
export function ensureChromium() {
  ensureInstalled(CHROMIUM);
}

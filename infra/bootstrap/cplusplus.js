// Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { spawnSync } from 'node:child_process';
import { ensureInstalled } from './packages.js';

/** @type {import('./packages.js').Wanted} */
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
  isThere,
};

/**
 * Finds a C++ compiler or installs one with the system's package manager: the tests compile the CUDA kernels for the CPU. The platform
 * itself needs no compiler.
 */
export function ensureCplusplus() {
  ensureInstalled(COMPILER);
}

/** True when g++, clang++ or the compiler that CXX names compiles a program with the standard library. */
function isThere() {
  return [process.env.CXX, 'g++', 'clang++'].some((program) => {
    if (!program) return false;
    const run = spawnSync(program, ['-std=c++17', '-fsyntax-only', '-x', 'c++', '-'], {
      input: '#include <vector>\n#include <thread>\nint main() { return 0; }\n',
      stdio: ['pipe', 'ignore', 'ignore'],
    });
    return run.error === undefined && run.status === 0;
  });
}

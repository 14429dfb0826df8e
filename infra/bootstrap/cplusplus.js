// Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { spawnSync } from 'node:child_process';

/** Package managers, each with the commands that install a C++ compiler and its library. */
const MANAGERS = [
  {
    program: 'apt-get',
    commands: [
      ['apt-get', 'update', '-qq'],
      ['apt-get', 'install', '-y', '-qq', '--no-install-recommends', 'g++', 'libc6-dev'],
    ],
  },
  { program: 'dnf', commands: [['dnf', 'install', '-y', 'gcc-c++', 'libubsan']] },
  { program: 'apk', commands: [['apk', 'add', 'g++', 'linux-headers']] },
  { program: 'pacman', commands: [['pacman', '-S', '--noconfirm', 'gcc']] },
  { program: 'zypper', commands: [['zypper', '--non-interactive', 'install', 'gcc-c++']] },
  { program: 'brew', commands: [['brew', 'install', 'llvm']], asUser: true },
];

/**
 * Finds a C++ compiler or installs one with the system's package manager: the tests compile the CUDA kernels for the CPU. The platform
 * itself needs no compiler.
 */
export function ensureCplusplus() {
  if (isThere()) return;
  const manager = MANAGERS.find(({ program }) => runs(program, ['--version']));
  if (!manager) {
    throw new Error(
      'g++ or clang++ is missing, with which the tests compile the CUDA kernels for the CPU, and no package manager was found. Install one.',
    );
  }
  const needsSudo = process.getuid?.() !== 0 && !manager.asUser;
  const byHand = manager.commands.map((command) => [...(needsSudo ? ['sudo'] : []), ...command].join(' ')).join(' && ');
  const advice = `Type this, then try again:\n\n  ${byHand}\n`;
  if (needsSudo && !runs('sudo', ['-n', 'true']))
    throw new Error(`A C++ compiler is missing and installing it needs your password. ${advice}`);

  console.log(`Installing a C++ compiler with ${manager.program} …`);
  for (const command of manager.commands) {
    const [program = '', ...args] = [...(needsSudo ? ['sudo', '-n'] : []), ...command];
    const run = spawnSync(program, args, {
      stdio: ['ignore', 'ignore', 'inherit'],
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    });
    if (run.status !== 0) throw new Error(`Installing a C++ compiler failed. ${advice}`);
  }
  if (!isThere()) throw new Error(`A C++ compiler was installed, but it finds no C++ library. ${advice}`);
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

/** @param {string} program @param {string[]} args */
function runs(program, args) {
  const run = spawnSync(program, args, { stdio: 'ignore' });
  return run.error === undefined && run.status === 0;
}

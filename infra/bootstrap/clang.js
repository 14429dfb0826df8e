// Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { spawnSync } from 'node:child_process';

/** Package managers, each with the commands that install clang, its linker and a C library for WebAssembly. */
const MANAGERS = [
  {
    program: 'apt-get',
    commands: [
      ['apt-get', 'update', '-qq'],
      ['apt-get', 'install', '-y', '-qq', '--no-install-recommends', 'clang', 'lld', 'wasi-libc'],
    ],
  },
  { program: 'dnf', commands: [['dnf', 'install', '-y', 'clang', 'lld', 'wasi-libc-devel']] },
  { program: 'apk', commands: [['apk', 'add', 'clang', 'lld', 'wasi-libc']] },
  { program: 'pacman', commands: [['pacman', '-S', '--noconfirm', 'clang', 'lld', 'wasi-libc']] },
  { program: 'brew', commands: [['brew', 'install', 'llvm', 'lld', 'wasi-libc']], asUser: true },
];

/** Finds the C compiler and linker for the tests, or installs them with the system's package manager. The platform needs none. */
export function ensureClang() {
  if (isThere()) return;
  const manager = MANAGERS.find(({ program }) => runs(program, ['--version']));
  if (!manager) {
    throw new Error(
      'clang, wasm-ld or wasi-libc is missing, with which the tests compile inferlets in C, and no package manager was found. Install LLVM and wasi-libc.',
    );
  }
  const needsSudo = process.getuid?.() !== 0 && !manager.asUser;
  const byHand = manager.commands.map((command) => [...(needsSudo ? ['sudo'] : []), ...command].join(' ')).join(' && ');
  const advice = `Type this, then try again:\n\n  ${byHand}\n`;
  if (needsSudo && !runs('sudo', ['-n', 'true']))
    throw new Error(`clang, wasm-ld or wasi-libc is missing and installing it needs your password. ${advice}`);

  console.log(`Installing clang, lld and wasi-libc with ${manager.program} …`);
  for (const command of manager.commands) {
    const [program = '', ...args] = [...(needsSudo ? ['sudo', '-n'] : []), ...command];
    const run = spawnSync(program, args, {
      stdio: ['ignore', 'ignore', 'inherit'],
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    });
    if (run.status !== 0) throw new Error(`Installing clang failed. ${advice}`);
  }
  if (!isThere())
    throw new Error(`clang was installed, but it finds no linker or C library for WebAssembly. ${advice}`);
}

/** True when clang compiles and links for WebAssembly with a C library. */
function isThere() {
  if (!runs('wasm-ld', ['--version'])) return false;
  const libc = spawnSync('clang', ['--target=wasm32-wasi', '-print-file-name=libc.a'], { encoding: 'utf8' });
  return libc.status === 0 && libc.stdout.trim() !== 'libc.a';
}

/** @param {string} program @param {string[]} args */
function runs(program, args) {
  const run = spawnSync(program, args, { stdio: 'ignore' });
  return run.error === undefined && run.status === 0;
}

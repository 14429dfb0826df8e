// Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import path from 'node:path';

/** Package managers, each with the commands that install bubblewrap. */
const MANAGERS = [
  {
    program: 'apt-get',
    commands: [
      ['apt-get', 'update', '-qq'],
      ['apt-get', 'install', '-y', '-qq', '--no-install-recommends', 'bubblewrap'],
    ],
  },
  { program: 'dnf', commands: [['dnf', 'install', '-y', 'bubblewrap']] },
  { program: 'yum', commands: [['yum', 'install', '-y', 'bubblewrap']] },
  { program: 'apk', commands: [['apk', 'add', 'bubblewrap']] },
  { program: 'pacman', commands: [['pacman', '-S', '--noconfirm', 'bubblewrap']] },
  { program: 'zypper', commands: [['zypper', '--non-interactive', 'install', 'bubblewrap']] },
];

/** Longest time for one command of a package manager. */
const INSTALL_TIMEOUT_MS = 120_000;

/**
 * Finds bubblewrap, which confines untrusted work in namespaces, or tries once to install it with the system's package manager. The
 * platform also starts without bubblewrap and reports the missing layers, so a failure here only prints a note.
 * @param {string} root the clone
 */
export function ensureBubblewrap(root) {
  if (process.platform !== 'linux' || runs('bwrap', ['--version'])) return;
  const tried = path.join(root, 'node_modules', '.pie-bubblewrap-tried');
  if (existsSync(tried)) return;
  writeFileSync(tried, '');
  const problem = install();
  if (problem !== null)
    console.log(
      `bubblewrap, which confines untrusted work in namespaces, could not be installed: ${problem}. Pie starts without it.`,
    );
}

/** @returns {string | null} the reason why bubblewrap could not be installed; null after success */
function install() {
  const manager = MANAGERS.find(({ program }) => runs(program, ['--version']));
  if (!manager) return 'no package manager was found';
  const root = process.getuid?.() === 0;
  const prefix = root ? [] : ['sudo', '-n'];
  const byHand = manager.commands.map((command) => [...(root ? [] : ['sudo']), ...command].join(' ')).join(' && ');
  if (!root && !runs('sudo', ['-n', 'true'])) return `installing it needs your password; type \`${byHand}\``;
  console.log(`Installing bubblewrap with ${manager.program} …`);
  for (const command of manager.commands) {
    const [program = '', ...args] = [...prefix, ...command];
    const run = spawnSync(program, args, {
      stdio: ['ignore', 'ignore', 'inherit'],
      timeout: INSTALL_TIMEOUT_MS,
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    });
    if (run.status !== 0) return `\`${command.join(' ')}\` failed`;
  }
  return runs('bwrap', ['--version']) ? null : 'it was installed, but is not on the PATH';
}

/** @param {string} program @param {string[]} args */
function runs(program, args) {
  const run = spawnSync(program, args, { stdio: 'ignore' });
  return run.error === undefined && run.status === 0;
}

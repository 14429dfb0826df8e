// Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { spawnSync } from 'node:child_process';

/** Package managers, each with the commands that install Redis. */
const MANAGERS = [
  {
    program: 'apt-get',
    commands: [
      ['apt-get', 'update', '-qq'],
      ['apt-get', 'install', '-y', '-qq', '--no-install-recommends', 'redis-server'],
    ],
  },
  { program: 'dnf', commands: [['dnf', 'install', '-y', 'redis']] },
  { program: 'yum', commands: [['yum', 'install', '-y', 'redis']] },
  { program: 'apk', commands: [['apk', 'add', 'redis']] },
  { program: 'pacman', commands: [['pacman', '-S', '--noconfirm', 'redis']] },
  { program: 'zypper', commands: [['zypper', '--non-interactive', 'install', 'redis']] },
  { program: 'brew', commands: [['brew', 'install', 'redis']], asUser: true },
];

/**
 * Error message with the install command when redis-server is not on the PATH; null when it is.
 * @returns {string | null}
 */
export function missingRedisServer() {
  if (runs('redis-server')) return null;
  const manager = MANAGERS.find(({ program }) => runs(program));
  const byHand = manager
    ? `Type this, then try again:\n\n  ${commandsOf(manager)}\n`
    : 'Install Redis 6.2 or newer, then try again.';
  return `redis-server is missing: it keeps the queue and the events of this platform. ${byHand}\nOr set REDIS_URL to a server of yours.`;
}

/** Finds redis-server or installs it with the system's package manager. Does nothing when REDIS_URL names a server. */
export function ensureRedisServer() {
  if (process.env.REDIS_URL || runs('redis-server')) return;
  const manager = MANAGERS.find(({ program }) => runs(program));
  if (!manager)
    throw new Error(
      'redis-server is missing and no package manager was found. Install Redis 6.2 or newer, or set REDIS_URL.',
    );

  const root = process.getuid?.() === 0;
  const prefix = root || manager.asUser ? [] : ['sudo', '-n'];
  const advice = `Type this, then try again:\n\n  ${commandsOf(manager)}\n\nOr set REDIS_URL to a server of yours.`;
  if (prefix.length > 0 && !runs('sudo', ['-n', 'true']))
    throw new Error(`redis-server is missing and installing it needs your password. ${advice}`);

  console.log(`Installing redis-server with ${manager.program} …`);
  for (const command of manager.commands) {
    const [program, ...args] = [...prefix, ...command];
    const run = spawnSync(program, args, {
      stdio: ['ignore', 'ignore', 'inherit'],
      // RUNLEVEL=1 keeps Debian from starting its own server: Pie runs a private one.
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' },
    });
    if (run.status !== 0) throw new Error(`Installing redis-server failed. ${advice}`);
  }
  if (!runs('redis-server')) throw new Error(`redis-server was installed but is not on the PATH. ${advice}`);
}

/** The shell command that installs Redis. @param {(typeof MANAGERS)[number]} manager */
function commandsOf({ commands, asUser }) {
  const root = process.getuid?.() === 0;
  return commands.map((command) => (root || asUser ? command : ['sudo', ...command]).join(' ')).join(' && ');
}

/** @param {string} program @param {string[]} args */
function runs(program, args = ['--version']) {
  const run = spawnSync(program, args, { stdio: 'ignore' });
  return run.error === undefined && run.status === 0;
}

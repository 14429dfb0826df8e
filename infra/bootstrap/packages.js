// Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { spawnSync } from 'node:child_process';

/** Package managers whose lists of packages this process has fetched. */
const refreshed = new Set();

/** Package managers in order of preference, each with the arguments of the commands that install packages without a question. */
const MANAGERS = [
  { program: 'apt-get', refresh: ['update', '-qq'], install: ['install', '-y', '-qq', '--no-install-recommends'] },
  { program: 'dnf', install: ['install', '-y'] },
  { program: 'yum', install: ['install', '-y'] },
  { program: 'apk', install: ['add'] },
  { program: 'pacman', install: ['-S', '--noconfirm'] },
  { program: 'zypper', install: ['--non-interactive', 'install'] },
  { program: 'brew', install: ['install'], asUser: true },
];

/**
 * Something that the system's package manager can install.
 * @typedef {object} Wanted
 * @property {string} name
 * @property {string} reason the rest of a sentence after "NAME is missing:"
 * @property {Readonly<Record<string, readonly string[]>>} packages its packages by package manager
 * @property {() => boolean} isThere
 * @property {string} [alternative] a sentence with another way for the user
 * @property {number} [timeoutMs] limit for each command; none by default
 */

/**
 * A text with the programs that {@link ensureInstalled} will install, its commands and the reasons; null when it will install none. Show the text
 * before the first installation, since the commands run with elevated rights.
 * @param {readonly Wanted[]} wanted
 * @returns {string | null}
 */
export function installStatement(wanted) {
  const missing = wanted.filter(({ isThere }) => !isThere());
  const lines = missing.flatMap((one) => {
    const commands = commandsFor(one);
    if (commands.length === 0) return [];
    return [`  ${one.name}: ${one.reason}`, `    ${commandText(commands)}`];
  });
  if (lines.length === 0) return null;
  const elevated = missing.some((one) => commandsFor(one).some(({ isElevated }) => isElevated));
  const rights = elevated ? " with administrator's rights" : '';
  return `Programs are missing. Pie installs them now${rights}, by these commands:\n\n${lines.join('\n')}\n`;
}

/**
 * Finds something, or installs it with the system's package manager.
 * @param {Wanted} wanted
 * @throws {Error} The message has the command for the user.
 */
export function ensureInstalled(wanted) {
  const { name, reason, isThere, timeoutMs } = wanted;
  if (isThere()) return;
  const missing = `${name} is missing: ${reason}.`;
  const advice = installAdvice(wanted);
  const commands = commandsFor(wanted);
  const [first] = commands;
  if (!first) throw new Error(`${missing} No package manager was found. ${advice}`);
  if (first.sudo && !runs('sudo', ['-n', 'true'])) throw new Error(`${missing} It needs your password. ${advice}`);
  console.log(`Installing ${name} with ${first.program} …`);
  for (const { sudo, program, args, refreshes } of commands) {
    if (refreshes && refreshed.has(program)) continue;
    const [executable = '', ...rest] = [...(sudo ? ['sudo', '-n'] : []), program, ...args];
    const run = spawnSync(executable, rest, {
      stdio: ['ignore', 'ignore', 'inherit'],
      // RUNLEVEL=1 keeps Debian from starting a server that it installs: Pie runs a private one.
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' },
      ...(timeoutMs !== undefined && { timeout: timeoutMs }),
    });
    if (run.status !== 0) throw new Error(`Installing ${name} failed. ${advice}`);
    if (refreshes) refreshed.add(program);
  }
  if (!isThere()) throw new Error(`${name} was installed, but does not work. ${advice}`);
}

/**
 * The commands that install something, as a text for the user.
 * @param {Pick<Wanted, 'name' | 'packages' | 'alternative'>} wanted
 */
export function installAdvice(wanted) {
  const { name, alternative } = wanted;
  const commands = commandsFor(wanted);
  const byHand =
    commands.length > 0 ? `Type this, then try again:\n\n  ${commandText(commands)}\n` : `Install ${name}.`;
  return alternative === undefined ? byHand : `${byHand}\n${alternative}`;
}

/**
 * A command of a package manager.
 * @typedef {object} Command
 * @property {boolean} isElevated true when the command runs as the superuser: by sudo, or because this process does
 * @property {boolean} sudo
 * @property {string} program
 * @property {readonly string[]} args
 * @property {boolean} refreshes true when the command only fetches the lists of packages
 */

/** @param {readonly Command[]} commands */
const commandText = (commands) =>
  commands.map(({ sudo, program, args }) => [...(sudo ? ['sudo'] : []), program, ...args].join(' ')).join(' && ');

/**
 * @param {Pick<Wanted, 'packages'>} wanted
 * @returns {readonly Command[]} empty without a package manager
 */
function commandsFor({ packages }) {
  const manager = MANAGERS.find(({ program }) => program in packages && runs(program));
  if (!manager) return [];
  const { program, refresh, install, asUser = false } = manager;
  const sudo = !asUser && process.getuid?.() !== 0;
  return [...(refresh ? [refresh] : []), [...install, ...(packages[program] ?? [])]].map((args) => ({
    isElevated: !asUser,
    sudo,
    program,
    args,
    refreshes: args === refresh,
  }));
}

/** @param {string} program @param {readonly string[]} args */
export function runs(program, args = ['--version']) {
  const run = spawnSync(program, args, { stdio: 'ignore' });
  return run.error === undefined && run.status === 0;
}

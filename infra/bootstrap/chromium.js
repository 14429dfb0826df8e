// Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { spawnSync } from 'node:child_process';

/** Program names to try for the browser, in this order; `test/browser/chromium.ts` tries the same names. */
const BROWSERS = ['chromium', 'chromium-browser', 'google-chrome'];

/** Package managers, each with the commands that install Chromium. */
const MANAGERS = [
  {
    program: 'apt-get',
    commands: [
      ['apt-get', 'update', '-qq'],
      ['apt-get', 'install', '-y', '-qq', '--no-install-recommends', 'chromium'],
    ],
  },
  { program: 'dnf', commands: [['dnf', 'install', '-y', 'chromium']] },
  { program: 'apk', commands: [['apk', 'add', 'chromium']] },
  { program: 'pacman', commands: [['pacman', '-S', '--noconfirm', 'chromium']] },
  { program: 'zypper', commands: [['zypper', '--non-interactive', 'install', 'chromium']] },
];

/** Finds the browser for the dashboard's tests or installs it with the system's package manager. The platform itself needs no browser. */
export function ensureChromium() {
  if (isThere()) return;
  const manager = MANAGERS.find(({ program }) => runs(program, ['--version']));
  if (!manager) {
    throw new Error(
      'Chromium is missing, in which the tests look at the dashboard, and no package manager was found. Install it so that `chromium --version` works.',
    );
  }
  const needsSudo = process.getuid?.() !== 0;
  const byHand = manager.commands.map((command) => [...(needsSudo ? ['sudo'] : []), ...command].join(' ')).join(' && ');
  const advice = `Type this, then try again:\n\n  ${byHand}\n`;
  if (needsSudo && !runs('sudo', ['-n', 'true']))
    throw new Error(`Chromium is missing and installing it needs your password. ${advice}`);

  console.log(`Installing chromium with ${manager.program} …`);
  for (const command of manager.commands) {
    const [program = '', ...args] = [...(needsSudo ? ['sudo', '-n'] : []), ...command];
    const run = spawnSync(program, args, {
      stdio: ['ignore', 'ignore', 'inherit'],
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    });
    if (run.status !== 0) throw new Error(`Installing chromium failed. ${advice}`);
  }
  if (!isThere()) throw new Error(`Chromium was installed but is not on the PATH. ${advice}`);
}

function isThere() {
  return BROWSERS.some((browser) => runs(browser, ['--version']));
}

/** @param {string} program @param {string[]} args */
function runs(program, args) {
  const run = spawnSync(program, args, { stdio: 'ignore' });
  return run.error === undefined && run.status === 0;
}

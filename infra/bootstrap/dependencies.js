// Plain JavaScript for the Node that a fresh machine has (20 or newer): this module runs before anything is installed.
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const OLDEST_NODE = 20;

/** One of the packages that only tests and checks need. */
const A_TOOL = '@biomejs';

/**
 * Installs the npm packages when they are missing or older than the lock file.
 * @param {string} root the clone
 * @param {{ readonly withTools: boolean }} options `withTools`: also the packages that only tests and checks need, two thirds of all
 * @param {() => void} meanwhile installs what the system's package manager has, while npm runs
 * @returns {Promise<string>} the pinned Node's path
 */
export async function ensureDependencies(root, { withTools }, meanwhile) {
  if (Number(process.versions.node.split('.')[0]) < OLDEST_NODE) {
    throw new Error(
      `Node ${process.versions.node} is too old: Pie starts from Node ${OLDEST_NODE}. Install a newer one from nodejs.org.`,
    );
  }
  const wanted = createHash('sha256')
    .update(readFileSync(path.join(root, 'package-lock.json')))
    .digest('hex');
  const stamp = path.join(root, 'node_modules', '.pie-stamp');
  const node = path.join(root, 'node_modules', '.bin', 'node');
  // The stamp is the hash of the lock file, and a word when the tools are there, too. A later release of a clone with tools gets its tools.
  const [known, tools] = existsSync(stamp) ? readFileSync(stamp, 'utf8').split(' ') : [];
  // Packages that someone installed without this function (`npm ci`) have no stamp: their tools stay, too.
  const hasTools = known === undefined ? existsSync(path.join(root, 'node_modules', A_TOOL)) : tools === 'tools';
  if (existsSync(node) && known === wanted && (hasTools || !withTools)) {
    meanwhile();
    return node;
  }

  // An install that breaks off leaves packages of two releases. Without the stamp, a later start does not take them for complete.
  rmSync(stamp, { force: true });
  console.log('Installing packages (once; a minute or two) …');
  // Not `npm ci`: `npm ci` refuses a lock file written against a registry that lacked another platform's optional package.
  const keepsTools = withTools || hasTools;
  const omitted = keepsTools ? [] : ['--omit=dev'];
  const npm = runNpm(root, [
    'install',
    ...omitted,
    '--ignore-scripts',
    '--no-save',
    '--no-audit',
    '--no-fund',
    '--loglevel=error',
  ]);
  try {
    meanwhile();
  } finally {
    // Wait for npm even when `meanwhile` fails: then the message of `meanwhile` comes last, and the next try finds what npm has installed.
    await npm.catch(() => undefined);
  }
  const code = await npm;
  if (code !== 0)
    throw new Error(
      'npm install failed; its message is above. Check that the npm registry can be reached, then try again.',
    );
  if (!existsSync(node))
    throw new Error(
      "The pinned Node was not installed: npm's optional packages are switched off (omit=optional). Switch them on, then try again.",
    );
  writeFileSync(stamp, keepsTools ? `${wanted} tools` : wanted);
  return node;
}

/**
 * @param {string} root
 * @param {string[]} args
 * @returns {Promise<number | null>} the exit code; null when a signal ended npm
 */
function runNpm(root, args) {
  const npm = spawn('npm', args, {
    cwd: root,
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  return new Promise((resolve, reject) => {
    npm.once('error', ({ message }) =>
      reject(new Error(`npm cannot be run (${message}). Install npm, then try again.`)),
    );
    npm.once('exit', resolve);
  });
}

// Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { existsSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { ensureInstalled, runs } from './packages.js';

const BUBBLEWRAP_PACKAGES = ['bubblewrap'];
/** Longest time for one command of a package manager. */
const INSTALL_TIMEOUT_MS = 120_000;

/** @type {import('./packages.js').Wanted} */
const BUBBLEWRAP = {
  name: 'bubblewrap',
  reason: 'it confines untrusted work in namespaces',
  packages: {
    'apt-get': BUBBLEWRAP_PACKAGES,
    dnf: BUBBLEWRAP_PACKAGES,
    yum: BUBBLEWRAP_PACKAGES,
    apk: BUBBLEWRAP_PACKAGES,
    pacman: BUBBLEWRAP_PACKAGES,
    zypper: BUBBLEWRAP_PACKAGES,
  },
  isThere: () => runs('bwrap'),
  timeoutMs: INSTALL_TIMEOUT_MS,
};

/**
 * The packages that {@link ensureBubblewrap} installs if they are missing: none after an earlier attempt, or on another system than Linux.
 * @param {string} root the clone
 * @returns {readonly import('./packages.js').Wanted[]}
 */
export function wantedBubblewrap(root) {
  return process.platform !== 'linux' || existsSync(triedFile(root)) ? [] : [BUBBLEWRAP];
}

/**
 * Finds bubblewrap, which confines untrusted work in namespaces, or tries once to install it with the system's package manager. The
 * platform also starts without bubblewrap and reports the missing layers, so a failure here only prints a note.
 * @param {string} root the clone
 */
export function ensureBubblewrap(root) {
  if (wantedBubblewrap(root).length === 0 || BUBBLEWRAP.isThere()) return;
  writeFileSync(triedFile(root), '');
  try {
    ensureInstalled(BUBBLEWRAP);
  } catch (error) {
    console.log(`${error instanceof Error ? error.message : error}\nPie starts without it.`);
  }
}

/** @param {string} root the clone */
const triedFile = (root) => path.join(root, 'node_modules', '.pie-bubblewrap-tried');

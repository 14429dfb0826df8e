// Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { ensureInstalled, installAdvice, runs } from './packages.js';

/** @type {import('./packages.js').Wanted} */
const REDIS = {
  name: 'redis-server',
  reason: 'it keeps the queue and the events of this platform',
  packages: {
    'apt-get': ['redis-server'],
    dnf: ['redis'],
    yum: ['redis'],
    apk: ['redis'],
    pacman: ['redis'],
    zypper: ['redis'],
    brew: ['redis'],
  },
  isThere: () => runs('redis-server'),
  alternative: 'Or set REDIS_URL to a server of yours, Redis 6.2 or newer.',
};

/**
 * Error message with the install command when redis-server is not on the PATH; null when it is.
 * @returns {string | null}
 */
export function missingRedisServer() {
  return REDIS.isThere() ? null : `${REDIS.name} is missing: ${REDIS.reason}. ${installAdvice(REDIS)}`;
}

/** The programs that {@link ensureRedisServer} looks for; none when REDIS_URL names a server. */
export function wantedRedisServer() {
  return process.env.REDIS_URL ? [] : [REDIS];
}

/** Finds redis-server or installs it with the system's package manager. */
export function ensureRedisServer() {
  for (const wanted of wantedRedisServer()) ensureInstalled(wanted);
}

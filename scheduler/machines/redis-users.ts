import { createHash, randomBytes } from 'node:crypto';
import type { Redis } from 'ioredis';
import { machineEntry } from '../gpu-hosts/drains.ts';
import type { Logger } from '../policies/logger.ts';
import type { Channels } from '../store/channels.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import type { JoinedMachine, Role } from './types.ts';

const PASSWORD_BYTES = 32;
/** Interval at which the users of Redis are compared with those that should exist: a Redis without an ACL file forgets its users at a restart. */
const RECONCILE_MS = 10_000;

const GRANT = loadScript(new URL('./machines.lua', import.meta.url), 'grant');

/** The note of a machine that has joined: its entry in `keys.joinedMachines`. */
interface JoinNote extends Omit<JoinedMachine, 'name'> {
  /** SHA-256 of the machine's password for Redis, in hex. */
  readonly password: string;
  /** Fingerprint of the certificate with which the machine joined. */
  readonly certificate: string;
}

/** A machine's access to Redis. */
export interface RedisUser {
  readonly user: string;
  readonly password: string;
}

/**
 * The Redis users of machines that have joined, one user per machine. A Redis without an ACL file forgets its users at a restart. The platform
 * therefore stores the hashes of their passwords, and each process whose own user may change users makes missing users again.
 */
export class RedisUsers {
  readonly #store: Store;
  readonly #channels: Channels;
  /** Users to which this process has given the rules of its release. */
  readonly #current = new Set<string>();

  constructor(store: Store, channels: Channels) {
    this.#store = store;
    this.#channels = channels;
  }

  /** True when this process's own user may make and remove others. */
  async mayChange(): Promise<boolean> {
    try {
      await this.#store.call((redis) => redis.call('ACL', 'USERS'));
      return true;
    } catch (error) {
      if (isRefused(error)) return false;
      throw error;
    }
  }

  /**
   * Makes a machine's user and uses the token up. Drains of an earlier machine of this name end.
   * @returns `no-token` when the token was used or has expired; `taken` when a machine of this name has joined or is registered, or when the
   *   certificate is that of a removed machine
   */
  async grant(
    token: string,
    name: string,
    certificate: string,
    roles: readonly Role[],
  ): Promise<RedisUser | 'no-token' | 'taken'> {
    const password = randomBytes(PASSWORD_BYTES).toString('base64url');
    const { keys } = this.#store;
    const hash = createHash('sha256').update(password).digest('hex');
    const joined: JoinNote = { password: hash, certificate, roles, joinedAt: this.#store.clock() };
    const granted = await this.#store.script(
      GRANT,
      [
        ...[keys.joinedMachines, keys.machine(name), keys.removedMachines, keys.joinToken(token)],
        ...[keys.drained, keys.drainedChannel],
      ],
      [name, JSON.stringify(joined), certificate, machineEntry(name)],
    );
    if (granted !== 1) return granted === 0 ? 'taken' : 'no-token';
    try {
      await this.reconcile();
    } catch (error) {
      // The token is used up, so the machine must get its password now; `follow` makes the user once Redis answers again.
      if (StoreError.from(error).code !== 'store-unavailable') throw error;
    }
    return { user: userOf(keys.prefix, name), password };
  }

  /** The machines that have joined, by name. */
  async joined(): Promise<JoinedMachine[]> {
    const stored = await this.#store.call((redis) => redis.hgetall(this.#store.keys.joinedMachines));
    const machines = Object.entries(stored).map(([name, text]) => {
      const { roles, joinedAt } = parse(text);
      return { name, roles, joinedAt };
    });
    return machines.sort((a, b) => a.name.localeCompare(b.name, 'en', { numeric: true }));
  }

  /** Brings the users of Redis in line with the machines that have joined. A removed machine's connections end at once. */
  async reconcile(): Promise<void> {
    const { keys } = this.#store;
    // Keep this order: `grant` notes a machine before it makes the user, so a listed user without a note belongs to a removed machine.
    const listed = (await this.#store.call((redis) => redis.call('ACL', 'LIST'))) as string[];
    const stored = await this.#store.call((redis) => redis.hgetall(keys.joinedMachines));
    const wanted = new Map(
      Object.entries(stored).map(([name, text]) => [userOf(keys.prefix, name), parse(text).password] as const),
    );
    const commands = userCommands(listed, wanted, this.#current, keys.prefix);
    for (const command of commands) await this.#store.call((redis) => redis.call('ACL', ...command));
    for (const user of wanted.keys()) this.#current.add(user);
    if (commands.length > 0) await this.#store.call(keepUsers);
  }

  /** Reconciles now, after each change of the machines, after each reconnection and at intervals, until the returned function is called. */
  async follow(log: Logger): Promise<() => void> {
    /** True while a run of `reconcile` is queued. It sees every change that precedes its beginning, so a second queued run is not needed. */
    let isRunQueued = false;
    let lastRun = Promise.resolve();
    const again = () => {
      if (isRunQueued) return;
      isRunQueued = true;
      lastRun = lastRun
        .then(() => {
          isRunQueued = false;
          return this.reconcile();
        })
        .catch((error: unknown) => {
          // This process's own user may not change users: a process whose user may does the work.
          if (!isRefused(error)) log.warn({ error }, 'the users of Redis could not be brought up to date');
        });
    };
    const stop = await this.#channels.listen(this.#store.keys.machinesChannel, { message: again, resumed: again });
    const timer = setInterval(again, RECONCILE_MS).unref();
    again();
    await lastRun;
    return () => {
      clearInterval(timer);
      stop();
    };
  }
}

const userOf = (prefix: string, machine: string): string => `${prefix}-machine-${machine}`;

/** Writes the users to the ACL file of a Redis that has one. */
async function keepUsers(redis: Redis): Promise<void> {
  try {
    await redis.call('ACL', 'SAVE');
  } catch (error) {
    if (!(error instanceof Error) || !error.message.includes('not configured to use an ACL file')) throw error;
  }
}

/** True for the refusal of a command that this process's own user may not run. */
function isRefused(error: unknown): boolean {
  for (let at = error; at instanceof Error; at = at.cause) if (at.message.startsWith('NOPERM')) return true;
  return false;
}

function parse(text: string): JoinNote {
  try {
    return JSON.parse(text) as JoinNote;
  } catch (cause) {
    throw new StoreError('store-corrupt', 'The entry of a machine that has joined is not JSON.', { cause });
  }
}

/**
 * Rules of a machine's user. The user may do everything on keys and channels with the platform's prefix. It may do nothing that concerns other keys,
 * other users or the server, except `INFO`, which tells how much memory is left.
 */
const rulesOf = (prefix: string): string[] => [
  `~${prefix}:*`,
  `&${prefix}:*`,
  '+@all',
  '-@admin',
  '-@dangerous',
  '+info',
];

/**
 * The `ACL` commands that bring the users of Redis in line with the machines that have joined. Pure.
 * @param aclLines lines of `ACL LIST`
 * @param wantedUsers the users that should exist: user to the SHA-256 of its password, in hex
 * @param current users that are known to have the rules of this release; other users may have those of another release
 * @param prefix prefix of the platform's keys; users with another prefix stay as they are
 */
export function userCommands(
  aclLines: readonly string[],
  wantedUsers: ReadonlyMap<string, string>,
  current: ReadonlySet<string>,
  prefix: string,
): string[][] {
  const lineByUser = new Map<string, string>();
  for (const line of aclLines) {
    const [, user = ''] = line.split(' ', 2);
    if (user.startsWith(`${prefix}-machine-`)) lineByUser.set(user, line);
  }
  const removedUsers = [...lineByUser.keys()].filter((user) => !wantedUsers.has(user));
  const isKept = (user: string, hash: string) =>
    current.has(user) && lineByUser.get(user)?.split(' ').includes(`#${hash}`) === true;
  const changedUsers = [...wantedUsers].filter(([user, hash]) => !isKept(user, hash));
  return [
    ...(removedUsers.length > 0 ? [['DELUSER', ...removedUsers]] : []),
    ...changedUsers.map(([user, hash]) => ['SETUSER', user, 'reset', 'on', `#${hash}`, ...rulesOf(prefix)]),
  ];
}

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

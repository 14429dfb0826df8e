import { accessSync, constants, existsSync } from 'node:fs';
import path from 'node:path';
import { tryRead } from './files.ts';

/** Child group for the platform's own processes: the kernel lets their former group delegate controllers only while no process is in it. */
export const PLATFORM_GROUP = 'pie-platform';

/** Controllers that limit sandboxes. */
export type Controller = 'memory' | 'cpu';

/** The control group that was delegated to this process, or the reason why there is none. */
export type OwnGroup =
  | { readonly directory: string; readonly controllers: readonly Controller[] }
  | { readonly missing: string };

/**
 * Finds the cgroup v2 that this process may divide: its own group, or the parent when this process is already in the platform's group.
 * Changes nothing.
 */
export function ownGroup(proc = '/proc/self'): OwnGroup {
  const directory = groupDirectory(tryRead(`${proc}/cgroup`), tryRead(`${proc}/mountinfo`));
  if (directory === null) return { missing: 'this process is in no mounted cgroup v2' };
  return delegatedGroup(path.basename(directory) === PLATFORM_GROUP ? path.dirname(directory) : directory);
}

/** Checks that this process may make groups in a cgroup2 directory, and returns the controllers that it may delegate. */
export function delegatedGroup(directory: string): OwnGroup {
  const available = tryRead(path.join(directory, 'cgroup.controllers')).trim().split(' ');
  const controllers = (['memory', 'cpu'] as const).filter((name) => available.includes(name));
  if (controllers.length === 0) return { missing: `${directory} has neither the memory nor the cpu controller` };
  // Of all groups, only the root lacks this file.
  if (!existsSync(path.join(directory, 'cgroup.events')))
    return { missing: `${directory} is the machine's root group` };
  // Root may write into any group, but a login's group holds its shell and the other processes of its user.
  if (/^session-.*\.scope$/.test(path.basename(directory)))
    return { missing: `${directory} belongs to a login session` };
  const neededFiles = ['.', 'cgroup.procs', 'cgroup.subtree_control'];
  if (!neededFiles.every((name) => writable(path.join(directory, name))))
    return { missing: `${directory} is not writable` };
  return { directory, controllers };
}

/**
 * Directory of a process's group in the first cgroup2 mount that shows it; null when none does. Pure.
 * @param cgroup text of `/proc/PID/cgroup`
 * @param mountinfo text of `/proc/PID/mountinfo`, proc(5)
 */
export function groupDirectory(cgroup: string, mountinfo: string): string | null {
  const groupPath = /^0::(\/.*)$/m.exec(cgroup)?.[1];
  if (groupPath === undefined || groupPath.split('/').includes('..')) return null;
  for (const line of mountinfo.split('\n')) {
    const [mount = '', source = ''] = line.split(' - ');
    if (source.split(' ')[0] !== 'cgroup2') continue;
    const [, , , root = '', mountPoint = ''] = mount.split(' ').map(unescaped);
    const relativePath = path.posix.relative(root, groupPath);
    if (relativePath.split('/')[0] !== '..') return path.posix.join(mountPoint, relativePath);
  }
  return null;
}

/** The kernel writes spaces and backslashes in paths as octal escapes. */
const unescaped = (text: string): string =>
  text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));

function writable(file: string): boolean {
  try {
    accessSync(file, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

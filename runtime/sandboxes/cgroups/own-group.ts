import { accessSync, constants, existsSync } from 'node:fs';
import path from 'node:path';
import { tryRead } from './files.ts';

/** Group that the platform's own processes move into: the kernel lets a group share out controllers only when no process is in it. */
export const PLATFORM_GROUP = 'pie-platform';

/** Controllers that sandboxes are limited by. */
export type Controller = 'memory' | 'cpu';

/** The control group that was given to this process, or why there is none. */
export type OwnGroup =
  | { readonly directory: string; readonly controllers: readonly Controller[] }
  | { readonly missing: string };

/**
 * Finds the cgroup v2 that this process may share out: the one that it is in, or the parent of the platform's group when a process of the
 * platform came before. It changes nothing.
 */
export function ownGroup(proc = '/proc/self'): OwnGroup {
  const found = groupDirectory(tryRead(`${proc}/cgroup`), tryRead(`${proc}/mountinfo`));
  if (found === null) return { missing: 'no cgroup v2 is mounted that this process is in' };
  return delegatedGroup(path.basename(found) === PLATFORM_GROUP ? path.dirname(found) : found);
}

/** Whether this process may make groups in a directory of cgroup2, and which controllers it may give them. */
export function delegatedGroup(directory: string): OwnGroup {
  const listed = tryRead(path.join(directory, 'cgroup.controllers')).trim().split(' ');
  const controllers = (['memory', 'cpu'] as const).filter((name) => listed.includes(name));
  if (controllers.length === 0) return { missing: `${directory} has neither the memory nor the cpu controller` };
  if (!existsSync(path.join(directory, 'cgroup.events')))
    return { missing: `${directory} is the machine's root group` };
  // Root may write into any group: the one of a login holds its shell, and whatever else its user starts.
  if (/^session-.*\.scope$/.test(path.basename(directory))) return { missing: `${directory} is a login session's` };
  const needed = ['.', 'cgroup.procs', 'cgroup.subtree_control'];
  if (!needed.every((name) => writable(path.join(directory, name)))) return { missing: `${directory} is not writable` };
  return { directory, controllers };
}

/**
 * The directory of a process' group in the first mount of cgroup2 that shows it; null when none does. Pure.
 * @param cgroup text of `/proc/PID/cgroup`
 * @param mountinfo text of `/proc/PID/mountinfo`, proc(5)
 */
export function groupDirectory(cgroup: string, mountinfo: string): string | null {
  const own = /^0::(\/.*)$/m.exec(cgroup)?.[1];
  if (own === undefined || own.split('/').includes('..')) return null;
  for (const line of mountinfo.split('\n')) {
    const [mount = '', source = ''] = line.split(' - ');
    if (source.split(' ')[0] !== 'cgroup2') continue;
    const [, , , root = '', point = ''] = mount.split(' ').map(unescaped);
    const below = path.posix.relative(root, own);
    if (below.split('/')[0] !== '..') return path.posix.join(point, below);
  }
  return null;
}

/** The kernel writes blanks and backslashes of paths as octal numbers. */
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

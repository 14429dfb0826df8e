import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  writeFileSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type CoreWeight, GROUP_WEIGHT, weightOf } from './core-weight.ts';

/**
 * Memory of a group beyond that of its guests: Node itself (100 MB idle), buffers of the channel and the kernel, and the memory that guests
 * touch between two checks of the runtime (`MemoryWatch`).
 */
const NODE_MB = 256;
const PREFIX = 'pie-sandbox-';
const US_PER_MS = 1000;
/** Maximum attempts to remove a group. Killed processes leave it within moments; the start of the next runtime removes a group that remains. */
const REMOVAL_TRIES = 40;
const REMOVAL_PAUSE_MS = 50;

/** Number of groups that this process has made. */
let lastNumber = 0;

/** Makes control groups for confined processes in a writable cgroup2 directory. If the kernel refuses a limit, the group has no such limit. */
export class Groups {
  readonly #directory: string;
  readonly controllers: readonly Controller[];

  constructor(directory: string, controllers: readonly Controller[]) {
    this.#directory = directory;
    this.controllers = controllers;
  }

  /** Makes a group with `memoryMb` of memory in addition to Node's own; null on failure. */
  create(memoryMb: number): Group | null {
    const directory = path.join(this.#directory, `${PREFIX}${OWNER}-${++lastNumber}`);
    try {
      mkdirSync(directory);
    } catch {
      return null;
    }
    const group = new Group(directory);
    if (this.controllers.includes('memory')) group.limit(memoryMb);
    if (this.controllers.includes('cpu')) group.weigh('usual');
    return group;
  }

  /** Ends and removes the groups of dead owners. @returns the number of groups found */
  async sweep(): Promise<number> {
    const stale = entries(this.#directory).filter((name) => name.startsWith(PREFIX) && !lives(ownerOf(name)));
    await Promise.all(stale.map((name) => new Group(path.join(this.#directory, name)).remove()));
    return stale.length;
  }
}

/** The control group of one confined process and its descendants. */
export class Group {
  readonly directory: string;

  constructor(directory: string) {
    this.directory = directory;
  }

  /** Makes the kernel kill all processes of the group when they need more than `memoryMb` and Node's own memory. */
  limit(memoryMb: number): void {
    this.#write('memory.max', `${(memoryMb + NODE_MB) * 2 ** 20}`);
    this.#write('memory.swap.max', '0');
    this.#write('memory.oom.group', '1');
  }

  /** Sets the group's share of contended cores. */
  weigh(weight: CoreWeight): void {
    this.#write('cpu.weight', `${GROUP_WEIGHT[weight]}`);
  }

  /** The group's share of the cores; null when the kernel does not report it. */
  get weight(): CoreWeight | null {
    return weightOf(GROUP_WEIGHT, tryRead(path.join(this.directory, 'cpu.weight')).trim());
  }

  /** CPU time of all present and past processes of the group, in ms; null when the kernel does not report it. */
  get usedMs(): number | null {
    const used = /^usage_usec (\d+)$/m.exec(tryRead(path.join(this.directory, 'cpu.stat')))?.[1];
    return used === undefined ? null : Number(used) / US_PER_MS;
  }

  /** True when the kernel has killed processes of the group for their memory. */
  get outOfMemory(): boolean {
    return /^oom_kill [1-9]/m.test(tryRead(path.join(this.directory, 'memory.events')));
  }

  /** Kills the group's remaining processes, whatever their session, and removes the group. Resolves after the removal or the last attempt. */
  async remove(): Promise<void> {
    for (let tries = 0; tries < REMOVAL_TRIES; tries++) {
      this.#write('cgroup.kill', '1');
      try {
        rmdirSync(this.directory);
        return;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EBUSY') return;
      }
      await sleep(REMOVAL_PAUSE_MS);
    }
  }

  #write(file: string, text: string): void {
    tryWrite(path.join(this.directory, file), text);
  }
}

/** Identifies a process by its id and start time, because the kernel reuses ids. Null when there is no such process. */
function identity(pid: number): string | null {
  // The process name, in parentheses, may contain any characters. Of the fields after it, the one with index 19 is the start time.
  const fields = tryRead(`/proc/${pid}/stat`).split(') ').at(-1)?.split(' ') ?? [];
  const started = fields[19];
  return started === undefined ? null : `${pid}.${started}`;
}

const OWNER = identity(process.pid) ?? `${process.pid}.0`;

/** The process that made the group. */
const ownerOf = (name: string): string => name.slice(PREFIX.length).split('-')[0] ?? '';

const lives = (owner: string): boolean => identity(Number(owner.split('.')[0])) === owner;

function entries(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}

/** Reads a kernel file; empty when it cannot be read. */
export function tryRead(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

/** Writes a kernel file. Ignores failures: reading the file afterwards shows whether the write worked. */
export function tryWrite(file: string, text: string): void {
  try {
    writeFileSync(file, text);
  } catch {
    // The kernel lacks the file, refuses the text, or has removed the group.
  }
}

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

/** Groups for sandboxes, or the reason why there are none. */
export type Delegation = { readonly groups: Groups } | { readonly missing: string };

/** Maximum number of rounds that move processes: new processes may start during a round. */
const MOVING_ROUNDS = 8;
/** The kernel's default `cpu.weight`, which a sandbox has while it does not yield. */
const WEIGHT_A_CORE = 100;
/** The kernel's largest `cpu.weight`. */
const MAX_WEIGHT = 10_000;

/**
 * Prepares the control group of this process for sandboxes: moves the platform's processes into a group of their own, delegates the
 * controllers, and removes groups of dead runtimes. Changes a group only if all of its processes belong to the platform. A process belongs to the
 * platform if it is an ancestor of this process or descends from this process's parent.
 */
export async function openDelegation(own: OwnGroup = ownGroup(), pid = process.pid): Promise<Delegation> {
  if ('missing' in own) return own;
  const { directory } = own;
  const stranger = moveIn(directory, pid);
  if (stranger !== null) return { missing: `${directory} holds other processes too (process ${stranger})` };
  const controllers = handDown(directory, own.controllers);
  if (controllers.length === 0) return { missing: `${directory} does not hand its controllers down` };
  // The cores that a group computes on share its weight, so this gives the platform the weight of one sandbox on each core.
  const weight = Math.min(MAX_WEIGHT, WEIGHT_A_CORE * os.availableParallelism());
  const platform = path.join(directory, PLATFORM_GROUP);
  tryWrite(path.join(platform, 'cpu.weight'), `${weight}`);
  // A process takes the bound of its own group as the machine's memory (`process.constrainedMemory`), so the platform's group gets the same bound.
  const bound = tryRead(path.join(directory, 'memory.max')).trim();
  if (bound !== '') tryWrite(path.join(platform, 'memory.max'), bound);
  const groups = new Groups(directory, controllers);
  await groups.sweep();
  return { groups };
}

/** Moves a group's processes into the platform's group. @returns a foreign process that prevents the move, or null */
export function moveIn(directory: string, pid: number): number | null {
  const platformGroup = path.join(directory, PLATFORM_GROUP);
  for (let round = 0; round < MOVING_ROUNDS; round++) {
    const pids = tryRead(path.join(directory, 'cgroup.procs')).split('\n').filter(Boolean).map(Number);
    if (pids.length === 0) break;
    const stranger = pids.find((each) => !isRelated(each, pid));
    if (stranger !== undefined) return stranger;
    try {
      mkdirSync(platformGroup, { recursive: true });
    } catch {
      break;
    }
    for (const each of pids) tryWrite(path.join(platformGroup, 'cgroup.procs'), `${each}`);
  }
  return null;
}

/** Delegates controllers to the child groups. @returns the controllers that are delegated now */
export function handDown(directory: string, controllers: readonly Controller[]): Controller[] {
  const file = path.join(directory, 'cgroup.subtree_control');
  const active = () => tryRead(file).trim().split(' ');
  // The kernel applies all of a write or nothing, so each controller gets its own write.
  for (const name of controllers) if (!active().includes(name)) tryWrite(file, `+${name}`);
  return controllers.filter((name) => active().includes(name));
}

/** True when `otherPid` is an ancestor of `pid`, descends from the parent of `pid`, or has just ended. */
function isRelated(otherPid: number, pid: number): boolean {
  const starter = parentOf(pid);
  const ownAncestors = ancestors(pid);
  return (
    ownAncestors.includes(otherPid) || (starter !== null && ancestors(otherPid).includes(starter)) || hasEnded(otherPid)
  );
}

/** Returns a process, its parent, and so on. */
function ancestors(pid: number): number[] {
  const line: number[] = [];
  for (let at: number | null = pid; at !== null && at > 0 && !line.includes(at); at = parentOf(at)) line.push(at);
  return line;
}

/** Id 0 stands for a process that this process cannot see. */
const hasEnded = (pid: number): boolean => pid > 0 && tryRead(`/proc/${pid}/stat`) === '';

function parentOf(pid: number): number | null {
  const parent = Number(tryRead(`/proc/${pid}/stat`).split(') ').at(-1)?.split(' ')[1]);
  return parent > 0 ? parent : null;
}

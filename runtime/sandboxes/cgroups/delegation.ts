import { mkdirSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { tryRead, tryWrite } from './files.ts';
import { Groups } from './groups.ts';
import { type Controller, type OwnGroup, ownGroup, PLATFORM_GROUP } from './own-group.ts';

/** Groups for sandboxes, or why there are none. */
export type Delegation = { readonly groups: Groups } | { readonly missing: string };

/** Processes may be started while others move. */
const MOVING_ROUNDS = 8;
/** The kernel's bounds. */
const WEIGHT_A_CORE = 100;
const MOST_WEIGHT = 10_000;

/**
 * Makes the group that was given to this process ready for sandboxes: moves the platform's processes into a group of their own, hands the
 * controllers down, and removes what dead runtimes left. It touches a group only when all processes in it are of the platform: they
 * started this one, or have the same starter.
 */
export async function openDelegation(own: OwnGroup = ownGroup(), pid = process.pid): Promise<Delegation> {
  if ('missing' in own) return own;
  const { directory } = own;
  const stranger = moveIn(directory, pid);
  if (stranger !== null) return { missing: `${directory} holds other processes too (process ${stranger})` };
  const controllers = handDown(directory, own.controllers);
  if (controllers.length === 0) return { missing: `${directory} does not hand its controllers down` };
  // A group's weight is shared among the cores that it computes on: this makes it that of one sandbox on each.
  const weight = Math.min(MOST_WEIGHT, WEIGHT_A_CORE * os.availableParallelism());
  const platform = path.join(directory, PLATFORM_GROUP);
  tryWrite(path.join(platform, 'cpu.weight'), `${weight}`);
  // A process takes the bound of its own group for the machine's memory (`process.constrainedMemory`).
  const bound = tryRead(path.join(directory, 'memory.max')).trim();
  if (bound !== '') tryWrite(path.join(platform, 'memory.max'), bound);
  const groups = new Groups(directory, controllers);
  await groups.sweep();
  return { groups };
}

/** Moves the processes of a group into the platform's. @returns a process that is not of the platform, when nothing can be moved for it */
export function moveIn(directory: string, pid: number): number | null {
  const inner = path.join(directory, PLATFORM_GROUP);
  for (let round = 0; round < MOVING_ROUNDS; round++) {
    const pids = tryRead(path.join(directory, 'cgroup.procs')).split('\n').filter(Boolean).map(Number);
    if (pids.length === 0) break;
    const stranger = pids.find((each) => !related(each, pid));
    if (stranger !== undefined) return stranger;
    try {
      mkdirSync(inner, { recursive: true });
    } catch {
      break;
    }
    for (const each of pids) tryWrite(path.join(inner, 'cgroup.procs'), `${each}`);
  }
  return null;
}

/** Gives the groups in this one their controllers. @returns those that they have now */
export function handDown(directory: string, controllers: readonly Controller[]): Controller[] {
  const file = path.join(directory, 'cgroup.subtree_control');
  const active = () => tryRead(file).trim().split(' ');
  // One at a time: the kernel takes all of a write or nothing.
  for (const name of controllers) if (!active().includes(name)) tryWrite(file, `+${name}`);
  return controllers.filter((name) => active().includes(name));
}

/** Whether a process started this one, or has the same starter. One that has just ended stands in nobody's way. */
function related(other: number, pid: number): boolean {
  const starter = parentOf(pid);
  const mine = ancestors(pid);
  return mine.includes(other) || (starter !== null && ancestors(other).includes(starter)) || gone(other);
}

/** A process, its parent, and so on. */
function ancestors(pid: number): number[] {
  const line: number[] = [];
  for (let at: number | null = pid; at !== null && at > 0 && !line.includes(at); at = parentOf(at)) line.push(at);
  return line;
}

/** 0 stands for a process that this one cannot see. */
const gone = (pid: number): boolean => pid > 0 && tryRead(`/proc/${pid}/stat`) === '';

function parentOf(pid: number): number | null {
  const parent = Number(tryRead(`/proc/${pid}/stat`).split(') ').at(-1)?.split(' ')[1]);
  return parent > 0 ? parent : null;
}

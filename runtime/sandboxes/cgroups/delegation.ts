import { mkdirSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { tryRead, tryWrite } from './files.ts';
import { Groups } from './groups.ts';
import { type Controller, type OwnGroup, ownGroup, PLATFORM_GROUP } from './own-group.ts';

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

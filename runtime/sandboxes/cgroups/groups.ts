import { mkdirSync, readdirSync, rmdirSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type CoreWeight, GROUP_WEIGHT, weightOf } from '../core-weight.ts';
import { tryRead, tryWrite } from './files.ts';
import type { Controller } from './own-group.ts';

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

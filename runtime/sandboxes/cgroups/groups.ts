import { mkdirSync, readdirSync, rmdirSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type CoreWeight, GROUP_WEIGHT, weightOf } from '../core-weight.ts';
import { tryRead, tryWrite } from './files.ts';
import type { Controller } from './own-group.ts';

/**
 * What a group may hold beyond the memory of its guests: Node itself (100 MB idle), buffers of the channel and of the kernel, and what guests
 * touch between two looks of the runtime, which ends the newest invocation first.
 */
const NODE_MB = 256;
const PREFIX = 'pie-sandbox-';
const US_PER_MS = 1000;
/** Processes that were killed leave their group within moments; one that has not done so is left to the next runtime's start. */
const REMOVAL_TRIES = 40;
const REMOVAL_PAUSE_MS = 50;

/** Numbers of all groups of this process. */
let lastNumber = 0;

/** The control groups that this process makes for confined processes, in a directory of cgroup2 that it may write. A write that fails is survived: what it was to limit is unlimited. */
export class Groups {
  readonly #directory: string;
  readonly controllers: readonly Controller[];

  constructor(directory: string, controllers: readonly Controller[]) {
    this.#directory = directory;
    this.controllers = controllers;
  }

  /** Makes a group whose processes may hold so much memory beside what Node needs; null when it cannot be made. */
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

  /** Ends and removes the groups of processes that are gone. @returns how many it found */
  async sweep(): Promise<number> {
    const stale = entries(this.#directory).filter((name) => name.startsWith(PREFIX) && !lives(ownerOf(name)));
    await Promise.all(stale.map((name) => new Group(path.join(this.#directory, name)).remove()));
    return stale.length;
  }
}

/** The control group of one confined process and of all that it starts. */
export class Group {
  readonly directory: string;

  constructor(directory: string) {
    this.directory = directory;
  }

  /** The kernel ends all its processes when they need more than this and what Node needs. */
  limit(memoryMb: number): void {
    this.#write('memory.max', `${(memoryMb + NODE_MB) * 2 ** 20}`);
    this.#write('memory.swap.max', '0');
    this.#write('memory.oom.group', '1');
  }

  /** Its part of the cores while others want them. */
  weigh(weight: CoreWeight): void {
    this.#write('cpu.weight', `${GROUP_WEIGHT[weight]}`);
  }

  /** What the kernel gives it of the cores; null when it does not tell. */
  get weight(): CoreWeight | null {
    return weightOf(GROUP_WEIGHT, tryRead(path.join(this.directory, 'cpu.weight')).trim());
  }

  /** CPU time of all processes that are or were in it, in ms; null when the kernel does not tell. */
  get usedMs(): number | null {
    const used = /^usage_usec (\d+)$/m.exec(tryRead(path.join(this.directory, 'cpu.stat')))?.[1];
    return used === undefined ? null : Number(used) / US_PER_MS;
  }

  /** The kernel has ended processes of it for their memory. */
  get outOfMemory(): boolean {
    return /^oom_kill [1-9]/m.test(tryRead(path.join(this.directory, 'memory.events')));
  }

  /** Ends what is left in it, whatever session it is in, and removes it; resolves when that is done or given up. */
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

/** A process by its number and the time of its start: numbers are given again. Null when there is none. */
function identity(pid: number): string | null {
  // The name, in parentheses, may hold anything.
  const fields = tryRead(`/proc/${pid}/stat`).split(') ').at(-1)?.split(' ') ?? [];
  const started = fields[19];
  return started === undefined ? null : `${pid}.${started}`;
}

const OWNER = identity(process.pid) ?? `${process.pid}.0`;

/** The process that made a group of this name. */
const ownerOf = (name: string): string => name.slice(PREFIX.length).split('-')[0] ?? '';

const lives = (owner: string): boolean => identity(Number(owner.split('.')[0])) === owner;

function entries(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}

import type { CompiledWorld } from '../lowering/compile.ts';
import type { Execution, ExecutionOptions } from '../lowering/execution.ts';
import { instantiate, type Program } from '../lowering/instance.ts';
import type { Snapshot } from '../lowering/instance-state.ts';
import { BurstSize, DEFAULT_SIZING, poolTargets, type SizingPolicy } from './sizing.ts';

export interface PoolOptions {
  readonly world: CompiledWorld;
  readonly slices: ExecutionOptions['slices'];
  /** Memory that ready instances may take together. */
  readonly budgetBytes: number;
  /** Invocations that run now; refilling takes a small share of the thread while there are any. */
  readonly running?: () => number;
  readonly sizing?: Partial<Omit<SizingPolicy, 'budgetBytes'>>;
  readonly onError?: (error: unknown) => void;
}

interface Entry {
  readonly key: string;
  program: Program;
  readonly bursts: BurstSize;
  readonly ready: Execution[];
  /** Whose runs have returned: they are made as they were, or thrown away. */
  readonly used: Execution[];
  /** When instances were taken that may soon be given back, the first ones first. */
  readonly lentAtMs: number[];
  /** How each instance is made; null when that cannot be restored, undefined before the first. */
  snapshot: Snapshot | null | undefined;
  usedAtMs: number;
  instanceBytes: number;
  /** Instantiating it failed; it is tried again with the next launch. */
  failed: boolean;
}

/** Of the time that an instance takes to make, how many times as long the thread is left alone before the next, while invocations run. */
const BUSY_PAUSE = 4;
/** Resident memory of an instance apart from its linear memory, measured on QuickJS. */
export const INSTANCE_OVERHEAD_BYTES = 192 << 10;
/** Part of its linear memory that an idle instance has touched, measured on QuickJS. */
const TOUCHED = 0.25;
/** Instances of a program that ran and were not restored yet, at most. */
const MOST_USED = 64;
/** Most runs are over after so long, and their instances given back. */
const LENT_MS = 500;
/** How often arrival rates are looked at without a launch. */
const REVIEW_MS = 5000;
/** CPU limit while an instance is made; the invocation's own is set when it is taken. */
export const INSTANTIATE_CPU_MS = 1000;

/** Ready instances of every function: each is as it was made, whether it ran before or not. */
export class InstancePool {
  readonly #options: PoolOptions;
  readonly #policy: SizingPolicy;
  readonly #entries = new Map<string, Entry>();
  /** Ready instances that are asked for, also of what is not admitted yet. */
  readonly #minima = new Map<string, number>();
  #refill: NodeJS.Timeout | NodeJS.Immediate | null = null;
  readonly #review: NodeJS.Timeout;
  #closed = false;

  constructor(options: PoolOptions) {
    this.#options = options;
    this.#policy = { ...DEFAULT_SIZING, ...options.sizing, budgetBytes: options.budgetBytes };
    this.#review = setInterval(() => this.#schedule(), REVIEW_MS);
    this.#review.unref();
  }

  /** Ready instances, of one function or of all. */
  ready(key?: string): number {
    if (key !== undefined) return this.#entries.get(key)?.ready.length ?? 0;
    let sum = 0;
    for (const entry of this.#entries.values()) sum += entry.ready.length;
    return sum;
  }

  /** Memory that all ready instances may take together. */
  get budgetBytes(): number {
    return this.#options.budgetBytes;
  }

  has(key: string): boolean {
    return this.#entries.has(key);
  }

  /** Makes a program known, so that instances of it are kept ready. */
  admit(key: string, program: Program): void {
    const known = this.#entries.get(key);
    if (!known || known.program.plan !== program.plan) {
      const now = performance.now();
      const instanceBytes = INSTANCE_OVERHEAD_BYTES;
      this.#entries.set(key, {
        key,
        program,
        bursts: new BurstSize(),
        ready: [],
        used: [],
        lentAtMs: [],
        snapshot: undefined,
        usedAtMs: now,
        instanceBytes,
        failed: false,
      });
    }
    this.#schedule();
  }

  /** Keeps at least so many ready, within the budget. */
  keep(key: string, min: number): void {
    if (min > 0) this.#minima.set(key, min);
    else this.#minima.delete(key);
    this.#schedule();
  }

  /** Gives back what is ready of a program that left service; launches of it go on, and have instances kept as their bursts ask. */
  release(key: string): void {
    this.#minima.delete(key);
    const entry = this.#entries.get(key);
    if (!entry) return;
    entry.ready.length = 0;
    entry.used.length = 0;
    entry.usedAtMs = Number.NEGATIVE_INFINITY;
  }

  /** Makes instances at once until so many are ready; the next review throws away what is too many. Answers the memory of one. */
  fill(key: string, count: number): number {
    const entry = this.#known(key);
    while (entry.ready.length < count) entry.ready.push(this.#make(entry));
    return entry.instanceBytes;
  }

  /** Forgets a program; its ready instances are thrown away. */
  forget(key: string): void {
    this.#entries.delete(key);
  }

  /** An instance of a program that was admitted: a ready one, else one made now. Throws when making it fails. */
  take(key: string): { readonly execution: Execution; readonly instantiateMs: number; readonly ready: boolean } {
    const entry = this.#known(key);
    const now = performance.now();
    entry.bursts.arrive(now);
    entry.usedAtMs = now;
    entry.failed = false;
    entry.lentAtMs.push(now);
    const execution = entry.ready.pop() ?? this.#restore(entry);
    this.#schedule();
    if (execution) return { execution, instantiateMs: 0, ready: true };
    const made = this.#make(entry);
    return { execution: made, instantiateMs: performance.now() - now, ready: false };
  }

  /**
   * Takes back an instance whose run has returned. Nothing of the run is left in it when it is taken again.
   *
   * @param program of which it was made
   */
  giveBack(key: string, program: Program, execution: Execution): void {
    const entry = this.#entries.get(key);
    entry?.lentAtMs.shift();
    if (!entry?.snapshot || entry.program !== program || entry.used.length >= MOST_USED) {
      execution.dispose();
      return;
    }
    entry.used.push(execution);
    this.#schedule();
  }

  /** Throws every ready instance away and makes no more. */
  close(): void {
    this.#closed = true;
    clearInterval(this.#review);
    if (this.#refill) cancel(this.#refill);
    this.#entries.clear();
  }

  #known(key: string): Entry {
    const entry = this.#entries.get(key);
    if (!entry) throw new TypeError(`no function ${key} in the pool`);
    return entry;
  }

  #make(entry: Entry): Execution {
    const { world, slices } = this.#options;
    const execution = instantiate(entry.program, world, { slices, cpuLimitMs: INSTANTIATE_CPU_MS });
    entry.instanceBytes = INSTANCE_OVERHEAD_BYTES + Math.ceil(execution.guest.memoryBytes * TOUCHED);
    if (entry.snapshot === undefined) entry.snapshot = execution.state.snapshot();
    return execution;
  }

  /** One of those that ran, as it was made; undefined when there is none. */
  #restore(entry: Entry): Execution | undefined {
    const options = { slices: this.#options.slices, cpuLimitMs: INSTANTIATE_CPU_MS };
    for (let used = entry.used.pop(); used; used = entry.used.pop()) {
      if (entry.snapshot && used.renew(entry.snapshot, options)) return used;
      used.dispose();
    }
    return undefined;
  }

  #schedule(): void {
    if (this.#refill || this.#closed) return;
    this.#refill = setImmediate(() => this.#turn());
  }

  /** Makes one instance, or throws away what is too many. */
  #turn(): void {
    this.#refill = null;
    if (this.#closed) return;
    const now = performance.now();
    const targets = poolTargets(
      [...this.#entries.values()].map(({ key, bursts, usedAtMs, instanceBytes }) => ({
        key,
        min: this.#minima.get(key) ?? 0,
        burst: bursts.at(now),
        idleMs: now - usedAtMs,
        instanceBytes,
      })),
      this.#policy,
    );
    let short: Entry | null = null;
    for (const entry of this.#entries.values()) {
      const target = targets.get(entry.key) ?? 0;
      if (entry.ready.length > target) entry.ready.length = target;
      if (entry.used.length > target - entry.ready.length) entry.used.length = target - entry.ready.length;
      const isShort =
        entry.used.length > 0 ? entry.ready.length < target : entry.ready.length + lent(entry, now) < target;
      if (!entry.failed && isShort && (!short || entry.ready.length < short.ready.length)) short = entry;
    }
    if (!short) return;
    try {
      short.ready.push(this.#restore(short) ?? this.#make(short));
    } catch (error) {
      short.failed = true;
      this.#options.onError?.(error);
    }
    const tookMs = performance.now() - now;
    const busy = (this.#options.running?.() ?? 0) > 0;
    this.#refill = busy
      ? setTimeout(() => this.#turn(), Math.ceil(tookMs * BUSY_PAUSE))
      : setImmediate(() => this.#turn());
  }
}

/** Instances that are expected back soon: making another one meanwhile would take the thread for nothing. */
function lent({ snapshot, lentAtMs }: Entry, now: number): number {
  while (lentAtMs[0] !== undefined && now - lentAtMs[0] > LENT_MS) lentAtMs.shift();
  return snapshot ? lentAtMs.length : 0;
}

function cancel(refill: NodeJS.Timeout | NodeJS.Immediate): void {
  clearTimeout(refill as NodeJS.Timeout);
  clearImmediate(refill as NodeJS.Immediate);
}

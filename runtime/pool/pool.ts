import type { CompiledWorld } from '../lowering/compile.ts';
import type { Execution, ExecutionOptions } from '../lowering/execution.ts';
import { instantiate, type Program } from '../lowering/instance.ts';
import type { Snapshot } from '../lowering/instance-state.ts';
import { BurstSize, DEFAULT_SIZING, poolTargets, RecentPeak, type SizingPolicy } from './sizing.ts';

export interface PoolOptions {
  readonly world: CompiledWorld;
  readonly slices: ExecutionOptions['slices'];
  /** Memory that all ready instances together may take. */
  readonly budgetBytes: number;
  /** Number of running invocations; while it is above 0, refilling takes a small share of the thread. */
  readonly running?: () => number;
  readonly sizing?: Partial<Omit<SizingPolicy, 'budgetBytes'>>;
}

/** Stands for an instance that a launch has taken. Holds no reference to the instance, so an instance that trapped is garbage at once. */
interface Lent {
  readonly takenAtMs: number;
}

interface Entry {
  readonly key: string;
  program: Program;
  readonly bursts: BurstSize;
  readonly ready: Execution[];
  /** Instances whose runs have returned: the pool restores or disposes them. */
  readonly used: Execution[];
  /** Instances that were taken and may soon be given back. */
  readonly lent: Set<Lent>;
  /**
   * Longest recent time from a launch to the return of the instance, in ms. It is no mean: after a few short runs, a mean would make the pool replace
   * all instances of longer runs, and then drop these instances when they return.
   */
  readonly returnMs: RecentPeak;
  /** State of a new instance; null when instances of this program cannot be restored, undefined before the first instance. */
  snapshot: Snapshot | null | undefined;
  usedAtMs: number;
  /** Estimated resident memory of a ready instance; the overhead alone before the first instance. */
  instanceBytes: number;
  /** Linear memory of a new instance. */
  memoryBytes: number;
  /** True after a failed instantiation; the next launch tries again. */
  failed: boolean;
}

/** Pause between two instances while invocations run, as a multiple of the time that one instance took. */
const BUSY_PAUSE = 4;
/** Resident memory of an instance besides its linear memory, measured on QuickJS. */
export const INSTANCE_OVERHEAD_BYTES = 192 << 10;
/** Touched part of an idle instance's linear memory, measured on QuickJS. */
const TOUCHED = 0.25;
/** Touched part of a restored instance's linear memory: every page that one of its runs touched stays resident. */
const TOUCHED_BY_RUNS = 1;
/** Bound on a program's instances that ran and are not restored yet. */
const MAX_USED = 64;
/** The pool expects an instance back within `LENT_MS` plus twice the program's longest recent run, but within `LONGEST_LENT_MS`. */
const LENT_MS = 500;
const LONGEST_LENT_MS = 10_000;
/** Interval at which the pool reviews its targets even without a launch. */
const REVIEW_MS = 5000;
/** CPU limit while an instance is made; a launch sets the invocation's own limit. */
const INSTANTIATE_CPU_MS = 1000;

/** Ready instances of every function. Each is in its initial state, even if it ran before. */
export class InstancePool {
  readonly #options: PoolOptions;
  readonly #policy: SizingPolicy;
  readonly #entries = new Map<string, Entry>();
  readonly #lent = new WeakMap<Execution, Lent>();
  /** Requested numbers of ready instances, including those of programs not admitted yet. */
  readonly #minima = new Map<string, number>();
  #refill: NodeJS.Timeout | NodeJS.Immediate | null = null;
  #recheckTimer: NodeJS.Timeout | undefined;
  readonly #review: NodeJS.Timeout;
  #closed = false;

  constructor(options: PoolOptions) {
    this.#options = options;
    this.#policy = { ...DEFAULT_SIZING, ...options.sizing, budgetBytes: options.budgetBytes };
    this.#review = setInterval(() => this.#schedule(), REVIEW_MS);
    this.#review.unref();
  }

  /** Number of ready instances, of one function or of all. */
  ready(key?: string): number {
    if (key !== undefined) return this.#entries.get(key)?.ready.length ?? 0;
    let sum = 0;
    for (const entry of this.#entries.values()) sum += entry.ready.length;
    return sum;
  }

  has(key: string): boolean {
    return this.#entries.has(key);
  }

  /** Adds a program, so that instances of it are kept ready. */
  admit(key: string, program: Program): void {
    const existing = this.#entries.get(key);
    if (!existing || existing.program.plan !== program.plan) {
      const now = performance.now();
      const instanceBytes = INSTANCE_OVERHEAD_BYTES;
      this.#entries.set(key, {
        key,
        program,
        bursts: new BurstSize(),
        ready: [],
        used: [],
        lent: new Set(),
        returnMs: new RecentPeak(),
        snapshot: undefined,
        usedAtMs: now,
        instanceBytes,
        memoryBytes: 0,
        failed: false,
      });
    }
    this.#schedule();
  }

  /** Keeps at least `min` instances ready, within the budget. */
  keep(key: string, min: number): void {
    if (min > 0) this.#minima.set(key, min);
    else this.#minima.delete(key);
    this.#schedule();
  }

  /** Makes instances at once until `count` are ready; the next review drops excess ones. Returns the memory of one. */
  fill(key: string, count: number): number {
    const entry = this.#entryOf(key);
    while (entry.ready.length < count) entry.ready.push(this.#make(entry));
    return entry.instanceBytes;
  }

  /** Forgets a program and drops its ready instances. */
  forget(key: string): void {
    this.#entries.delete(key);
  }

  /** Returns an instance of an admitted program: a ready one, else a used one that it restores, else a new one. Throws when making it fails. */
  take(key: string): { readonly execution: Execution; readonly instantiateMs: number; readonly ready: boolean } {
    const entry = this.#entryOf(key);
    const now = performance.now();
    entry.bursts.arrive(now);
    entry.usedAtMs = now;
    entry.failed = false;
    const ready = entry.ready.pop();
    this.#schedule();
    const execution = ready ?? this.#restore(entry) ?? this.#make(entry);
    const lending = { takenAtMs: now };
    entry.lent.add(lending);
    this.#lent.set(execution, lending);
    return { execution, instantiateMs: ready ? 0 : performance.now() - now, ready: ready !== undefined };
  }

  /**
   * Takes back an instance whose run has returned. The instance is restored before it is taken again, so nothing of the run remains.
   *
   * @param program the program of the instance
   */
  giveBack(key: string, program: Program, execution: Execution): void {
    const entry = this.#entries.get(key);
    const lending = this.#lent.get(execution);
    if (entry && lending) {
      entry.lent.delete(lending);
      const now = performance.now();
      entry.returnMs.add(now - lending.takenAtMs, now);
    }
    // Another program's instance, a busy one and one whose memory has grown cannot be restored.
    const isAsLarge = execution.state.memoryBytes === entry?.memoryBytes;
    if (
      !entry?.snapshot ||
      entry.program !== program ||
      !execution.guest.isQuiet ||
      !isAsLarge ||
      entry.used.length >= MAX_USED
    ) {
      execution.dispose();
      return;
    }
    entry.used.push(execution);
    this.#schedule();
  }

  /** Drops every ready instance and makes no more. */
  close(): void {
    this.#closed = true;
    clearInterval(this.#review);
    clearTimeout(this.#recheckTimer);
    if (this.#refill) cancel(this.#refill);
    this.#entries.clear();
  }

  #entryOf(key: string): Entry {
    const entry = this.#entries.get(key);
    if (!entry) throw new TypeError(`no function ${key} in the pool`);
    return entry;
  }

  #make(entry: Entry): Execution {
    const { world, slices } = this.#options;
    const execution = instantiate(entry.program, world, { slices, cpuLimitMs: INSTANTIATE_CPU_MS });
    if (entry.snapshot === undefined) entry.snapshot = execution.state.snapshot();
    entry.memoryBytes = execution.state.memoryBytes;
    entry.instanceBytes =
      INSTANCE_OVERHEAD_BYTES + Math.ceil(entry.memoryBytes * (entry.snapshot ? TOUCHED_BY_RUNS : TOUCHED));
    return execution;
  }

  /** Returns a used instance, restored to its initial state; undefined when none is left that can be restored. */
  #restore(entry: Entry): Execution | undefined {
    const options = { slices: this.#options.slices, cpuLimitMs: INSTANTIATE_CPU_MS };
    for (let execution = entry.used.pop(); execution; execution = entry.used.pop()) {
      if (entry.snapshot && execution.renew(entry.snapshot, options)) return execution;
      execution.dispose();
    }
    return undefined;
  }

  #schedule(): void {
    if (this.#refill || this.#closed) return;
    this.#refill = setImmediate(() => this.#fillOnce());
  }

  /** Drops excess instances, and adds one to the program with the fewest ready instances among those that lack some. Repeats while one lacks some. */
  #fillOnce(): void {
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
    let shortEntry: Entry | null = null;
    let isAnyWaiting = false;
    for (const entry of this.#entries.values()) {
      const target = targets.get(entry.key) ?? 0;
      if (entry.ready.length > target) entry.ready.length = target;
      if (entry.used.length > target - entry.ready.length) entry.used.length = target - entry.ready.length;
      if (entry.ready.length >= target) continue;
      // While lent instances may soon come back, make another one only to keep the minimum ready.
      const minimum = this.#minima.get(entry.key) ?? 0;
      const expectedReturns = entry.ready.length < minimum ? 0 : countExpected(entry, now);
      const isShort = entry.used.length > 0 || (!entry.failed && entry.ready.length + expectedReturns < target);
      // An entry that is below its target but not short waits for lent instances or, after a failure, for its next launch.
      if (!isShort) isAnyWaiting = true;
      else if (!shortEntry || entry.ready.length < shortEntry.ready.length) shortEntry = entry;
    }
    clearTimeout(this.#recheckTimer);
    if (!shortEntry) {
      if (isAnyWaiting) this.#recheckTimer = setTimeout(() => this.#schedule(), LENT_MS).unref();
      return;
    }
    try {
      shortEntry.ready.push(this.#restore(shortEntry) ?? this.#make(shortEntry));
    } catch {
      shortEntry.failed = true;
    }
    const tookMs = performance.now() - now;
    const isBusy = (this.#options.running?.() ?? 0) > 0;
    this.#refill = isBusy
      ? setTimeout(() => this.#fillOnce(), Math.ceil(tookMs * BUSY_PAUSE))
      : setImmediate(() => this.#fillOnce());
  }
}

/** Number of lent instances that are expected back soon and can be restored. Forgets those that were lent for too long. */
function countExpected({ snapshot, lent: lentInstances, returnMs }: Entry, now: number): number {
  const expectedMs = Math.min(LONGEST_LENT_MS, LENT_MS + 2 * returnMs.at(now));
  let count = 0;
  for (const lending of lentInstances) {
    const ageMs = now - lending.takenAtMs;
    if (ageMs > LONGEST_LENT_MS) lentInstances.delete(lending);
    else if (ageMs <= expectedMs) count++;
  }
  return snapshot ? count : 0;
}

function cancel(refill: NodeJS.Timeout | NodeJS.Immediate): void {
  clearTimeout(refill as NodeJS.Timeout);
  clearImmediate(refill as NodeJS.Immediate);
}

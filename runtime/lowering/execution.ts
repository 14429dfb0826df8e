import type { CompiledWorld } from './compile.ts';
import { Fuel, GO_ON, TRAP, WAIT } from './fuel.ts';
import { Guest, type WaitableSet } from './guest.ts';
import { InstanceState, type Snapshot } from './instance-state.ts';
import { EVENT_FUTURE_READ, EVENT_NONE, NOTHING_TO_WAIT_FOR, type Task, YIELD_COST_MS } from './intrinsics.ts';
import type { Form } from './plan.ts';
import type { Resumable, SliceRunner } from './slices.ts';
import { GuestTrap } from './trap.ts';

/** Entry points of an instance. */
export interface Entry {
  readonly form: Form;
  readonly run: (pointer: number, length: number) => number;
  readonly callback: ((event: number, first: number, second: number) => number) | null;
}

/** The result of `run`, or the trap that stopped it. */
export type Ending =
  | { readonly kind: 'returned'; readonly ok: boolean; readonly text: string }
  | { readonly kind: 'trapped'; readonly trap: GuestTrap };

export interface ExecutionOptions {
  readonly slices: SliceRunner;
  /** CPU time after which the inferlet is stopped. */
  readonly cpuLimitMs: number;
}

/** Longest time that a guest computes in one turn of the event loop. */
const SLICE_MS = 1;

/** Longest time that a guest may compute while it is pinned (cannot be suspended): in its allocator during a host call, or while instantiated. */
const PINNED_LIMIT_MS = 100;

/**
 * A stretch is the time from `resume` to `pause`. The kernel may have stopped this thread during a stretch that is longer than this. Such a stretch
 * is therefore charged by the thread's CPU time, if that is less.
 */
const STRETCH_MS = 20;

/** Maximum age of the reading of the thread's CPU time at the start of a stretch. */
const READING_MS = 5;

// Codes that the guest returns to the host, in the low four bits; the other bits hold the index of a waitable set (canonical ABI, `callback`).
const CODE_EXIT = 0;
const CODE_YIELD = 1;
const CODE_WAIT = 2;
const CODE_POLL = 3;

type Run = (pointer: number, length: number) => Promise<number>;
type Callback = (event: number, first: number, second: number) => Promise<number>;

/** Drives one instance through its call of `run`: callbacks, waits, slices, CPU time, and one ending. */
export class Execution implements Task {
  readonly guest = new Guest();
  readonly fuel: Fuel;
  /** The mutable state of the instance. */
  readonly state = new InstanceState();
  readonly #world: CompiledWorld;
  #options: ExecutionOptions;
  #entry: Entry | null = null;
  #onEnd: ((ending: Ending) => void) | null = null;
  #result: { ok: boolean; text: string } | null = null;
  #cpuMs = 0;
  /** Time at which the current stretch of the guest's code began; -1 while no guest code runs. */
  #runningSince = -1;
  /** The thread's CPU time at `#runningSince` or shortly before, in µs. */
  #runStartThreadUs = 0;
  /** CPU time at the start of the slice. A slice is one turn of the event loop in which the guest runs, however often it is entered. */
  #sliceStartCpuMs = 0;
  #sliceTurn = -1;
  /** The thread's CPU time when the slice was granted, in µs; -1 when the guest did not wait for the slice. */
  #sliceStartThreadUs = -1;
  /** The thread's CPU time when a pinned guest had used up its slice, in µs; -1 before. */
  #pinnedStartThreadUs = -1;
  /** Ends the current wait for a turn, with `GO_ON` or `TRAP`. */
  #resolveTurn: ((go: number) => void) | null = null;
  /** Place in the queue for slices. Only `renew` replaces this object, because the queue looks up the guest's credit by it. */
  #queueEntry: Resumable = { resume: () => this.#grant() };
  #run: Run = () => Promise.resolve(CODE_EXIT);
  #callback: Callback = () => Promise.resolve(CODE_EXIT);

  constructor(world: CompiledWorld, options: ExecutionOptions) {
    this.#world = world;
    this.#options = options;
    this.fuel = new Fuel({ ask: () => this.#ask(), wait: () => this.yield(), resumed: () => this.#resumed() });
    this.guest.onOverdue = () => this.#overdue();
    this.guest.onDeath = (trap) => {
      this.fuel.drain();
      this.#end({ kind: 'trapped', trap });
    };
  }

  get cpuMs(): number {
    return this.#cpuMs + (this.#runningSince < 0 ? 0 : this.#stretchMs());
  }

  /** Time for which the guest's code has been running. */
  #stretchMs(): number {
    const passedMs = performance.now() - this.#runningSince;
    return passedMs < STRETCH_MS ? passedMs : Math.min(passedMs, (threadCpuUs() - this.#runStartThreadUs) / 1000);
  }

  /** Adds CPU time that another thread spent for the guest; the time counts for no slice. */
  charge(cpuMs: number): void {
    this.#cpuMs += cpuMs;
    this.#sliceStartCpuMs += cpuMs;
  }

  set options(options: ExecutionOptions) {
    this.#options = options;
  }

  /** Instantiates under the limits for a pinned guest. Start functions are charged to the guest. */
  instantiate(link: () => Entry): void {
    this.guest.pinned++;
    this.resume();
    let entry: Entry;
    try {
      entry = link();
    } catch (error) {
      // A guest that runs out of fuel executes `unreachable`; the reason is in the trap that stopped it.
      throw this.guest.dead ?? error;
    } finally {
      this.pause();
      this.guest.pinned--;
    }
    this.#cpuMs = this.fuel.startMs;
    this.guest.saveContext();
    this.#entry = entry;
    // `promising` gives the guest its own stack. V8 runs host functions on the thread's stack, so a nearly full guest stack does not limit them.
    this.#run = WebAssembly.promising(entry.run) as Run;
    if (entry.callback) this.#callback = WebAssembly.promising(entry.callback) as Callback;
  }

  /**
   * Prepares the execution for another run and restores its instance to `snapshot`. Returns false when the execution was killed, when a part of
   * its run is active, or when its memory has grown: the execution must then not be used.
   */
  renew(snapshot: Snapshot, options: ExecutionOptions): boolean {
    if (!this.guest.isQuiet || this.#runningSince >= 0 || this.#resolveTurn !== null) return false;
    if (!this.state.restore(snapshot)) return false;
    this.guest.renew();
    this.fuel.drain();
    this.fuel.refill();
    this.#options = options;
    this.#onEnd = null;
    this.#result = null;
    this.#cpuMs = 0;
    this.#sliceStartCpuMs = 0;
    this.#sliceTurn = -1;
    this.#sliceStartThreadUs = -1;
    this.#pinnedStartThreadUs = -1;
    this.#queueEntry = { resume: () => this.#grant() };
    return true;
  }

  /** Calls `run`; at most once before each `renew`. The promise always resolves. */
  start(input: string): Promise<Ending> {
    const ending = new Promise<Ending>((resolve) => {
      this.#onEnd = resolve;
    });
    const { guest } = this;
    if (guest.dead) this.#end({ kind: 'trapped', trap: guest.dead });
    else {
      this.#enter(() => {
        // An empty input needs no memory: its pointer is not null, but points to nothing.
        const bytes = new TextEncoder().encode(input);
        const pointer = bytes.length === 0 ? 1 : guest.alloc(bytes.length, 1);
        guest.u8.set(bytes, bytes.length === 0 ? 0 : pointer);
        return this.#run(pointer, bytes.length);
      });
    }
    return ending;
  }

  /** Stops the inferlet at any point; `start` resolves with `trap`. */
  kill(trap: GuestTrap): void {
    this.guest.kill(trap);
  }

  /** Ends the remaining work; the instance must not be used afterwards. */
  dispose(): void {
    this.#onEnd = null;
    this.guest.kill(new GuestTrap('terminated', 'has ended'));
  }

  /** Stops the clock of the guest's CPU time: the guest's code does not run. */
  pause(): void {
    if (this.#runningSince < 0) return;
    this.#cpuMs += this.#stretchMs();
    this.#runningSince = -1;
  }

  /** Starts the clock of the guest's CPU time before the guest's code runs. */
  resume(): void {
    if (this.#runningSince >= 0) return;
    const turn = this.#options.slices.turn();
    if (turn !== this.#sliceTurn) this.#beginSlice(turn);
    this.#runningSince = performance.now();
    this.#runStartThreadUs = recentThreadCpuUs(this.#runningSince);
    this.guest.sliceEndsAt = this.#runningSince + SLICE_MS - (this.#cpuMs - this.#sliceStartCpuMs);
  }

  /** Suspends until the inferlet's next turn (`GO_ON`) or its death (`TRAP`); charges `costMs`. */
  yield(costMs = 0): Promise<number> {
    this.pause();
    this.#chargeThreadTime();
    this.#cpuMs += costMs;
    return new Promise((resolve) => {
      this.#resolveTurn = resolve;
      this.guest.unwind = () => {
        this.#resolveTurn = null;
        this.#options.slices.remove(this.#queueEntry);
        resolve(TRAP);
      };
      this.#options.slices.add(this.#queueEntry, this.#cpuMs - this.#sliceStartCpuMs);
    });
  }

  /**
   * Suspends the guest until the inferlet dies or the wait is over: `arm` gets the function to call when it is over. The clock stays stopped
   * until the guest's next fuel check, which also waits for the guest's turn.
   */
  block(arm: (wake: () => void) => void): Promise<void> {
    this.pause();
    return new Promise((resolve) => {
      this.guest.unwind = resolve;
      arm(() => {
        this.guest.unwind = null;
        resolve();
      });
    });
  }

  /** Resumes the guest: the queue calls this when the guest's turn has come. */
  #grant(): void {
    const resolveTurn = this.#resolveTurn;
    this.#resolveTurn = null;
    this.guest.unwind = null;
    this.#beginSlice(this.#options.slices.turn());
    this.#sliceStartThreadUs = threadCpuUs();
    resolveTurn?.(GO_ON);
  }

  /** Charges long slices by the thread's CPU time, so that an inferlet does not pay for a machine that others keep busy. */
  #chargeThreadTime(): void {
    if (this.#sliceStartThreadUs < 0) return;
    const usedMs = Math.min(this.#cpuMs - this.#sliceStartCpuMs, (threadCpuUs() - this.#sliceStartThreadUs) / 1000);
    this.#cpuMs = this.#sliceStartCpuMs + Math.max(0, usedMs);
    this.#sliceStartThreadUs = -1;
  }

  #beginSlice(turn: number): void {
    this.#pinnedStartThreadUs = -1;
    this.#sliceTurn = turn;
    this.#sliceStartCpuMs = this.#cpuMs;
  }

  /**
   * Continues at once, or in a later turn when the guest has used its slice of this turn. Without this, a guest whose calls are answered without a
   * turn of the event loop could run forever.
   */
  #whenFair(continueWith: (go: number) => void): void {
    if (this.#cpuMs > this.#options.cpuLimitMs) {
      this.guest.kill(this.#overLimit());
      continueWith(TRAP);
    } else if (this.#cpuMs - this.#sliceStartCpuMs < SLICE_MS || this.#options.slices.turn() !== this.#sliceTurn)
      continueWith(GO_ON);
    else void this.yield().then(continueWith);
  }

  returned(flat: number[]): void {
    if (this.#result) this.guest.trap('run returned twice');
    this.#result = asResult(this.#world.liftResult(this.guest, ...flat));
  }

  /** Decides how the guest continues without fuel. Called on the guest's stack. */
  #ask(): number {
    const { guest } = this;
    if (guest.dead) return TRAP;
    this.fuel.refill();
    // The guest runs, so the clock must run, whatever stopped it before.
    if (this.#entry) this.resume();
    const usedMs = this.cpuMs;
    if (usedMs > this.#options.cpuLimitMs) {
      guest.kill(this.#overLimit());
      return TRAP;
    }
    const sliceMs = usedMs - this.#sliceStartCpuMs;
    if (sliceMs < SLICE_MS) return GO_ON;
    if (guest.pinned === 0) return WAIT;
    // This limit counts the thread's CPU time, because on a busy machine even short work takes long on the clock.
    if (this.#pinnedStartThreadUs < 0) this.#pinnedStartThreadUs = threadCpuUs();
    if (sliceMs < PINNED_LIMIT_MS || threadCpuUs() - this.#pinnedStartThreadUs < PINNED_LIMIT_MS * 1000) return GO_ON;
    const where = this.#entry ? 'while an answer was handed to it' : 'while it was started';
    guest.kill(new GuestTrap('cpu-limit', `computed for ${PINNED_LIMIT_MS} ms ${where}`));
    return TRAP;
  }

  /** Called when the guest's stack runs again after a wait for its turn. */
  #resumed(): number {
    if (this.guest.dead) return TRAP;
    this.resume();
    return GO_ON;
  }

  /** Called when a host call ends after the guest's slice: makes the next fuel check ask, and checks the CPU limit now. */
  #overdue(): void {
    this.fuel.drain();
    if (this.cpuMs <= this.#options.cpuLimitMs) return;
    const trap = this.#overLimit();
    this.guest.kill(trap);
    throw trap;
  }

  #overLimit(): GuestTrap {
    return new GuestTrap('cpu-limit', `used its CPU time of ${this.#options.cpuLimitMs} ms (manifest: limits.cpuMs)`);
  }

  #enter(call: () => Promise<number>): void {
    this.resume();
    try {
      call().then(this.#onReturn, this.#onError);
    } catch (error) {
      this.#fail(error);
    } finally {
      this.pause();
    }
  }

  readonly #onReturn = (code: number): void => {
    this.pause();
    this.#step(code);
  };

  readonly #onError = (error: unknown): void => {
    this.pause();
    this.#fail(error);
  };

  /** Handles the guest's return code. */
  #step(code: number): void {
    if (this.guest.dead) return;
    try {
      // A guest that runs only briefly each time never runs out of fuel, so its CPU time is checked here.
      if (this.#cpuMs > this.#options.cpuLimitMs) throw this.#overLimit();
      if (this.#entry?.form === 'sync') this.#finishSync(code);
      // Calls that the guest has begun and not awaited end with it.
      else if (this.#result || this.#entry?.form === 'stackful') this.#finish();
      else this.#handleCode(code);
    } catch (error) {
      this.#fail(error);
    }
  }

  #handleCode(code: number): void {
    switch (code & 15) {
      case CODE_EXIT:
        this.#finish();
        return;
      case CODE_YIELD:
        void this.yield(YIELD_COST_MS).then((go) => {
          if (go === GO_ON) this.#call(EVENT_NONE);
        });
        return;
      case CODE_WAIT: {
        const set = this.guest.waitableSet(code >>> 4);
        if (set.ready.length > 0) this.#deliver(set);
        else if (set.members === 0) this.guest.trap(NOTHING_TO_WAIT_FOR);
        else set.wake = () => this.#deliver(set);
        return;
      }
      case CODE_POLL: {
        const set = this.guest.waitableSet(code >>> 4);
        void this.yield(YIELD_COST_MS).then((go) => {
          if (go !== GO_ON) return;
          if (set.ready.length > 0) this.#deliver(set);
          else this.#call(EVENT_NONE);
        });
        return;
      }
      default:
        this.guest.trap(`${code} is not a callback code`);
    }
  }

  /** Hands the oldest event of a set to the guest. */
  #deliver(set: WaitableSet): void {
    this.#whenFair((go) => {
      const future = go === GO_ON ? set.ready.shift() : undefined;
      if (!future) return;
      this.#enter(() => {
        this.guest.complete(future);
        return this.#callback(EVENT_FUTURE_READ, future.index, 0);
      });
    });
  }

  #call(event: number): void {
    if (!this.guest.dead) this.#enter(() => this.#callback(event, 0, 0));
  }

  #finish(): void {
    const result =
      this.#result ?? this.guest.trap('run ended without a result: it awaits a promise that nothing will settle');
    this.#end({ kind: 'returned', ...result });
  }

  #finishSync(pointer: number): void {
    const { guest } = this;
    const { size, align } = this.#world.resultLayout;
    if (guest.u8.length === 0) guest.refresh();
    guest.resetLifting();
    const result = asResult(this.#world.loadResult(guest, guest.range(pointer, size, align)));
    this.#end({ kind: 'returned', ...result });
  }

  #fail(error: unknown): void {
    this.guest.kill(this.guest.dead ?? GuestTrap.from(error));
  }

  #end(ending: Ending): void {
    const onEnd = this.#onEnd;
    this.#onEnd = null;
    onEnd?.(ending);
  }
}

let lastReadAt = Number.NEGATIVE_INFINITY;
let lastReadingUs = 0;

/** Returns a reading of the thread's CPU time that is at most {@link READING_MS} old. */
function recentThreadCpuUs(now: number): number {
  if (now - lastReadAt > READING_MS) {
    lastReadAt = now;
    lastReadingUs = threadCpuUs();
  }
  return lastReadingUs;
}

function threadCpuUs(): number {
  const { user, system } = process.threadCpuUsage();
  return user + system;
}

/** Converts a lifted `result<string, string>`. */
function asResult(value: unknown): { ok: boolean; text: string } {
  const { tag, val } = value as { tag: 'ok' | 'err'; val: string };
  return { ok: tag === 'ok', text: val };
}

import type { CompiledWorld } from './compile.ts';
import { Fuel, GO_ON, TRAP, WAIT } from './fuel.ts';
import { Guest, type WaitableSet } from './guest.ts';
import { EVENT_FUTURE_READ, EVENT_NONE, NOTHING_TO_WAIT_FOR, type Task, YIELD_COST_MS } from './intrinsics.ts';
import type { Resumable, SliceRunner } from './slice-runner.ts';
import { GuestTrap } from './trap.ts';

/** How `run` was exported: with a callback (C and all componentised JavaScript), stackful, or as a plain blocking function. */
export type Form = 'callback' | 'stackful' | 'sync';

/** Entry points of an instance. */
export interface Entry {
  readonly form: Form;
  readonly run: (pointer: number, length: number) => number;
  readonly callback: ((event: number, first: number, second: number) => number) | null;
}

/** An instance that something else drives: jco's glue. */
export interface ForeignEntry {
  readonly form: 'glue';
  readonly invoke: (input: string) => Promise<{ readonly ok: boolean; readonly text: string }>;
}

/** What `run` returned, or why it did not. */
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

/** Longest time that a guest may compute where it cannot be suspended: in its allocator, called by the host, or while it is instantiated. */
const PINNED_LIMIT_MS = 100;

/** In a longer stretch of computing the machine may have let this thread stand still: it is charged by the thread's CPU time. */
const STRETCH_MS = 20;

/** How old a reading of the thread's CPU time may be that a stretch is measured from. */
const READING_MS = 5;

/** Most time that a guest is charged for one tank of fuel when it cannot be measured. */
const GUESSED_QUANTUM_MS = 1;

const CODE_EXIT = 0;
const CODE_YIELD = 1;
const CODE_WAIT = 2;
const CODE_POLL = 3;

/** Drives one instance through its one call of `run`: callbacks, waits, slices, CPU time, and one ending. */
export class Execution implements Task {
  readonly guest = new Guest();
  readonly fuel: Fuel;
  readonly #world: CompiledWorld;
  #options: ExecutionOptions;
  #entry: Entry | ForeignEntry | null = null;
  #lastAsked = 0;
  #ended: ((ending: Ending) => void) | null = null;
  #result: { ok: boolean; text: string } | null = null;
  #cpuMs = 0;
  /** When the guest's code began to run; -1 while it does not. */
  #since = -1;
  /** The thread's CPU time then or a moment before, in µs. */
  #sinceThread = 0;
  /** CPU time when the slice began: with a turn of the event loop in which the guest runs, however often it is entered in that turn. */
  #sliceFrom = 0;
  #sliceTurn = -1;
  /** The thread's CPU time when the slice was granted, in µs; -1 when the slice was not waited for. */
  #threadFrom = -1;
  /** The thread's CPU time when the guest had used up this slice where it cannot be suspended, in µs; -1 before. */
  #pinnedFrom = -1;
  /** Answers the wait for its turn that is under way. */
  #granted: ((go: number) => void) | null = null;
  /** Its place in the line for slices; one object, because the line keeps its credit by it. */
  readonly #place: Resumable = { resume: () => this.#grant() };
  #run: (pointer: number, length: number) => unknown = () => 0;
  #callback: (event: number, first: number, second: number) => unknown = () => 0;

  constructor(world: CompiledWorld, options: ExecutionOptions) {
    this.#world = world;
    this.#options = options;
    this.fuel = new Fuel(
      () => this.#ask(),
      () => this.yield(),
    );
    this.guest.onDeath = (trap) => this.#end({ kind: 'trapped', trap });
  }

  get cpuMs(): number {
    return this.#cpuMs + (this.#since < 0 ? 0 : this.#stretchMs());
  }

  /** How long the guest's code has been running. */
  #stretchMs(): number {
    const passedMs = performance.now() - this.#since;
    return passedMs < STRETCH_MS ? passedMs : Math.min(passedMs, (threadCpuUs() - this.#sinceThread) / 1000);
  }

  /** Adds CPU time that another thread spent for it: no part of any slice. */
  charge(cpuMs: number): void {
    this.#cpuMs += cpuMs;
    this.#sliceFrom += cpuMs;
  }

  set options(options: ExecutionOptions) {
    this.#options = options;
  }

  /** Takes an instance that something else drives. */
  adopt(entry: ForeignEntry): void {
    this.#entry = entry;
    this.#cpuMs = 0;
  }

  /** Instantiates under the limits that hold while the guest cannot be suspended. */
  instantiate(link: () => Entry): void {
    this.guest.pinned++;
    this.resume();
    let entry: Entry;
    try {
      entry = link();
    } finally {
      this.pause();
      this.guest.pinned--;
    }
    this.#cpuMs = 0;
    this.#entry = entry;
    const { form, run, callback } = entry;
    const suspendable = this.fuel.metered || form !== 'callback';
    this.#run = suspendable ? WebAssembly.promising(run) : run;
    if (callback) this.#callback = suspendable ? WebAssembly.promising(callback) : callback;
  }

  /** Calls `run`, once. The promise always resolves. */
  start(input: string): Promise<Ending> {
    const ending = new Promise<Ending>((resolve) => {
      this.#ended = resolve;
    });
    const { guest } = this;
    const entry = this.#entry;
    if (guest.dead) this.#end({ kind: 'trapped', trap: guest.dead });
    else if (entry?.form === 'glue') {
      entry.invoke(input).then((result) => this.#end({ kind: 'returned', ...result }), this.#failed);
    } else {
      this.#enter(() => {
        const bytes = new TextEncoder().encode(input);
        const pointer = bytes.length === 0 ? 1 : guest.alloc(bytes.length, 1);
        guest.u8.set(bytes, bytes.length === 0 ? 0 : pointer);
        return this.#run(pointer, bytes.length);
      });
    }
    return ending;
  }

  /** Stops the inferlet wherever it is; `start` resolves with `trap`. */
  kill(trap: GuestTrap): void {
    this.guest.kill(trap);
  }

  /** Ends what is left of it; the instance is garbage from here on. */
  dispose(): void {
    this.#ended = null;
    this.guest.kill(new GuestTrap('terminated', 'has ended'));
  }

  pause(): void {
    if (this.#since < 0) return;
    this.#cpuMs += this.#stretchMs();
    this.#since = -1;
  }

  resume(): void {
    const turn = this.#options.slices.turn();
    if (turn !== this.#sliceTurn) this.#beginSlice(turn);
    if (this.#entry?.form !== 'glue') {
      this.#since = performance.now();
      this.#sinceThread = recentThreadCpuUs(this.#since);
    }
    this.fuel.refill();
  }

  /** Suspends until it is this inferlet's turn again; `costMs` is charged for it. */
  yield(costMs = 0): Promise<number> {
    this.pause();
    this.#chargeThreadTime();
    this.#cpuMs += costMs;
    return new Promise((resolve) => {
      this.#granted = resolve;
      this.guest.unwind = () => {
        this.#granted = null;
        this.#options.slices.remove(this.#place);
        resolve(TRAP);
      };
      this.#options.slices.add(this.#place, this.#cpuMs - this.#sliceFrom);
    });
  }

  /** Suspends until `wake` is called, and until it is this inferlet's turn. When it is killed meanwhile its trap is thrown there. */
  block(arm: (wake: () => void) => void): Promise<void> {
    if (this.guest.pinned > 0) this.guest.trap('the inferlet blocks where it cannot be suspended');
    this.pause();
    return new Promise((resolve, reject) => {
      this.guest.unwind = reject;
      arm(() => {
        if (this.guest.dead) return;
        this.guest.unwind = null;
        this.#whenFair((go) => {
          if (go !== GO_ON) return reject(this.guest.dead);
          this.resume();
          resolve();
        });
      });
    });
  }

  #grant(): void {
    const granted = this.#granted;
    this.#granted = null;
    this.guest.unwind = null;
    this.#beginSlice(this.#options.slices.turn());
    this.#threadFrom = threadCpuUs();
    this.resume();
    granted?.(GO_ON);
  }

  /** Long slices are charged by the thread's CPU time, so that nobody pays for a machine that others keep busy. */
  #chargeThreadTime(): void {
    if (this.#threadFrom < 0) return;
    const usedMs = Math.min(this.#cpuMs - this.#sliceFrom, (threadCpuUs() - this.#threadFrom) / 1000);
    this.#cpuMs = this.#sliceFrom + Math.max(0, usedMs);
    this.#threadFrom = -1;
  }

  #beginSlice(turn: number): void {
    this.#pinnedFrom = -1;
    this.#sliceTurn = turn;
    this.#sliceFrom = this.#cpuMs;
  }

  /**
   * Goes on at once, or later when the guest has had its slice of this turn: answers that come without a turn of the event loop in between must
   * not let it run for ever.
   */
  #whenFair(then: (go: number) => void): void {
    if (this.#cpuMs > this.#options.cpuLimitMs) {
      this.guest.kill(this.#overLimit());
      then(TRAP);
    } else if (this.#cpuMs - this.#sliceFrom < SLICE_MS || this.#options.slices.turn() !== this.#sliceTurn) then(GO_ON);
    else void this.yield().then(then);
  }

  returned(flat: number[]): void {
    if (this.#result) this.guest.trap('run returned twice');
    this.#result = asResult(this.#world.liftResult(this.guest, ...flat));
  }

  /** The guest's fuel has run out: what now? Called on its stack. */
  #ask(): number {
    const { guest } = this;
    if (guest.dead) return TRAP;
    this.fuel.refill();
    if (this.#entry?.form === 'glue') this.#guessUsage();
    const usedMs = this.cpuMs;
    if (usedMs > this.#options.cpuLimitMs) {
      guest.kill(this.#overLimit());
      return TRAP;
    }
    const sliceMs = usedMs - this.#sliceFrom;
    if (sliceMs < SLICE_MS) return GO_ON;
    if (guest.pinned === 0) return WAIT;
    // Of the thread's time: on the clock a busy machine takes as long over a short answer.
    if (this.#pinnedFrom < 0) this.#pinnedFrom = threadCpuUs();
    if (sliceMs < PINNED_LIMIT_MS || threadCpuUs() - this.#pinnedFrom < PINNED_LIMIT_MS * 1000) return GO_ON;
    guest.kill(new GuestTrap('cpu-limit', `computed for ${PINNED_LIMIT_MS} ms while an answer was handed to it`));
    return TRAP;
  }

  #overLimit(): GuestTrap {
    return new GuestTrap('cpu-limit', `used its CPU time of ${this.#options.cpuLimitMs} ms (manifest: limits.cpuMs)`);
  }

  /** When something else drives the guest, nobody tells when it runs: it has since it was last asked, if that was just now. */
  #guessUsage(): void {
    const now = performance.now();
    const passedMs = now - this.#lastAsked;
    this.#lastAsked = now;
    this.#cpuMs += Math.min(passedMs, GUESSED_QUANTUM_MS);
  }

  #enter(call: () => unknown): void {
    this.resume();
    let code: unknown;
    try {
      code = call();
    } catch (error) {
      this.#fail(error);
      return;
    } finally {
      this.pause();
    }
    if (code instanceof Promise) code.then(this.#returnedFrom, this.#failed);
    else this.#step(code as number);
  }

  readonly #returnedFrom = (code: number): void => {
    this.pause();
    this.#step(code);
  };

  readonly #failed = (error: unknown): void => {
    this.pause();
    this.#fail(error);
  };

  /** What the guest's return code asks for. */
  #step(code: number): void {
    if (this.guest.dead) return;
    try {
      // One that only ever runs for a moment never runs out of fuel.
      if (this.#cpuMs > this.#options.cpuLimitMs) throw this.#overLimit();
      if (this.#entry?.form === 'sync') this.#finishSync(code);
      // What it has begun and not awaited ends with it.
      else if (this.#result || this.#entry?.form === 'stackful') this.#finish();
      else this.#next(code);
    } catch (error) {
      this.#fail(error);
    }
  }

  #next(code: number): void {
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
        this.guest.trap(`${code} is no callback code`);
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
    const result = asResult(this.#world.loadResult(guest, guest.range(pointer, size, align)));
    this.#end({ kind: 'returned', ...result });
  }

  #fail(error: unknown): void {
    const trap = this.guest.dead ?? this.#classify(error);
    this.guest.kill(trap);
  }

  #classify(error: unknown): GuestTrap {
    if (error instanceof GuestTrap) return error;
    if (error instanceof RangeError && /call stack/i.test(error.message)) {
      return new GuestTrap('trap', 'the call stack is exhausted: endless recursion?', { cause: error });
    }
    const message = error instanceof Error ? error.message : String(error);
    return new GuestTrap('trap', message, { cause: error });
  }

  #end(ending: Ending): void {
    const ended = this.#ended;
    this.#ended = null;
    ended?.(ending);
  }
}

let readAt = Number.NEGATIVE_INFINITY;
let reading = 0;

/** The thread's CPU time at most {@link READING_MS} ago. */
function recentThreadCpuUs(now: number): number {
  if (now - readAt > READING_MS) {
    readAt = now;
    reading = threadCpuUs();
  }
  return reading;
}

function threadCpuUs(): number {
  const { user, system } = process.threadCpuUsage();
  return user + system;
}

/** `result<string, string>` as it is lifted. */
function asResult(value: unknown): { ok: boolean; text: string } {
  const { tag, val } = value as { tag: 'ok' | 'err'; val: string };
  return { ok: tag === 'ok', text: val };
}

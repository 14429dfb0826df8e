import type { CompiledWorld } from './compile.ts';
import { Fuel, GO_ON, TRAP, WAIT } from './fuel.ts';
import { Guest, type WaitableSet } from './guest.ts';
import { InstanceState, type Snapshot } from './instance-state.ts';
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
  /** What its instance changes. */
  readonly state = new InstanceState();
  readonly #world: CompiledWorld;
  #options: ExecutionOptions;
  #entry: Entry | null = null;
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
  #place: Resumable = { resume: () => this.#grant() };
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

  /** Instantiates under the limits that hold while the guest cannot be suspended. Start functions are charged to the guest. */
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
    this.#cpuMs = this.fuel.startMs;
    this.#entry = entry;
    // On a stack of its own: V8 runs the host's functions on the thread's stack then, however little the guest has left of its own.
    this.#run = WebAssembly.promising(entry.run) as Run;
    if (entry.callback) this.#callback = WebAssembly.promising(entry.callback) as Callback;
  }

  /**
   * Makes it as it was before its run, with an instance as it was made (`snapshot`), for another run. False, and nothing to be used any more, when
   * it was killed, something of the run is under way, or its memory has grown.
   */
  renew(snapshot: Snapshot, options: ExecutionOptions): boolean {
    if (!this.guest.isQuiet || this.#since >= 0 || this.#granted !== null) return false;
    if (!this.state.restore(snapshot)) return false;
    this.guest.renew();
    this.fuel.drain();
    this.fuel.refill();
    this.#options = options;
    this.#ended = null;
    this.#result = null;
    this.#cpuMs = 0;
    this.#sliceFrom = 0;
    this.#sliceTurn = -1;
    this.#threadFrom = -1;
    this.#pinnedFrom = -1;
    this.#place = { resume: () => this.#grant() };
    return true;
  }

  /** Calls `run`, once until it is renewed. The promise always resolves. */
  start(input: string): Promise<Ending> {
    const ending = new Promise<Ending>((resolve) => {
      this.#ended = resolve;
    });
    const { guest } = this;
    if (guest.dead) this.#end({ kind: 'trapped', trap: guest.dead });
    else {
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
    if (this.#since >= 0) return;
    const turn = this.#options.slices.turn();
    if (turn !== this.#sliceTurn) this.#beginSlice(turn);
    this.#since = performance.now();
    this.#sinceThread = recentThreadCpuUs(this.#since);
    this.guest.sliceEndsAt = this.#since + SLICE_MS - (this.#cpuMs - this.#sliceFrom);
  }

  /** Suspends until it is this inferlet's turn again, `GO_ON`, or until it dies, `TRAP`; `costMs` is charged for it. */
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

  /** Suspends until `wake` is called or the inferlet dies. Its next fuel check starts the clock, and waits for its turn. */
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

  #grant(): void {
    const granted = this.#granted;
    this.#granted = null;
    this.guest.unwind = null;
    this.#beginSlice(this.#options.slices.turn());
    this.#threadFrom = threadCpuUs();
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
    // Whatever has stopped the clock: the guest runs.
    if (this.#entry) this.resume();
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
    const where = this.#entry ? 'while an answer was handed to it' : 'while it was started';
    guest.kill(new GuestTrap('cpu-limit', `computed for ${PINNED_LIMIT_MS} ms ${where}`));
    return TRAP;
  }

  /** The guest's stack runs again after a wait for its turn. */
  #resumed(): number {
    if (this.guest.dead) return TRAP;
    this.resume();
    return GO_ON;
  }

  /** A host call has ended after the guest's slice: its next fuel check asks, and its CPU time is compared now. */
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
      call().then(this.#returnedFrom, this.#failed);
    } catch (error) {
      this.#fail(error);
    } finally {
      this.pause();
    }
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
    guest.resetLifting();
    const result = asResult(this.#world.loadResult(guest, guest.range(pointer, size, align)));
    this.#end({ kind: 'returned', ...result });
  }

  #fail(error: unknown): void {
    this.guest.kill(this.guest.dead ?? GuestTrap.from(error));
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

import { readFileSync } from 'node:fs';
import {
  beginWatch,
  type Look,
  look,
  type Silence,
  silenceFigures,
  type WatchLimits,
} from '#infra/supervisor/watch-policy.ts';
import { mainThreadTimes } from '#infra/supervisor/watchdog.ts';
import { GuestTrap } from '../lowering/trap.ts';
import { residentBytes } from '../sandboxes/index.ts';
import type { Sandbox } from './sandbox.ts';

/**
 * A sandbox with guests sends a beat every 100 ms. Its guests cannot delay the beat for long: a guest is preempted after 1 ms, or is stopped after
 * 100 ms if it computes in its allocator.
 */
const BUSY: WatchLimits = { everyMs: 100, computingMs: 500, stillMs: 3000 };
/** A sandbox without guests sends a beat every second. */
const IDLE: WatchLimits = { ...BUSY, everyMs: 1500 };
/**
 * Limits for a *deaf* sandbox: it sends messages but reads nothing that the runtime sends, because hostile code took it over. A healthy sandbox
 * that yields its cores may need seconds to act on a message, so time in which it waits for a core does not count.
 */
const DEAF = { computingMs: 10_000, stillMs: 3000 } as const;

/** A tick of the watch that comes this much later than the one before means that the runtime itself had no core, or was stopped. */
const PAUSE_MS = 2.5 * BUSY.everyMs;

interface Known {
  silence: Silence;
  heardAtMs: number;
  /** Like `silence`, but for the time since which the sandbox reads nothing of the data that waits for it. */
  deafness: Silence;
  untakenSinceMs: number | null;
}

/**
 * Watches the event loops of sandboxes. Kills a sandbox that sends nothing during 500 ms of received processor time, or during 3 s of standing
 * still. Kills a deaf sandbox after 10 s of received processor time, or after 3 s of standing still. A sandbox that waits for a core does not
 * stand still. One timer serves all sandboxes.
 */
export class SandboxWatch {
  readonly #sandboxes: () => Iterable<Sandbox>;
  readonly #known = new WeakMap<Sandbox, Known>();
  readonly #timer: NodeJS.Timeout;
  #tickedAtMs = performance.now();

  constructor(sandboxes: () => Iterable<Sandbox>) {
    this.#sandboxes = sandboxes;
    this.#timer = setInterval(() => this.#look(), BUSY.everyMs).unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    const atMs = performance.now();
    const passedMs = atMs - this.#tickedAtMs;
    this.#tickedAtMs = atMs;
    if (passedMs > PAUSE_MS) this.#leaveOut(passedMs - BUSY.everyMs);
    for (const sandbox of this.#sandboxes()) {
      const known = this.#known.get(sandbox);
      const limits = sandbox.runs === 0 ? IDLE : BUSY;
      // Timers may fire a little early.
      if (known && atMs - known.silence.last.atMs < limits.everyMs - BUSY.everyMs / 2) continue;
      // Beats of the sandbox may be among the messages that wait to be read.
      const hasBeaten = sandbox.heardAtMs !== known?.heardAtMs || sandbox.process.behind;
      if (!hasBeaten) sandbox.look();
      // Reads the times only of a silent sandbox: a read costs tens of microseconds.
      const now: Look = { atMs, hasBeaten, thread: hasBeaten && known ? null : mainThreadTimes(sandbox.process.pid) };
      if (!known) {
        const { heardAtMs } = sandbox;
        this.#known.set(sandbox, {
          silence: beginWatch(now),
          heardAtMs,
          deafness: beginWatch(now),
          untakenSinceMs: null,
        });
        continue;
      }
      const { silence, verdict } = look(known.silence, now, limits);
      known.silence = silence;
      known.heardAtMs = sandbox.heardAtMs;
      const figures = silenceFigures(silence, limits);
      if (verdict === 'computing') sandbox.process.kill('it computed for 0.5 s without answering', figures);
      if (verdict === 'still') sandbox.killForStandingStill(figures);
      const deafLimits = { ...DEAF, everyMs: limits.everyMs };
      const isDeaf = this.#isDeaf(sandbox, known, deafLimits, atMs);
      if (isDeaf) {
        const deafness = silenceFigures(known.deafness, deafLimits);
        sandbox.process.kill('it sends frames, but reads nothing that the runtime sends', deafness);
      }
    }
  }

  /**
   * Leaves a pause of this process out of each sandbox's silence: the beats that arrived during the pause are not read yet. The policy itself would
   * notice the pause only for busy sandboxes, which are looked at often.
   */
  #leaveOut(pauseMs: number): void {
    for (const sandbox of this.#sandboxes()) {
      const known = this.#known.get(sandbox);
      if (!known) continue;
      known.silence = afterPause(known.silence, pauseMs);
      known.deafness = afterPause(known.deafness, pauseMs);
    }
  }

  #isDeaf({ process }: Sandbox, known: Known, limits: WatchLimits, atMs: number): boolean {
    const { untakenSinceMs } = process;
    const hasBeaten = untakenSinceMs === null || untakenSinceMs !== known.untakenSinceMs;
    const now: Look = { atMs, hasBeaten, thread: hasBeaten ? null : mainThreadTimes(process.pid) };
    const { silence, verdict } = look(known.deafness, now, limits);
    known.deafness = silence;
    known.untakenSinceMs = untakenSinceMs;
    return verdict !== 'alive';
  }
}

const afterPause = (silence: Silence, pauseMs: number): Silence => ({
  ...silence,
  last: { ...silence.last, atMs: silence.last.atMs + pauseMs },
});

/** Time between two looks at the memory of all sandboxes. */
const LOOK_MS = 250;

/**
 * Limits the memory that the guests of one sandbox may touch together. At each look, a sandbox over the limit loses its newest invocation. A sandbox
 * that grows too fast for these looks reaches the kernel's higher limit (control group or RLIMIT_DATA, see `runtime/sandboxes`), and then loses
 * all of its invocations.
 */
export class MemoryWatch {
  readonly #sandboxes: () => Iterable<Sandbox>;
  readonly #limitBytes: number;
  readonly #timer: NodeJS.Timeout;

  constructor(sandboxes: () => Iterable<Sandbox>, limitMb: number) {
    this.#sandboxes = sandboxes;
    this.#limitBytes = limitMb * 2 ** 20;
    this.#timer = setInterval(() => this.#look(), LOOK_MS).unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    for (const sandbox of this.#sandboxes()) {
      const { newest } = sandbox;
      if (!newest) continue;
      const residentBytes = residentBytesOf(sandbox.process.pid);
      if (residentBytes <= this.#limitBytes) continue;
      const limitMb = this.#limitBytes / 2 ** 20;
      newest.kill(
        new GuestTrap(
          'memory-limit',
          `was the newest when the functions of its tenant passed their ${limitMb} MB together ([runtime] sandbox_memory_mb)`,
          { figures: { residentBytes, limitBytes: this.#limitBytes, runs: sandbox.runs } },
        ),
      );
    }
  }
}

/** Resident memory of a process; 0 when the system does not report it, or the process has ended. */
function residentBytesOf(pid: number): number {
  try {
    return residentBytes(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return 0;
  }
}

/** Time between two looks at the device. */
const LOOK_AT_DEVICE_MS = 20;
/** A device counts as busy for this long after its last call, because no call is under way between two tokens of a guest. */
const BUSY_MS = 100;

/**
 * Tells sandboxes whether a device computes for this runtime. While it does, guests that only compute get a small share of their thread
 * (`runtime/lowering/slices.ts`). This leaves the cores to the device and to the guests that feed it.
 */
export class DevicePressure {
  readonly #sandboxes: () => Iterable<Sandbox>;
  readonly #isDeviceBusy: () => boolean;
  readonly #toldBusy = new WeakMap<Sandbox, boolean>();
  #timer: NodeJS.Timeout | undefined;
  #busyAtMs = Number.NEGATIVE_INFINITY;

  constructor(sandboxes: () => Iterable<Sandbox>, busy: () => boolean) {
    this.#sandboxes = sandboxes;
    this.#isDeviceBusy = busy;
  }

  /** Starts to watch the device. Call it when a sandbox gets a run; the watch ends with the last run. */
  begin(): void {
    this.#timer ??= setInterval(() => this.#look(), LOOK_AT_DEVICE_MS).unref();
  }

  close(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #look(): void {
    const now = performance.now();
    if (this.#isDeviceBusy()) this.#busyAtMs = now;
    const busy = now - this.#busyAtMs < BUSY_MS;
    let runs = 0;
    for (const sandbox of this.#sandboxes()) {
      runs += sandbox.runs;
      if (sandbox.runs === 0 || this.#toldBusy.get(sandbox) === busy) continue;
      this.#toldBusy.set(sandbox, busy);
      sandbox.process.tell({ kind: 'device', busy });
    }
    if (runs === 0) this.close();
  }
}

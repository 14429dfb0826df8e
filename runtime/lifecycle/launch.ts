import type { HandlerError } from '#gpu-host/protocol/errors.ts';
import { within } from '#gpu-host/protocol/within.ts';
import { unexpected } from '#runtime/unexpected.ts';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import type { Figures } from '#scheduler/invocations/endings.ts';
import type { FailureCode, LaunchTimings } from '#scheduler/invocations/types.ts';
import { quarantineText, type Standing } from '#scheduler/quarantine/policy.ts';
import type { Inferlet } from '../host/session/inferlet.ts';
import type { GuestTrap } from '../lowering/trap.ts';

/** The value that a guest returned, or the reason that it returned none. */
export type GuestEnding =
  | { readonly kind: 'returned'; readonly ok: boolean; readonly text: string }
  | { readonly kind: 'trapped'; readonly trap: GuestTrap }
  /** The sandbox died while the guest ran. */
  | ({ readonly kind: 'lost' } & Loss);

/** Why a sandbox is lost. */
export interface Loss {
  /** Sentences that name the process and the reason, without texts of its guests and paths of the machine. */
  readonly cause: string;
  readonly figures: Figures;
}

/** How a guest's one run ended. */
export interface GuestEnd {
  readonly ending: GuestEnding;
  /** Messages of errors that completed the guest's futures: for each tag of `HandlerError`, the last message. */
  readonly handlerErrors: ReadonlyMap<string, string>;
  /** The beginning of the standard error output of the guest's language runtime. */
  readonly stderr: string;
  /** Time from the start of the run to the guest's first host call; null when the guest made none. */
  readonly firstCallMs: number | null;
}

export interface GuestStart {
  /** JSON text. */
  readonly input: string;
  readonly cpuLimitMs: number;
}

/** An instance of a program in a sandbox. An instance runs once. */
export interface GuestRun {
  /** CPU time of the guest: the time in its sandbox's last report, plus the time that the runtime charged. */
  readonly cpuMs: number;
  /** Number of host calls that the guest has made, by its sandbox's last report. */
  readonly calls: number;
  /** Memory that the guest takes, by its sandbox's last report. */
  readonly memoryBytes: number;
  /** Runs the guest; `inferlet` answers its host calls. The promise always resolves. */
  start(inferlet: Inferlet, start: GuestStart): Promise<GuestEnd>;
  /** Charges CPU time that the platform spent for the guest. */
  charge(cpuMs: number): void;
  /** Reports that a wait of the guest is over: the guest may compute again. */
  answered(): void;
  /** Tells the guest the time left until its new deadline. A guest that starts later reads the deadline from its inferlet. */
  deadline(leftMs: number): void;
  /** Tells the guest to stop; the guest may still end by itself. */
  stopping(reason: HandlerError): void;
  /** Stops the guest immediately: `start` resolves to the ending `trapped` with this trap. */
  kill(trap: GuestTrap): void;
  /** Frees the instance; without effect when the run has ended. */
  dispose(): void;
}

/** An instance that is ready to run. */
export interface Launched {
  readonly run: GuestRun;
  /** False when a ready instance was taken. */
  readonly coldStart: boolean;
  readonly timings: LaunchTimings;
  readonly memoryLimitBytes: number;
  /** False when the memory has its largest size from the start. */
  readonly memoryCanGrow: boolean;
  /** Replaces places of a script in a text, such as a stack, by places in the author's files; absent for a component. */
  readonly placed?: ((text: string) => string) | undefined;
}

/** A request for an instance of a version of a function. */
export interface LaunchRequest {
  readonly tenant: string;
  readonly function: string;
  readonly version: string;
  readonly memoryMb: number;
  /** Id of the invocation that the instance is for. */
  readonly invocation: string;
  /** True to launch the instance in a sandbox without other instances; false by default. */
  readonly alone?: boolean;
  /** For a child: id of its parent invocation, whose sandbox it shares. */
  readonly beside?: string;
}

/** Gets instances; `runtime/pool` implements it. */
export interface Launcher {
  /** Throws {@link LaunchError}. */
  launch(request: LaunchRequest): Promise<Launched>;
}

/** Thrown when the launcher cannot provide an instance. */
export class LaunchError extends Error {
  override readonly name = 'LaunchError';
  readonly code: FailureCode;
  /** The figures that decided, for the log. */
  readonly figures: Figures;
  constructor(code: FailureCode, message: string, options: ErrorOptions & { readonly figures?: Figures } = {}) {
    super(message, options);
    this.code = code;
    this.figures = options.figures ?? {};
  }
}

/** More launches of one tenant in progress than this are a crowd; the tenant's attempts then wait for their instances before they begin. */
const MAX_WITHOUT_CROWD = 4;
/** Longest wait in a crowd: a launch that takes longer waits for something other than the processor, such as a compilation. */
const LONGEST_WAIT_MS = 50;
/** Maximum versions remembered as suspects; the oldest is evicted first. */
const MAX_SUSPECTS = 1024;

const versionName = ({ tenant, function: name, version }: InvocationJob): string => `${tenant}/${name}@${version}`;

/**
 * Launches instances for attempts. An early launch runs while the store begins its attempt, before the version's standing (`clear`, `suspect` or
 * `quarantined`) is known. Its instance is discarded if the store refuses the attempt, or if the standing turns out not to be `clear`. A version
 * whose last known standing was not `clear` gets no early launch.
 */
export class Launches {
  readonly #launcher: Launcher;
  /** Early launches in progress, by tenant. */
  readonly #inProgress = new Map<string, number>();
  /** Names of the versions whose last known standing was not `clear`. */
  readonly #suspects = new Set<string>();

  constructor(launcher: Launcher) {
    this.#launcher = launcher;
  }

  /** Number of launches that may begin now without a crowd, even if all launches are of one tenant. */
  get room(): number {
    return Math.max(0, MAX_WITHOUT_CROWD - [...this.#inProgress.values()].reduce((sum, count) => sum + count, 0));
  }

  /** Begins the launch for an attempt, early if the version's last known standing allows. */
  begin(job: InvocationJob): Launching {
    const name = versionName(job);
    const launching = new Launching(this.#launcher, job, !this.#suspects.has(name), (standing) => {
      this.#suspects.delete(name);
      if (standing === 'clear') return;
      this.#suspects.add(name);
      const [oldest] = this.#suspects;
      if (this.#suspects.size > MAX_SUSPECTS && oldest !== undefined) this.#suspects.delete(oldest);
    });
    this.#count(job.tenant, 1);
    void launching.prepared().then(() => this.#count(job.tenant, -1));
    return launching;
  }

  /**
   * Waits, in a crowd of the tenant's launches, until this attempt's instance is ready, for at most 50 ms; the caller then begins the attempt.
   * Admission sends a runtime only few invocations beyond those that have begun, so these waits make invocations arrive as fast as the machine
   * starts instances. If all arrived at once, each would need a new instance, although earlier invocations soon give their instances back.
   */
  async crowd(job: InvocationJob, launching: Launching): Promise<void> {
    if ((this.#inProgress.get(job.tenant) ?? 0) <= MAX_WITHOUT_CROWD) return;
    await within(LONGEST_WAIT_MS, launching.prepared());
  }

  #count(tenant: string, change: number): void {
    const count = (this.#inProgress.get(tenant) ?? 0) + change;
    if (count > 0) this.#inProgress.set(tenant, count);
    else this.#inProgress.delete(tenant);
  }
}

/** The launch of one attempt's instance. */
export class Launching {
  readonly #launcher: Launcher;
  readonly #job: InvocationJob;
  readonly #learn: (standing: Standing) => void;
  readonly #earlyLaunch: Promise<Launched | LaunchError> | null;
  /**
   * When the last launch ended (before that, when it began), milliseconds since the Unix epoch by this machine's clock.
   */
  endedAt = Date.now();

  /** @param learn called with the standing of the job's version once the store has told it */
  constructor(launcher: Launcher, job: InvocationJob, launchesEarly: boolean, learn: (standing: Standing) => void) {
    this.#launcher = launcher;
    this.#job = job;
    this.#learn = learn;
    this.#earlyLaunch = launchesEarly ? this.#launch(false) : null;
  }

  /** Resolves to the instance for an attempt that has begun, or to the error; never rejects. */
  async launched(standing: Standing): Promise<Launched | LaunchError> {
    this.#learn(standing);
    if (standing === 'clear') return this.#earlyLaunch ?? this.#launch(false);
    void this.dispose();
    const { function: name, version } = this.#job;
    if (standing === 'quarantined') return new LaunchError('quarantined', quarantineText(name, version));
    return this.#launch(true);
  }

  /** Resolves when the early launch is over, successful or not; at once without one. */
  async prepared(): Promise<void> {
    await this.#earlyLaunch;
  }

  /** Discards the early instance; resolves when it is disposed of. */
  async dispose(): Promise<void> {
    const unused = await this.#earlyLaunch;
    if (unused !== null && !(unused instanceof LaunchError)) unused.run.dispose();
  }

  async #launch(alone: boolean): Promise<Launched | LaunchError> {
    const { id, tenant, function: name, version, limits, parent } = this.#job;
    const beside = parent === undefined ? {} : { beside: parent };
    const request = { tenant, function: name, version, memoryMb: limits.memoryMb, invocation: id, alone, ...beside };
    try {
      return await this.#launcher.launch(request);
    } catch (error) {
      return asLaunchError(error);
    } finally {
      this.endedAt = Date.now();
    }
  }
}

function asLaunchError(error: unknown): LaunchError {
  if (error instanceof LaunchError) return error;
  return new LaunchError('internal', `The inferlet could not be started: ${unexpected(error)}`, { cause: error });
}

import type { HandlerError } from '#gpu-host/protocol/errors.ts';
import type { Figures } from '#scheduler/invocations/endings.ts';
import type { FailureCode, LaunchTimings } from '#scheduler/invocations/types.ts';
import type { Inferlet } from '../host/inferlet.ts';
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

import type { HandlerError } from '#gpu-host/protocol/errors.ts';
import type { FailureCode } from '#scheduler/invocations/types.ts';
import type { Inferlet } from '../host/inferlet.ts';
import type { GuestTrap } from '../lowering/trap.ts';

/** How long the steps before an inferlet's first instruction took, in milliseconds. */
export interface LaunchTimings {
  /** Fetching the component and building its artifact; 0 when it was on disk. */
  readonly buildMs: number;
  /** Reading and compiling core modules; 0 when this process had done so. */
  readonly compileMs: number;
  /** Making the instance; 0 when one was ready. */
  readonly instantiateMs: number;
}

/** What a guest returned, or why it did not. */
export type GuestEnding =
  | { readonly kind: 'returned'; readonly ok: boolean; readonly text: string }
  | { readonly kind: 'trapped'; readonly trap: GuestTrap }
  /** Its sandbox died with it. */
  | { readonly kind: 'lost'; readonly message: string };

/** How a guest's one run ended. */
export interface GuestEnd {
  readonly ending: GuestEnding;
  /** Errors that the guest's futures completed with: the last text of each case. */
  readonly handlerErrors: ReadonlyMap<string, string>;
  /** The last words of the guest's language runtime. */
  readonly stderr: string;
  /** From the start of the run to the guest's first call of the platform; null when it made none. */
  readonly firstCallMs: number | null;
}

/** What a guest gets when it starts. */
export interface GuestStart {
  /** JSON text. */
  readonly input: string;
  readonly cpuLimitMs: number;
}

/** An instance of a program in a sandbox. It runs once. */
export interface GuestRun {
  /** CPU time that it used, by its sandbox's last word, with what was charged here. */
  readonly cpuMs: number;
  /** Calls of the platform that it made. */
  readonly calls: number;
  readonly memoryBytes: number;
  /** Runs the guest, with `inferlet` behind its calls. The promise always resolves. */
  start(inferlet: Inferlet, start: GuestStart): Promise<GuestEnd>;
  /** Charges CPU time that the platform spent for it. */
  charge(cpuMs: number): void;
  /** A wait of the guest is over: it may compute again. */
  answered(): void;
  /** Tells the guest that it is to stop; it may still end by itself. */
  stopping(reason: HandlerError): void;
  /** Stops it wherever it is: `start` resolves with `trap`. */
  kill(trap: GuestTrap): void;
  /** Lets go of the instance; harmless when it has ended. */
  dispose(): void;
}

/** An instance about to run. */
export interface Launched {
  readonly run: GuestRun;
  /** False when a ready instance was taken. */
  readonly coldStart: boolean;
  readonly timings: LaunchTimings;
  readonly memoryLimitBytes: number;
}

/** What can be launched: a version of a function. */
export interface LaunchRequest {
  readonly tenant: string;
  readonly function: string;
  readonly version: string;
  readonly memoryMb: number;
  /** Id of the invocation that it is for. */
  readonly invocation: string;
  /** In a sandbox of its own. */
  readonly alone?: boolean;
  /** Of a child: the invocation that launched it, whose sandbox it shares. */
  readonly beside?: string;
}

/** Gets instances; `runtime/pool` implements it. */
export interface Launcher {
  /** Throws {@link LaunchError}. */
  launch(request: LaunchRequest): Promise<Launched>;
}

/** An instance could not be had. */
export class LaunchError extends Error {
  override readonly name = 'LaunchError';
  readonly code: FailureCode;
  constructor(code: FailureCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

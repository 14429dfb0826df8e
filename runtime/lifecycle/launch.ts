import type { FailureCode } from '#scheduler/invocations/types.ts';
import type { Execution } from '../lowering/execution.ts';

/** How long the steps before an inferlet's first instruction took, in milliseconds. */
export interface LaunchTimings {
  /** Fetching the component and building its artifact; 0 when it was on disk. */
  readonly buildMs: number;
  /** Reading and compiling core modules; 0 when this process had done so. */
  readonly compileMs: number;
  /** Making the instance; 0 when one was ready. */
  readonly instantiateMs: number;
}

/** An instance about to run. */
export interface Launched {
  readonly execution: Execution;
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

/** A request to check a component and build its artifact, before the deploy registers the version. */
export interface BuildRequest {
  readonly id: string;
  readonly tenant: string;
  readonly name: string;
  /** Hash of the component in `Blobs`. */
  readonly componentHash: string;
  /** Memory limit compiled into the artifact. */
  readonly memoryMb: number;
  /** Milliseconds since the Unix epoch; afterwards the requester no longer waits. */
  readonly deadlineAt: number;
}

/** The reason why a component was refused. `build-timeout`, `runtime-unavailable` and `too-many-requests` do not judge the component. */
export type BuildFailureCode =
  | 'not-wasm'
  | 'core-module'
  | 'wrong-world'
  | 'component-too-large'
  | 'unsupported-component'
  | 'build-failed'
  | 'build-timeout'
  | 'runtime-unavailable'
  | 'too-many-requests';

export interface BuildRefusal {
  readonly ok: false;
  readonly code: BuildFailureCode;
  readonly message: string;
  readonly hint: string;
}

/**
 * `artifact` is the report of the build: `hash`, `cached`, times in ms (`buildMs`, and its steps `checkMs`, `transpileMs`, `meterMs`,
 * `writeMs`; `coldStartMs`, `warmStartMs`), sizes in bytes (`componentBytes`, `moduleBytes`; `instanceBytes` of a ready instance,
 * `poolBytes` that the runtime keeps for all of them).
 */
export type BuildReply = { readonly ok: true; readonly artifact: Readonly<Record<string, unknown>> } | BuildRefusal;

import type { Call, FunctionManifest, FunctionVersion } from '../control.ts';

/** The alias that a bare name resolves to. A deploy points it at the new version by default. */
export const LIVE = 'live';

/** One version's share of an alias's invocations. */
export interface Share {
  readonly version: string;
  /** Whole percent from 1 to 100; the weights of an alias sum to 100. */
  readonly weight: number;
}

/** A name for one version, or for several weighted versions. */
export interface Alias {
  readonly alias: string;
  readonly shares: readonly Share[];
  /** Grows with every change; see `SetAlias.ifRevision`. */
  readonly revision: number;
  /** ISO 8601. */
  readonly changedAt: string;
  /** Id of the key that changed it last. */
  readonly changedBy: string;
  readonly message?: string | undefined;
  /** True for a permanent name of one version, made by a deploy with a tag. */
  readonly tag?: true | undefined;
  /** The revision that a rollback restored. */
  readonly restores?: number | undefined;
}

export interface SetAlias {
  /** A version may be given by its first four or more digits, or by a tag. */
  readonly shares: readonly Share[];
  readonly message?: string | undefined;
  /** The control plane refuses with `conflict` when the alias has another revision. 0 means that the alias must not exist. */
  readonly ifRevision?: number | undefined;
}

/** One difference between the previously served version and the new one. `from` and `to` are texts for people. */
export interface Difference {
  /** Path in the manifest such as `limits.pages`, or `component`, `secrets.NAME`, `environment.NAME`. */
  readonly field: string;
  readonly from: string | null;
  readonly to: string | null;
}

export interface Rollback {
  readonly alias: Alias;
  readonly from: readonly Share[];
  readonly to: readonly Share[];
  readonly changes: readonly Difference[];
  /** True when nothing was changed and the answer only predicts. */
  readonly dryRun: boolean;
}

export interface RollbackRequest {
  /** `live` by default. */
  readonly alias?: string | undefined;
  /** A version; by default one step back in the alias's history. */
  readonly to?: string | undefined;
  readonly message?: string | undefined;
  readonly dryRun?: boolean | undefined;
  /** The control plane refuses with `conflict` when the alias has another revision. */
  readonly ifRevision?: number | undefined;
}

/** Effects of a deploy beyond storing the version. */
export interface DeployTarget {
  /** Alias that then sends all its invocations to the new version; `live` by default, none when null. */
  readonly alias?: string | null | undefined;
  /** A permanent name for the version; refused when another version has it. */
  readonly tag?: string | undefined;
  readonly message?: string | undefined;
  /** Leaves the alias alone when the same content was deployed before. */
  readonly onlyNew?: boolean | undefined;
}

/** The build's report on the version; null for a value that was not measured. Times in ms, sizes in bytes. */
export interface DeployReport {
  readonly componentBytes: number;
  /** Size of the compiled core modules. */
  readonly moduleBytes: number | null;
  /** True when the build came from the cache. */
  readonly cached: boolean;
  readonly buildMs: number | null;
  /** The build's steps in order. */
  readonly steps: readonly { readonly name: string; readonly ms: number }[];
  /** Launch with an empty pool: read, compile and instantiate. */
  readonly coldStartMs: number | null;
  /** Launch of a ready instance. */
  readonly warmStartMs: number | null;
}

/** Answer to `pie deploy --dry-run`; nothing is stored. */
export interface DeployPlan {
  readonly version: string;
  readonly exists: boolean;
  readonly manifest: FunctionManifest;
  readonly componentHash: string;
  readonly componentBytes: number;
  /** The alias that the deploy would move; null for none. */
  readonly alias: string | null;
  /** Shares that the alias serves now. */
  readonly from: readonly Share[];
  readonly changes: readonly Difference[];
  /** Grants of the manifest, in words. */
  readonly grants: readonly string[];
  readonly warnings: readonly string[];
}

/** Invocations of a removed version that have not ended. */
export interface Draining {
  readonly version: string;
  readonly unfinished: number;
}

/** Aliases, rollbacks and removals of function versions. */
export interface Releases {
  /** Lists aliases by name, `live` first. Empty when there is no such function. */
  aliases(call: Call, name: string): Promise<readonly Alias[]>;
  /** Past and present states of an alias, newest first; empty when there is no such alias. */
  history(call: Call, name: string, alias: string): Promise<readonly Alias[]>;
  /** Throws `unknown-function`, `invalid-alias`, `conflict`. */
  setAlias(call: Call, name: string, alias: string, change: SetAlias): Promise<Alias>;
  /** False when there was no such alias; `live` cannot be removed. */
  removeAlias(call: Call, name: string, alias: string): Promise<boolean>;
  /** Throws `unknown-function`, and `conflict` when there is no earlier state. */
  rollback(call: Call, name: string, request: RollbackRequest): Promise<Rollback>;
  /** Predicts a deploy. Throws the errors that a deploy throws before it builds. */
  plan(call: Call, manifest: FunctionManifest, component: Uint8Array, target: DeployTarget): Promise<DeployPlan>;
  /**
   * Removes one version that no alias serves. No new invocation runs it; it goes once its invocations have ended. `now` cancels them.
   * Returns the draining versions, or null when there is no such version. Throws `conflict` when an alias serves it.
   */
  removeVersion(call: Call, name: string, version: string, now: boolean): Promise<readonly Draining[] | null>;
  /** Removed versions of a function that still drain, even when the function was deployed again. */
  draining(call: Call, name: string): Promise<readonly Draining[]>;
  /** Lifts the quarantine of a function's versions. Returns the versions that were quarantined; null when there is no such function. */
  liftQuarantine(call: Call, name: string): Promise<readonly string[] | null>;
  /** The version that an invocation of `name`, `name@alias` or `name@version` runs. Weighted aliases draw per call. */
  resolve(call: Call, name: string, reference: string | undefined): Promise<FunctionVersion | null>;
}

import type { Call, FunctionManifest, FunctionVersion } from '../control.ts';

/** The alias that a bare name means. A deploy points it at the new version unless told otherwise. */
export const LIVE = 'live';

/** A part of an alias's invocations. */
export interface Share {
  readonly version: string;
  /** Whole percent from 1 to 100; those of an alias sum to 100. */
  readonly weight: number;
}

/** A name for one version, or for several by weight. */
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
  /** It names one version for good: made by a deploy with a tag. */
  readonly tag?: true | undefined;
  /** A rollback made it: as it was at that revision. */
  readonly restores?: number | undefined;
}

export interface SetAlias {
  /** A version may be given by its first four or more digits, or by a tag. */
  readonly shares: readonly Share[];
  readonly message?: string | undefined;
  /** Refused with `conflict` when the alias has another revision by now; 0 for one that must not exist. */
  readonly ifRevision?: number | undefined;
}

/** One difference between what was served and what is. `from` and `to` are texts for people. */
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
  /** Nothing was changed: it says what would be. */
  readonly dryRun: boolean;
}

export interface RollbackRequest {
  /** `live` by default. */
  readonly alias?: string | undefined;
  /** A version; one step back in the alias's history by default. */
  readonly to?: string | undefined;
  readonly message?: string | undefined;
  readonly dryRun?: boolean | undefined;
  /** Refused with `conflict` when the alias has another revision by now. */
  readonly ifRevision?: number | undefined;
}

/** What a deploy does beyond storing the version. */
export interface DeployTarget {
  /** Alias that gets all its invocations served by the new version: `live` by default, none when null. */
  readonly alias?: string | null | undefined;
  /** A name of the version's own; one that another version has is refused. */
  readonly tag?: string | undefined;
  readonly message?: string | undefined;
  /** Content that was deployed before leaves the alias where it is. */
  readonly onlyNew?: boolean | undefined;
}

/** What the build told of the version; null for what was not measured. Times in ms, sizes in bytes. */
export interface DeployReport {
  readonly componentBytes: number;
  /** Compiled from it: core modules. */
  readonly moduleBytes: number | null;
  /** The build was found, not made again. */
  readonly cached: boolean;
  readonly buildMs: number | null;
  /** Its steps in order. */
  readonly steps: readonly { readonly name: string; readonly ms: number }[];
  /** Launch with an empty pool: read, compiled and instantiated. */
  readonly coldStartMs: number | null;
  /** Launch of a ready instance. */
  readonly warmStartMs: number | null;
}

/** What `pie deploy --dry-run` is told; nothing is stored. */
export interface DeployPlan {
  readonly version: string;
  /** The version exists already. */
  readonly exists: boolean;
  readonly manifest: FunctionManifest;
  readonly componentHash: string;
  readonly componentBytes: number;
  /** The alias that the deploy would move; null for none. */
  readonly alias: string | null;
  /** What that alias serves now. */
  readonly from: readonly Share[];
  readonly changes: readonly Difference[];
  /** What the manifest grants, in words. */
  readonly grants: readonly string[];
  readonly warnings: readonly string[];
}

/** Invocations of a removed version that have not ended. */
export interface Draining {
  readonly version: string;
  readonly unfinished: number;
}

/** Aliases of functions: which version a name means; and the ways out. */
export interface Releases {
  /** By name, `live` first. Empty when there is no such function. */
  aliases(call: Call, name: string): Promise<readonly Alias[]>;
  /** Past states of an alias, newest first, the present one included; empty when there is no such alias. */
  history(call: Call, name: string, alias: string): Promise<readonly Alias[]>;
  /** Throws `unknown-function`, `invalid-alias`, `conflict`. */
  setAlias(call: Call, name: string, alias: string, change: SetAlias): Promise<Alias>;
  /** Whether there was such an alias; `live` cannot be removed. */
  removeAlias(call: Call, name: string, alias: string): Promise<boolean>;
  /** Throws `unknown-function`, and `conflict` when there is nothing to go back to. */
  rollback(call: Call, name: string, request: RollbackRequest): Promise<Rollback>;
  /** What a deploy would do. Throws what a deploy would throw before it builds. */
  plan(call: Call, manifest: FunctionManifest, component: Uint8Array, target: DeployTarget): Promise<DeployPlan>;
  /**
   * Removes one version that no alias serves: nothing new runs it, and it goes when its invocations have ended; `now` cancels them. What is left
   * to drain, or null when there is no such version. Throws `conflict` when an alias serves it.
   */
  removeVersion(call: Call, name: string, version: string, now: boolean): Promise<readonly Draining[] | null>;
  /** What is left of removed versions of a function, whether it was deployed again or not. */
  draining(call: Call, name: string): Promise<readonly Draining[]>;
  /** Lifts the quarantine of a function's versions. Answers those that were quarantined; null when there is no such function. */
  liftQuarantine(call: Call, name: string): Promise<readonly string[] | null>;
  /** The version that an invocation by this reference runs: `name`, `name@alias` or `name@version`. Weighted aliases are decided per call. */
  resolve(call: Call, name: string, reference: string | undefined): Promise<FunctionVersion | null>;
}

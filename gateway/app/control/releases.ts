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
}

export interface SetAlias {
  readonly shares: readonly Share[];
  readonly message?: string | undefined;
  /** Refused with `conflict` when the alias has another revision by now. */
  readonly ifRevision?: number | undefined;
}

/** One difference between what was served and what is. `from` and `to` are texts for people. */
export interface Difference {
  /** Path in the manifest such as `limits.pages`, or `component`, `secrets`, `environment`. */
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
}

/** What `pie deploy --dry-run` is told; nothing is stored. */
export interface DeployPlan {
  readonly version: string;
  /** The version exists already. */
  readonly exists: boolean;
  readonly manifest: FunctionManifest;
  readonly changes: readonly Difference[];
  readonly warnings: readonly string[];
}

/** Aliases of functions: which version a name means. */
export interface Releases {
  /** By name, `live` first. Empty when there is no such function. */
  aliases(call: Call, name: string): Promise<readonly Alias[]>;
  /** Past states of an alias, newest first, the present one included. */
  history(call: Call, name: string, alias: string): Promise<readonly Alias[]>;
  /** Throws `unknown-function`, `invalid-alias`, `conflict`. */
  setAlias(call: Call, name: string, alias: string, change: SetAlias): Promise<Alias>;
  /** Whether there was such an alias; `live` cannot be removed. */
  removeAlias(call: Call, name: string, alias: string): Promise<boolean>;
  /** Throws `unknown-function`, and `conflict` when there is nothing to go back to. */
  rollback(call: Call, name: string, request: RollbackRequest): Promise<Rollback>;
  /** What a deploy would do. Throws what a deploy would throw before it builds. */
  plan(call: Call, manifest: FunctionManifest, component: Uint8Array): Promise<DeployPlan>;
  /** Removes one version that no alias serves; invocations of it are drained first. False when there is none. */
  removeVersion(call: Call, name: string, version: string): Promise<boolean>;
  /** The version that an invocation by this reference runs: `name`, `name@alias` or `name@version`. Weighted aliases are decided per call. */
  resolve(call: Call, name: string, reference: string | undefined): Promise<FunctionVersion | null>;
}

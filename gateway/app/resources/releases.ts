import type { Call, FunctionManifest, FunctionVersion } from '../control.ts';
import type { Alias, DeployPlan, Draining, Rollback, RollbackRequest, SetAlias } from '../schemas/functions.ts';

export type {
  Alias,
  DeployPlan,
  DeployReport,
  Difference,
  Draining,
  Rollback,
  RollbackRequest,
  SetAlias,
  Share,
} from '../schemas/functions.ts';

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

/** Aliases, rollbacks and removals of function versions. */
export interface Releases {
  /** Lists aliases by name, `live` first. Empty when there is no such function. */
  aliases(call: Call, name: string): Promise<readonly Alias[]>;
  /** Past and present states of an alias, newest first; empty when there is no such alias. */
  history(call: Call, name: string, alias: string): Promise<readonly Alias[]>;
  /** Throws `unknown-function`, `invalid-alias`, `conflict`. */
  setAlias(call: Call, name: string, alias: string, change: SetAlias): Promise<Alias>;
  /** False when there was no such alias. Throws `conflict` for `live`, which cannot be removed. */
  removeAlias(call: Call, name: string, alias: string): Promise<boolean>;
  /** Throws `unknown-function`, `unknown-alias`, `invalid-alias`, and `conflict`, for example when the alias has no earlier state. */
  rollback(call: Call, name: string, request: RollbackRequest): Promise<Rollback>;
  /** Predicts a deploy. Throws the errors that a deploy throws before it builds. */
  plan(call: Call, manifest: FunctionManifest, component: Uint8Array, target: DeployTarget): Promise<DeployPlan>;
  /**
   * Removes one version that no alias serves. No new invocation runs the version; it is deleted once its invocations have ended, and `now` cancels
   * these. Returns the draining versions, or null when there is no such version. Throws `conflict` when an alias serves the version.
   */
  removeVersion(call: Call, name: string, version: string, now: boolean): Promise<readonly Draining[] | null>;
  /** Removed versions of a function that still drain, even when the function was deployed again. */
  draining(call: Call, name: string): Promise<readonly Draining[]>;
  /** Lifts the quarantine of a function's versions. Returns the versions that were quarantined; null when there is no such function. */
  liftQuarantine(call: Call, name: string): Promise<readonly string[] | null>;
  /**
   * The version that an invocation of `name` would run; `reference` is an alias or a version, `live` when undefined.
   * Each call draws anew among the weighted versions of an alias. Null when the reference leads to no version.
   */
  resolve(call: Call, name: string, reference: string | undefined): Promise<FunctionVersion | null>;
}

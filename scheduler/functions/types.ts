import type { Manifest } from './manifest.ts';

/** The tenant that owns the platform's own functions; `pie up` deploys the bundled ones to it. */
export const PLATFORM_TENANT = 'default';

/** An immutable version of a function. */
export interface FunctionVersion {
  readonly name: string;
  /** Derived from manifest and component: equal content is the same version. See `versionOf`. */
  readonly version: string;
  readonly tenant: string;
  /** The manifest, in which `(sealed)` replaces each value of `environment`. */
  readonly manifest: Manifest;
  /** sha256 of the component, in hexadecimal. */
  readonly componentHash: string;
  readonly componentBytes: number;
  /** sha256 of the engine's component, on which a script runs, in hexadecimal; absent for a component. The script's bytes name it, too. */
  readonly engine?: string;
  /** Milliseconds since the Unix epoch. */
  readonly createdAt: number;
  /** Id of the key that first deployed the version. */
  readonly createdBy?: string;
  /** Message of the first deploy of the version. */
  readonly message?: string;
  /** Revisions of the secrets that its manifest names. */
  readonly secrets?: Readonly<Record<string, number>>;
  /** Sealed values of the manifest's variables. */
  readonly environment?: Readonly<Record<string, string>>;
  /** The build's report: timings in ms, sizes in bytes; see `BuildReply`. */
  readonly build?: Readonly<Record<string, unknown>>;
  /** True for a version of the platform's function that `tenant` runs as if it were its own. Never stored. */
  readonly platform?: true;
}

/** The owner of a version that a tenant may run. */
export function ownerOf({ tenant, platform }: Pick<FunctionVersion, 'tenant' | 'platform'>): string {
  return platform === true ? PLATFORM_TENANT : tenant;
}

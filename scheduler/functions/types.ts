import type { Manifest } from './manifest.ts';

/** Whose functions the platform's own are: the tenant that `pie up` deploys the bundled ones to. */
export const PLATFORM_TENANT = 'default';

/** An immutable version of a function. */
export interface FunctionVersion {
  readonly name: string;
  /** From manifest and component: equal content is the same version. See `versionOf`. */
  readonly version: string;
  readonly tenant: string;
  /** `(sealed)` stands in place of each value of its `environment`; see there. */
  readonly manifest: Manifest;
  /** sha256 of the component, in hexadecimal. */
  readonly componentHash: string;
  readonly componentBytes: number;
  /** Milliseconds since the Unix epoch. */
  readonly createdAt: number;
  /** Id of the key that deployed it first. */
  readonly createdBy?: string;
  /** What whoever deployed it first said of it. */
  readonly message?: string;
  /** Revisions of the secrets that its manifest names. */
  readonly secrets?: Readonly<Record<string, number>>;
  /** Sealed values of the variables that its manifest names. */
  readonly environment?: Readonly<Record<string, string>>;
  /** What the build told of itself: timings in ms, sizes in bytes; see `BuildReport`. */
  readonly build?: Readonly<Record<string, unknown>>;
  /** It is the platform's, found for a tenant that has none of that name. Never stored. */
  readonly platform?: true;
}

/** Whose function a version is that a tenant may run. */
export function ownerOf({ tenant, platform }: Pick<FunctionVersion, 'tenant' | 'platform'>): string {
  return platform === true ? PLATFORM_TENANT : tenant;
}

import type { Manifest } from './manifest.ts';

/** An immutable version of a function. */
export interface FunctionVersion {
  readonly name: string;
  /** From manifest and component: equal content is the same version. See `versionOf`. */
  readonly version: string;
  readonly tenant: string;
  readonly manifest: Manifest;
  /** sha256 of the component, in hexadecimal. */
  readonly componentHash: string;
  readonly componentBytes: number;
  /** Milliseconds since the Unix epoch. */
  readonly createdAt: number;
  /** What the build told of itself: timings in ms, sizes in bytes. */
  readonly build?: Readonly<Record<string, unknown>>;
  /** It is the platform's, found for a tenant that has none of that name. Never stored. */
  readonly platform?: true;
}

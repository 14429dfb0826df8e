/** Rules for secrets and variables of functions; nothing here touches Redis. */

/** Name of a secret, or of a variable in a function's environment. */
export const VARIABLE_NAME = /^[A-Z][A-Z0-9_]{0,63}$/;
/** Maximum bytes of a secret's value in UTF-8. */
export const MAX_SECRET_BYTES = 16 * 1024;
/** Maximum secrets of a tenant. */
export const MAX_SECRETS = 100;
/** Maximum stored values of a tenant's secrets: each secret's current value, and its earlier values that function versions still use. */
export const MAX_REVISIONS = 1000;
/** Maximum secrets that the manifest of one function may name. */
export const MAX_NAMED_SECRETS = 32;
/** Maximum plain variables in the environment of one function. */
export const MAX_VARIABLES = 64;
/** Maximum characters of a plain variable's value. */
export const MAX_VARIABLE_LENGTH = 4096;

/**
 * Maximum characters of the values of a function's secrets and plain variables together. It bounds the cost of hiding these values: the runtime
 * searches each log line and error message of the function's invocations for them.
 */
export const MAX_ENVIRONMENT_CHARACTERS = 64 * 1024;

/** Replaces a variable's value wherever a manifest is stored or shown. */
export const SEALED_VALUE = '(sealed)';

/** A manifest with the names of its variables, without their values. */
export function withoutValues<T extends { readonly environment?: Readonly<Record<string, string>> | undefined }>(
  manifest: T,
): T {
  if (manifest.environment === undefined) return manifest;
  const names = Object.keys(manifest.environment);
  return { ...manifest, environment: Object.fromEntries(names.map((name) => [name, SEALED_VALUE])) };
}

/** The reason why a value cannot be a secret, or null. */
export function faultOfSecret(value: string): string | null {
  if (value === '') return 'the value is empty';
  if (!value.isWellFormed()) return 'the value is not well-formed text (a lone surrogate)';
  const bytes = new TextEncoder().encode(value).length;
  return bytes > MAX_SECRET_BYTES ? `the value has ${bytes} bytes; ${MAX_SECRET_BYTES} are allowed` : null;
}

import { type HandlerError, handlerError } from './errors.ts';

const NAME = /^[A-Za-z0-9._/-]{1,128}$/;
/** Maximum characters of a malformed name in an error. */
const MAX_SHOWN = 40;

/**
 * The error for a malformed name of an export, a KV file or an adapter (wit/allocate.wit); null for a well-formed name.
 * Names are not paths: `..` and `//` mean nothing.
 */
export function refuseName(name: string): HandlerError | null {
  if (NAME.test(name)) return null;
  // `JSON.stringify` copies. A slice alone would keep all of the text in memory, which may be many MiB.
  const shown = name.length > MAX_SHOWN ? `${JSON.stringify(name.slice(0, MAX_SHOWN))}…` : JSON.stringify(name);
  return handlerError('invalid-argument', `${shown} is not a name: 1 to 128 letters, digits, ".", "_", "-" and "/"`);
}

/** Bytes of one file. */
export const MAX_FILE_BYTES = 16 * 1024 * 1024;
/** Bytes of all files of one invocation. */
export const MAX_FILES_BYTES = 64 * 1024 * 1024;
/** Bytes of all files of an invocation and its children together, names and descriptions included. */
export const MAX_FAMILY_FILES_BYTES = 128 * 1024 * 1024;
/** Bytes of all files of one tenant, names and descriptions included. Files of ended invocations count while they are kept. */
export const MAX_TENANT_FILES_BYTES = 1024 * 1024 * 1024;
/** Files of one invocation. */
export const MAX_FILES = 256;
/** Pattern of a file name; restrictive, since names appear in URLs and commands. */
export const FILE_NAME = /^[A-Za-z0-9._-]{1,128}$/;
/** Pattern of a media type, parameters included. */
export const MEDIA_TYPE = /^[\w.+-]{1,64}\/[\w.+-]{1,64}(?:;[\x20-\x7e]{0,120})?$/;

/** Checks a file before the store accepts it. Returns the fault as text, or null. */
export function fileFault(name: string, mediaType: string, size: number): string | null {
  if (!FILE_NAME.test(name))
    return `"${name.slice(0, 130)}" is not a name of a file: 1 to 128 letters, digits, ".", "_", "-".`;
  if (!MEDIA_TYPE.test(mediaType)) return `"${mediaType.slice(0, 130)}" is not a media type, such as "text/plain".`;
  if (size > MAX_FILE_BYTES) return `The file has ${size} bytes; ${MAX_FILE_BYTES} is the limit.`;
  return null;
}

/**
 * The file of a script: a TypeScript or JavaScript function as it is uploaded and stored. It runs on an engine, a component that all scripts
 * share. The file begins with `\0pie`, the format (u32, little-endian) and the length of the header (u32); the header, JSON, and the
 * gzipped texts follow. Pure; runs in workerd too.
 */

const MAGIC = [0x00, 0x70, 0x69, 0x65] as const;
const FORMAT = 1;
const PREAMBLE_BYTES = 12;
const MAX_HEADER_BYTES = 64 << 10;
/** Maximum bytes of a script, and of its source map. */
export const MAX_SCRIPT_BYTES = 16 << 20;
const MAX_IMPORTS = 200;
const HASH = /^[0-9a-f]{64}$/;
const INTERFACE = /^[a-z][a-z0-9-]{0,99}$/;

export interface ScriptHeader {
  /** sha256 of the engine's component; null before a deploy, which adds it. */
  readonly engine: string | null;
  /** Interfaces of the contract that the script imports, such as `forward`. */
  readonly imports: readonly string[];
  /** Bytes of the script's text. */
  readonly scriptBytes: number;
  /** Bytes of the source map, JSON, which follows the script's text. */
  readonly mapBytes: number;
}

export interface ScriptFile {
  readonly header: ScriptHeader;
  /** The script's text and its source map, gzipped. */
  readonly payload: Uint8Array;
}

/** Says why bytes are no script. */
export class ScriptFileError extends Error {
  override readonly name = 'ScriptFileError';
}

/** True for bytes that begin as the file of a script does. */
export const isScript = (bytes: Uint8Array): boolean => MAGIC.every((byte, at) => bytes[at] === byte);

/** Reads a script's header. @throws ScriptFileError */
export function readScriptFile(bytes: Uint8Array): ScriptFile {
  if (!isScript(bytes) || bytes.length < PREAMBLE_BYTES) throw new ScriptFileError('The bytes are no script.');
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const format = view.getUint32(4, true);
  if (format !== FORMAT)
    throw new ScriptFileError(`The script has the format ${format}, and this platform reads format ${FORMAT}.`);
  const headerBytes = view.getUint32(8, true);
  if (headerBytes > Math.min(MAX_HEADER_BYTES, bytes.length - PREAMBLE_BYTES))
    throw new ScriptFileError('The script ends inside its header, or the header is too long.');
  const end = PREAMBLE_BYTES + headerBytes;
  let header: unknown;
  try {
    header = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes.subarray(PREAMBLE_BYTES, end)));
  } catch {
    throw new ScriptFileError("The script's header is not JSON.");
  }
  return { header: checkedHeader(header), payload: bytes.subarray(end) };
}

export function writeScriptFile({ header, payload }: ScriptFile): Uint8Array<ArrayBuffer> {
  const { engine, imports, scriptBytes, mapBytes } = header;
  const text = new TextEncoder().encode(JSON.stringify({ engine, imports, scriptBytes, mapBytes }));
  const bytes = new Uint8Array(PREAMBLE_BYTES + text.length + payload.length);
  bytes.set(MAGIC);
  const view = new DataView(bytes.buffer);
  view.setUint32(4, FORMAT, true);
  view.setUint32(8, text.length, true);
  bytes.set(text, PREAMBLE_BYTES);
  bytes.set(payload, PREAMBLE_BYTES + text.length);
  return bytes;
}

function checkedHeader(value: unknown): ScriptHeader {
  const fault = (field: string) => new ScriptFileError(`The script's header has no valid member "${field}".`);
  if (typeof value !== 'object' || value === null) throw new ScriptFileError("The script's header is no object.");
  const { engine, imports, scriptBytes, mapBytes } = value as Partial<Record<keyof ScriptHeader, unknown>>;
  if (engine !== null && !(typeof engine === 'string' && HASH.test(engine))) throw fault('engine');
  const isName = (name: unknown): name is string => typeof name === 'string' && INTERFACE.test(name);
  if (!Array.isArray(imports) || imports.length > MAX_IMPORTS || !imports.every(isName)) throw fault('imports');
  const isSize = (size: unknown): size is number =>
    typeof size === 'number' && Number.isInteger(size) && size >= 0 && size <= MAX_SCRIPT_BYTES;
  if (!isSize(scriptBytes)) throw fault('scriptBytes');
  if (!isSize(mapBytes)) throw fault('mapBytes');
  return { engine, imports, scriptBytes, mapBytes };
}

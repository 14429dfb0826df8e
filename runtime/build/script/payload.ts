import { gunzipSync, gzipSync } from 'node:zlib';
import {
  MAX_SCRIPT_BYTES,
  readScriptFile,
  ScriptFileError,
  type ScriptHeader,
  writeScriptFile,
} from '#scheduler/functions/script-file.ts';

/** A script with its texts. */
export interface Script {
  readonly header: ScriptHeader;
  /** The expression that the engine evaluates; see `rewrite`. */
  readonly text: string;
  /** Source map of `text`, as JSON. */
  readonly map: string;
}

/** Makes the file of a script that names no engine. Throws ScriptFileError for texts that are too long. */
export function packScript({
  text,
  map,
  imports,
}: Omit<Script, 'header'> & Pick<ScriptHeader, 'imports'>): Uint8Array<ArrayBuffer> {
  const [script, places] = [Buffer.from(text), Buffer.from(map)];
  for (const [what, { length }] of Object.entries({ 'bundled source': script, 'source map': places }))
    if (length > MAX_SCRIPT_BYTES)
      throw new ScriptFileError(
        `The ${what} has ${(length / 2 ** 20).toFixed(1)} MiB; ${MAX_SCRIPT_BYTES >> 20} MiB is the limit.`,
      );
  const header = { engine: null, imports, scriptBytes: script.length, mapBytes: places.length };
  return writeScriptFile({ header, payload: gzipSync(Buffer.concat([script, places])) });
}

/** Unpacks an uploaded script; at most twice MAX_SCRIPT_BYTES are written. @throws ScriptFileError */
export function unpackScript(file: Uint8Array): Script {
  const { header, payload } = readScriptFile(file);
  const bytes = header.scriptBytes + header.mapBytes;
  let texts: Buffer;
  try {
    texts = gunzipSync(payload, { maxOutputLength: Math.max(1, bytes) });
  } catch {
    throw new ScriptFileError('The script cannot be unpacked: it is damaged, or longer than its header says.');
  }
  if (texts.length !== bytes)
    throw new ScriptFileError(`The script has ${texts.length} bytes, and its header says ${bytes}.`);
  const decode = (part: Buffer) => new TextDecoder('utf-8', { fatal: true }).decode(part);
  try {
    return {
      header,
      text: decode(texts.subarray(0, header.scriptBytes)),
      map: decode(texts.subarray(header.scriptBytes)),
    };
  } catch {
    throw new ScriptFileError('The script is not UTF-8.');
  }
}

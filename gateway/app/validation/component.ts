import { isScript, readScriptFile, ScriptFileError } from '#scheduler/functions/script-file.ts';
import { GatewayError } from '../errors/gateway-error.ts';

const MAGIC = [0x00, 0x61, 0x73, 0x6d];
/** Bytes of magic number, version and layer. */
const PREAMBLE_BYTES = 8;

/** Offset of the layer (2 bytes) in the preamble: 0 for a core module, 1 for a component. */
const LAYER_OFFSET = 6;

/** Refuses content by its first bytes, before anything is stored or built. Throws `not-wasm`, `core-module`, or `build-failed` for a script. */
export function checkComponent(bytes: Uint8Array): void {
  if (isScript(bytes)) {
    checkScript(bytes);
    return;
  }
  if (bytes.byteLength < PREAMBLE_BYTES || MAGIC.some((byte, at) => bytes[at] !== byte)) {
    throw new GatewayError(
      'not-wasm',
      bytes.byteLength === 0 ? 'The component is empty.' : 'The component does not start as WebAssembly does.',
    );
  }
  if (bytes[LAYER_OFFSET] === 0) throw new GatewayError('core-module', 'The file is a core module, not a component.');
}

function checkScript(bytes: Uint8Array): void {
  try {
    readScriptFile(bytes);
  } catch (error) {
    if (!(error instanceof ScriptFileError)) throw error;
    throw new GatewayError('build-failed', error.message, {
      hint: 'Build it with `pie build`, or deploy its source with `pie deploy`.',
    });
  }
}

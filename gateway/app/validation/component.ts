import { GatewayError } from '../errors/gateway-error.ts';

const MAGIC = [0x00, 0x61, 0x73, 0x6d];

/** Bytes 6 and 7 of the preamble: the layer, 0 for a core module and 1 for a component. */
const LAYER_OFFSET = 6;

/** Refuses content by its first eight bytes, before anything is stored or built. Throws `not-wasm` or `core-module`. */
export function checkComponent(bytes: Uint8Array): void {
  if (bytes.byteLength < 8 || MAGIC.some((byte, at) => bytes[at] !== byte)) {
    throw new GatewayError(
      'not-wasm',
      bytes.byteLength === 0 ? 'The component is empty.' : 'The component does not start as WebAssembly does.',
    );
  }
  if (bytes[LAYER_OFFSET] === 0) throw new GatewayError('core-module', 'The file is a core module, not a component.');
}

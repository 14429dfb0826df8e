import { BuildError } from '../outcome.ts';
import { wasmKind } from '../wasm/sections.ts';

/** Largest accepted component, in bytes. */
export const MAX_COMPONENT_BYTES = 64 * 2 ** 20;

/** Checks that bytes are a component, and not too large; cheap enough for the parent process. @throws BuildError */
export function checkKind(bytes: Uint8Array): void {
  if (bytes.length > MAX_COMPONENT_BYTES) {
    throw new BuildError(
      'component-too-large',
      `The component has ${(bytes.length / 2 ** 20).toFixed(1)} MiB; ${MAX_COMPONENT_BYTES / 2 ** 20} MiB is the limit.`,
      'Leave debug information out (release build, wasm-strip) and move large data into the input or a store.',
    );
  }
  const kind = wasmKind(bytes);
  if (kind === 'other') {
    throw new BuildError(
      'not-wasm',
      `The ${bytes.length} bytes are not WebAssembly: they do not start with "\\0asm".`,
      'Deploy a .wasm component, or a .ts or .js source file, which is compiled for you.',
    );
  }
  if (kind === 'module') {
    throw new BuildError(
      'core-module',
      'This is a core Wasm module, not a component.',
      'Wrap it: `wasm-tools component embed wit/ --world inferlet` and then `wasm-tools component new`.',
    );
  }
}

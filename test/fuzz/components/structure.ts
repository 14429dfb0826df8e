import { leb, Reader } from '#runtime/build/wasm/binary.ts';
import { wasmKind } from '#runtime/build/wasm/sections.ts';

/** A section of a core module or component, its content unread. */
export interface Part {
  readonly id: number;
  readonly body: Uint8Array;
}

/** Sections of a component that hold a core module or a component themselves. */
const CORE_MODULE = 1;
const COMPONENT = 4;

/** A core module or component as a list of sections; what it is, say its first eight bytes. */
export interface Structure {
  readonly header: Uint8Array;
  readonly parts: readonly Part[];
}

/** Takes bytes apart that a tool made. @throws WasmError for others */
export function takeApart(bytes: Uint8Array): Structure {
  const reader = new Reader(bytes, 8);
  const parts: Part[] = [];
  while (!reader.done) {
    const id = reader.byte();
    const length = reader.u32();
    const start = reader.at;
    reader.skip(length);
    parts.push({ id, body: bytes.subarray(start, reader.at) });
  }
  return { header: bytes.subarray(0, 8), parts };
}

/** Bytes of a structure. `size` writes the length of a part; it may lie. */
export function putTogether(
  { header, parts }: Structure,
  size: (part: Part, index: number) => readonly number[] = ({ body }) => leb(body.length),
): Uint8Array {
  return Buffer.concat([header, ...parts.flatMap((part, i) => [Uint8Array.of(part.id, ...size(part, i)), part.body])]);
}

/** Whether a part is a core module or component with parts of its own. */
export const isNested = ({ id, body }: Part): boolean =>
  (id === CORE_MODULE || id === COMPONENT) && wasmKind(body) !== 'other';

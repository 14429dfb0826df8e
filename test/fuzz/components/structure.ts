import { leb, Reader, wasmKind } from '#runtime/build/wasm/binary.ts';

/** A section of a core module or component with unparsed content. */
export interface Part {
  readonly id: number;
  readonly body: Uint8Array;
}

/** Ids of the sections of a component that hold a nested core module or a nested component. */
const CORE_MODULE = 1;
const COMPONENT = 4;

/** A core module or component as a list of sections; the first eight bytes (`header`) say which of the two. */
export interface Structure {
  readonly header: Uint8Array;
  readonly parts: readonly Part[];
}

/** Splits a well-formed module or component into its sections. @throws WasmError for other bytes */
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

/** Bytes of a structure. `size` encodes the length of a part and may encode a wrong one. */
export function putTogether(
  { header, parts }: Structure,
  size: (part: Part, index: number) => readonly number[] = ({ body }) => leb(body.length),
): Uint8Array {
  return Buffer.concat([header, ...parts.flatMap((part, i) => [Uint8Array.of(part.id, ...size(part, i)), part.body])]);
}

/** True when a part is a core module or component with parts of its own. */
export const isNested = ({ id, body }: Part): boolean =>
  (id === CORE_MODULE || id === COMPONENT) && wasmKind(body) !== 'other';

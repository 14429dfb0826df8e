/** Thrown for bytes that are not well-formed Wasm or use refused features. The text names the fault and its offset. */
export class WasmError extends Error {
  constructor(what: string, offset?: number) {
    super(offset === undefined ? what : `${what} (at byte ${offset})`);
    this.name = 'WasmError';
  }
}

/** Reads Wasm bytes from an offset up to `end`. Every read throws WasmError instead of passing `end`. */
export class Reader {
  readonly bytes: Uint8Array;
  readonly end: number;
  at: number;

  constructor(bytes: Uint8Array, at = 0, end = bytes.length) {
    this.bytes = bytes;
    this.at = at;
    this.end = end;
  }

  get done(): boolean {
    return this.at >= this.end;
  }

  byte(): number {
    const value = this.at < this.end ? this.bytes[this.at] : undefined;
    if (value === undefined) throw new WasmError('unexpected end', this.at);
    this.at += 1;
    return value;
  }

  skip(count: number): void {
    if (count > this.end - this.at) throw new WasmError('unexpected end', this.at);
    this.at += count;
  }

  /** Reads an unsigned LEB128 number of at most 32 bits. */
  u32(): number {
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.byte();
      value |= (byte & 127) << shift;
      if (byte < 128) return value >>> 0;
    }
    throw new WasmError('number too long', this.at);
  }

  /** Reads a signed LEB128 number of at most 33 bits; block types and heap types have this encoding. */
  s33(): number {
    let value = 0;
    for (let weight = 1, count = 0; count < 5; weight *= 128, count += 1) {
      const byte = this.byte();
      value += (byte & 127) * weight;
      if (byte < 128) return byte & 64 ? value - weight * 128 : value;
    }
    throw new WasmError('number too long', this.at);
  }

  /** Skips a LEB128 number of any size. */
  skipLeb(): void {
    for (let count = 0; count < 10; count += 1) if (this.byte() < 128) return;
    throw new WasmError('number too long', this.at);
  }

  name(): string {
    const length = this.u32();
    const start = this.at;
    this.skip(length);
    return new TextDecoder().decode(this.bytes.subarray(start, start + length));
  }

  /** Returns a reader of the next `length` bytes, and skips these bytes. */
  slice(length: number): Reader {
    const start = this.at;
    this.skip(length);
    return new Reader(this.bytes, start, this.at);
  }
}

/** Encodes a 32-bit integer as unsigned LEB128. */
export function leb(value: number): number[] {
  const out: number[] = [];
  let rest = value >>> 0;
  do {
    const low = rest & 127;
    rest >>>= 7;
    out.push(rest ? low | 128 : low);
  } while (rest);
  return out;
}

/** Encodes a 32-bit integer as signed LEB128. */
export function signedLeb(value: number): number[] {
  const out: number[] = [];
  for (let rest = value | 0; ; rest >>= 7) {
    const low = rest & 127;
    const isLast = rest >> 6 === 0 || rest >> 6 === -1;
    out.push(isLast ? low : low | 128);
    if (isLast) return out;
  }
}

/** Encodes a name, preceded by its length. */
export function nameBytes(text: string): number[] {
  const bytes = new TextEncoder().encode(text);
  return [...leb(bytes.length), ...bytes];
}

/** Collects bytes in one growing buffer. */
export class Writer {
  #buffer: Uint8Array;
  #length = 0;

  constructor(capacity = 1024) {
    this.#buffer = new Uint8Array(capacity);
  }

  get length(): number {
    return this.#length;
  }

  push(bytes: ArrayLike<number>): void {
    const needed = this.#length + bytes.length;
    if (needed > this.#buffer.length) {
      const grown = new Uint8Array(Math.max(needed, this.#buffer.length * 2));
      grown.set(this.#buffer.subarray(0, this.#length));
      this.#buffer = grown;
    }
    this.#buffer.set(bytes, this.#length);
    this.#length = needed;
  }

  bytes(): Uint8Array {
    return this.#buffer.subarray(0, this.#length);
  }
}

/** Section ids of a core module (core specification, 5.5.2). */
export const SECTION = {
  custom: 0,
  type: 1,
  import: 2,
  function: 3,
  table: 4,
  memory: 5,
  global: 6,
  export: 7,
  start: 8,
  element: 9,
  code: 10,
  data: 11,
  dataCount: 12,
  tag: 13,
} as const;

/** Order in which known sections must stand. */
const ORDER: readonly number[] = [
  SECTION.type,
  SECTION.import,
  SECTION.function,
  SECTION.table,
  SECTION.memory,
  SECTION.tag,
  SECTION.global,
  SECTION.export,
  SECTION.start,
  SECTION.element,
  SECTION.dataCount,
  SECTION.code,
  SECTION.data,
];

export interface Section {
  readonly id: number;
  readonly body: Uint8Array;
}

const MAGIC = [0x00, 0x61, 0x73, 0x6d];

/** Kind of a file by its first eight bytes: a core module, a component, or neither. */
export function wasmKind(bytes: Uint8Array): 'module' | 'component' | 'other' {
  if (bytes.length < 8 || MAGIC.some((byte, index) => bytes[index] !== byte)) return 'other';
  // A version and a layer of two bytes each follow the magic number. Layer 0 is a core module, layer 1 a component.
  const version = (bytes[4] ?? 0) | ((bytes[5] ?? 0) << 8);
  const layer = (bytes[6] ?? 0) | ((bytes[7] ?? 0) << 8);
  if (version === 1 && layer === 0) return 'module';
  return layer === 1 ? 'component' : 'other';
}

/** Sections of a core module. Throws WasmError when a section is cut short, unknown, out of order or duplicated. */
export function readSections(bytes: Uint8Array): Section[] {
  if (wasmKind(bytes) !== 'module') throw new WasmError('not a core module');
  const reader = new Reader(bytes, 8);
  const sections: Section[] = [];
  let lastOrder = -1;
  while (!reader.done) {
    const id = reader.byte();
    const size = reader.u32();
    const start = reader.at;
    reader.skip(size);
    if (id !== SECTION.custom) {
      const order = ORDER.indexOf(id);
      if (order < 0) throw new WasmError(`unknown section ${id}`, start);
      if (order <= lastOrder) throw new WasmError(`section ${id} is out of order`, start);
      lastOrder = order;
    }
    sections.push({ id, body: bytes.subarray(start, reader.at) });
  }
  return sections;
}

/** Makes a core module of these sections. */
export function writeSections(sections: readonly Section[]): Uint8Array {
  // The header takes 8 bytes; a section's id and length take at most 6.
  const writer = new Writer(sections.reduce((sum, { body }) => sum + body.length + 6, 8));
  writer.push([...MAGIC, 1, 0, 0, 0]);
  for (const { id, body } of sections) {
    writer.push([id, ...leb(body.length)]);
    writer.push(body);
  }
  return writer.bytes();
}

/** The section's body; without such a section, the body of a section with an empty list. */
export function sectionBody(sections: readonly Section[], id: number): Uint8Array {
  return sections.find((section) => section.id === id)?.body ?? Uint8Array.of(0);
}

/** Number of entries of a section's list. */
export const entryCount = (sections: readonly Section[], id: number): number =>
  new Reader(sectionBody(sections, id)).u32();

/** Replaces the body of one section, or inserts the section at its place. */
export function withSection(sections: readonly Section[], id: number, body: Uint8Array): Section[] {
  if (sections.some((section) => section.id === id)) {
    return sections.map((section) => (section.id === id ? { id, body } : section));
  }
  const order = ORDER.indexOf(id);
  const followingIndex = sections.findIndex(
    (section) => section.id !== SECTION.custom && ORDER.indexOf(section.id) > order,
  );
  const index = followingIndex < 0 ? sections.length : followingIndex;
  return [...sections.slice(0, index), { id, body }, ...sections.slice(index)];
}

/** Appends an entry to a section's list, so that the indices of the other entries stay the same. */
export function appendEntry(sections: readonly Section[], id: number, entry: readonly number[]): Section[] {
  const body = sectionBody(sections, id);
  const reader = new Reader(body);
  const count = reader.u32();
  const writer = new Writer(body.length + entry.length + 5);
  writer.push(leb(count + 1));
  writer.push(body.subarray(reader.at));
  writer.push(entry);
  return withSection(sections, id, writer.bytes());
}

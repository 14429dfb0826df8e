import { closeSync, fstatSync, readSync } from 'node:fs';
import { ModelError } from '../../errors.ts';
import { openFile, type StoredRange, versionOf } from '../../safetensors.ts';
import { type TensorType, TYPES } from './types.ts';

/** A value of a GGUF file's metadata; 64-bit integers beyond 2⁵³ lose their last bits. */
export type MetadataValue = number | boolean | string | readonly number[] | readonly boolean[] | readonly string[];

/** Location of one tensor. A row has as many values as `shape`'s last dimension. */
export interface GgufTensor extends StoredRange {
  readonly type: TensorType;
  /** Outermost dimension first, as in Hugging Face layout. */
  readonly shape: readonly number[];
}

/** Metadata and table of tensors of a GGUF file: everything before the weights. */
export interface GgufHeader {
  /** By key; without lists if they were left out. */
  readonly metadata: ReadonlyMap<string, MetadataValue>;
  readonly tensors: ReadonlyMap<string, GgufTensor>;
}

export interface HeaderOptions {
  /** False to leave out lists, which hold the tokenizer; true by default. */
  readonly lists?: boolean;
}

/** The supported versions 2 and 3 differ only in the byte order that they permit. Version 1 has counts of 32 bits. */
const VERSIONS = [2, 3];
// The bounds are far above any real file: Llama 4 has 1,200 tensors, 202,048 tokens and 440,000 merges in 30 MB.
const MAX_KEYS = 4096;
const MAX_TENSORS = 1 << 16;
const MAX_TEXT_BYTES = 1 << 20;
const MAX_NAME_BYTES = 1 << 10;
const MAX_ELEMENTS = 1 << 22;
const MAX_DIMENSIONS = 4;
const MAX_ALIGNMENT = 1 << 16;
/** Bound on the whole header: with the bounds above alone, the texts of its values could fill a file of any size. */
const MAX_HEADER_BYTES = 256 << 20;
/** Bytes that one read of the header takes. */
const WINDOW_BYTES = 1 << 20;

/**
 * Bytes of the metadata types by their number: 0 to 7 are u8, i8, u16, i16, u32, i32, f32 and bool; 10 to 12 are u64,
 * i64 and f64. Texts (8) and arrays (9) state their own length.
 */
const SCALAR_BYTES: Readonly<Record<number, number>> = {
  0: 1,
  1: 1,
  2: 2,
  3: 2,
  4: 4,
  5: 4,
  6: 4,
  7: 1,
  10: 8,
  11: 8,
  12: 8,
};
const TEXT = 8;
const ARRAY = 9;
/** Minimum bytes of a text, which begins with its length. */
const MIN_TEXT_BYTES = 8;
/** Minimum bytes of a key: an empty name, its type, and a value of one byte. */
const MIN_KEY_BYTES = MIN_TEXT_BYTES + 4 + 1;
/** Minimum bytes of a tensor's entry: an empty name, no dimensions, their number, its type and its offset. */
const MIN_TENSOR_BYTES = MIN_TEXT_BYTES + 4 + 4 + 8;

/**
 * Reads and checks the header of a GGUF file: counts and lengths must fit the rest of the file, names must be unique, and every tensor must lie
 * inside the file, without overlap.
 *
 * @see https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 * @throws ModelError `malformed-weights`; `unsupported-model` for another version, byte order or tensor type
 */
export function readGgufHeader(file: string, { lists = true }: HeaderOptions = {}): GgufHeader {
  const fd = openFile(file);
  try {
    const stats = fstatSync(fd, { bigint: true });
    return parse(new Reader(fd, file, Number(stats.size)), versionOf(stats), lists);
  } finally {
    closeSync(fd);
  }
}

function parse(reader: Reader, version: string, lists: boolean): GgufHeader {
  if (reader.size < 4 || reader.magic() !== 'GGUF')
    throw reader.malformed(
      'it does not begin as a GGUF file',
      'it may be a pointer of Git LFS, or a page in place of a download',
    );
  const format = reader.unsigned(4);
  if (!VERSIONS.includes(format)) {
    const isByteSwapped = VERSIONS.includes(format / 2 ** 24);
    throw new ModelError(
      'unsupported-model',
      `${reader.file}: ${isByteSwapped ? 'a GGUF file of a big-endian machine' : `GGUF version ${format}`} is not supported`,
      { hint: 'convert the model again with a current llama.cpp' },
    );
  }
  const tensorCount = reader.count('tensors', MAX_TENSORS, MIN_TENSOR_BYTES);
  const keyCount = reader.count('keys', MAX_KEYS, MIN_KEY_BYTES);
  const keys = new Set<string>();
  const metadata = new Map<string, MetadataValue>();
  for (let i = 0; i < keyCount; i++) {
    const key = reader.text(MAX_NAME_BYTES);
    if (keys.has(key)) throw reader.malformed(`it has the key "${key}" twice`);
    keys.add(key);
    const value = reader.value(reader.unsigned(4), key, lists);
    if (value !== undefined) metadata.set(key, value);
  }
  const entries = new Map<string, Entry>();
  for (let i = 0; i < tensorCount; i++) {
    const name = reader.text(MAX_NAME_BYTES);
    if (entries.has(name)) throw reader.malformed(`it has the tensor "${name}" twice`);
    entries.set(name, reader.tensor(name));
  }
  return { metadata, tensors: placeTensors(reader, entries, alignmentOf(reader, metadata), version) };
}

/** A tensor's entry, with its offset from the beginning of the weights. */
type Entry = Pick<GgufTensor, 'type' | 'shape' | 'offset' | 'bytes'>;

function alignmentOf(reader: Reader, metadata: ReadonlyMap<string, MetadataValue>): number {
  const alignment = metadata.get('general.alignment') ?? 32;
  const isUsable =
    typeof alignment === 'number' && alignment <= MAX_ALIGNMENT && Number.isInteger(Math.log2(alignment));
  if (!isUsable || alignment < 1) throw reader.malformed(`its alignment is ${String(alignment)}, not a power of two`);
  return alignment;
}

/** Changes offsets from the start of the weights to offsets from the start of the file. Refuses tensors that overlap or lie outside the file. */
function placeTensors(
  reader: Reader,
  tensors: ReadonlyMap<string, Entry>,
  alignment: number,
  version: string,
): Map<string, GgufTensor> {
  const start = Math.ceil(reader.position / alignment) * alignment;
  const result = new Map<string, GgufTensor>();
  for (const [name, tensor] of tensors) {
    const offset = start + tensor.offset;
    if (tensor.offset % alignment !== 0 || offset + tensor.bytes > reader.size) {
      throw reader.malformed(
        `tensor "${name}" has ${tensor.bytes} bytes from byte ${offset} of a file of ${reader.size}`,
        'the download may be incomplete: fetch the file again',
      );
    }
    result.set(name, { ...tensor, offset, file: reader.file, version });
  }
  let end = start;
  for (const [name, { offset, bytes }] of [...result].sort(([, a], [, b]) => a.offset - b.offset)) {
    if (offset < end) throw reader.malformed(`tensor "${name}" overlaps another tensor`);
    end = offset + bytes;
  }
  return result;
}

/** Reads little-endian values one after the other, through a window of the file. */
class Reader {
  readonly file: string;
  readonly size: number;
  readonly #fd: number;
  #window: Buffer = Buffer.alloc(0);
  #windowStart = 0;
  #elements = 0;
  position = 0;

  constructor(fd: number, file: string, size: number) {
    this.#fd = fd;
    this.file = file;
    this.size = size;
  }

  malformed(what: string, hint?: string): ModelError {
    return new ModelError('malformed-weights', `${this.file}: ${what}`, hint === undefined ? {} : { hint });
  }

  magic(): string {
    return this.#take(4).toString('latin1');
  }

  unsigned(bytes: 4 | 8): number {
    const buffer = this.#take(bytes);
    return bytes === 4 ? buffer.readUInt32LE() : Number(buffer.readBigUInt64LE());
  }

  /** Reads a count of items. The rest of the file bounds it, because each item takes at least `bytes` bytes. */
  count(what: string, maxCount: number, bytes: number): number {
    const count = this.unsigned(8);
    const fit = Math.floor((this.size - this.position) / bytes);
    if (count > maxCount || count > fit)
      throw this.malformed(`it claims ${count} ${what}; at most ${Math.min(maxCount, fit)} are possible`);
    return count;
  }

  text(maxBytes = MAX_TEXT_BYTES): string {
    const bytes = this.#take(this.count('bytes of a text', maxBytes, 1));
    return bytes.toString('utf8');
  }

  /** A value of metadata; undefined for a list if `lists` is false. */
  value(type: number, key: string, lists: boolean): MetadataValue | undefined {
    if (type === TEXT) return this.text();
    if (type !== ARRAY) return this.#scalar(type, key);
    const elementType = this.unsigned(4);
    const bytes = elementType === TEXT ? MIN_TEXT_BYTES : SCALAR_BYTES[elementType];
    if (bytes === undefined) throw this.malformed(`"${key}" is a list of type ${elementType}`);
    // One bound for all lists together: with a bound for each list, a few lists could fill the memory.
    const count = this.count(`elements of "${key}"`, MAX_ELEMENTS - this.#elements, bytes);
    this.#elements += count;
    if (!lists) {
      for (let i = 0; i < count; i++)
        this.#skip(elementType === TEXT ? this.count('bytes of a text', MAX_TEXT_BYTES, 1) : bytes);
      return undefined;
    }
    const list: MetadataValue[] = [];
    for (let i = 0; i < count; i++) list.push(elementType === TEXT ? this.text() : this.#scalar(elementType, key));
    return list as MetadataValue;
  }

  tensor(name: string): Entry {
    const dimensions = this.unsigned(4);
    if (dimensions < 1 || dimensions > MAX_DIMENSIONS)
      throw this.malformed(`tensor "${name}" has ${dimensions} dimensions`);
    // GGUF lists dimensions innermost first.
    const shape = Array.from({ length: dimensions }, () => this.unsigned(8)).reverse();
    const number = this.unsigned(4);
    const offset = this.unsigned(8);
    const type = TYPES[number];
    if (type === undefined) {
      throw new ModelError('unsupported-model', `${this.file}: tensor "${name}" has the type ${number}`, {
        hint: `supported: ${Object.values(TYPES)
          .map(({ name }) => name)
          .join(', ')}; look for the model in one of these`,
      });
    }
    const bytes = (shape.reduce((product, size) => product * size, 1) / type.values) * type.bytes;
    const columns = shape.at(-1) ?? 0;
    if (!shape.every((size) => size >= 1) || columns % type.values !== 0 || bytes > this.size || offset > this.size) {
      throw this.malformed(
        `tensor "${name}" of shape [${shape.join(', ')}] in ${type.name} at ${offset} cannot be in the file`,
      );
    }
    return { type, shape, offset, bytes };
  }

  #scalar(type: number, key: string): number | boolean {
    const bytes = SCALAR_BYTES[type];
    if (bytes === undefined) throw this.malformed(`"${key}" has the unknown type ${type}`);
    const buffer = this.#take(bytes);
    switch (type) {
      case 1: // i8
      case 3: // i16
      case 5: // i32
        return buffer.readIntLE(0, bytes);
      case 6: // f32
        return buffer.readFloatLE();
      case 7: // bool
        return buffer.readUInt8() !== 0;
      case 10: // u64
        return Number(buffer.readBigUInt64LE());
      case 11: // i64
        return Number(buffer.readBigInt64LE());
      case 12: // f64
        return buffer.readDoubleLE();
      default: // u8, u16 and u32
        return buffer.readUIntLE(0, bytes);
    }
  }

  #skip(bytes: number): void {
    this.#bound(bytes);
    this.position += bytes;
  }

  #bound(bytes: number): void {
    if (bytes > this.size - this.position) throw this.malformed(`it ends within its header, at byte ${this.size}`);
    if (this.position + bytes > MAX_HEADER_BYTES)
      throw this.malformed(`its header has more than ${MAX_HEADER_BYTES} bytes`);
  }

  /** The next bytes of the file; valid until the next call. */
  #take(bytes: number): Buffer {
    this.#bound(bytes);
    let offset = this.position - this.#windowStart;
    if (offset + bytes > this.#window.length) {
      this.#window = this.#read(Math.max(bytes, Math.min(WINDOW_BYTES, this.size - this.position)));
      this.#windowStart = this.position;
      offset = 0;
    }
    this.position += bytes;
    return this.#window.subarray(offset, offset + bytes);
  }

  #read(bytes: number): Buffer {
    const buffer = Buffer.allocUnsafeSlow(bytes);
    for (let filledBytes = 0; filledBytes < bytes; ) {
      const bytesRead = readSync(this.#fd, buffer, filledBytes, bytes - filledBytes, this.position + filledBytes);
      if (bytesRead === 0) throw this.malformed(`it ends before byte ${this.position + bytes}`);
      filledBytes += bytesRead;
    }
    return buffer;
  }
}

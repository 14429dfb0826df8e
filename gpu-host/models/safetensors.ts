import { type BigIntStats, closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { z } from 'zod';
import { causeText, ModelError } from './errors.ts';

/** The element types that weights may have; all are read as 32-bit floats. */
const FLOAT_TYPES = ['F32', 'F16', 'BF16'] as const;
export type FloatType = (typeof FLOAT_TYPES)[number];

/** Other types of tensors in some checkpoints: quantised levels, small integers packed in words, counts, and 8-bit floats. */
const OTHER_TYPES = ['U8', 'I32', 'I64', 'F8_E4M3'] as const;
export type OtherType = (typeof OTHER_TYPES)[number];

/** A range of a file: `bytes` bytes at `offset` from the start of the file. */
export interface StoredRange {
  /** Absolute path. */
  readonly file: string;
  readonly offset: number;
  readonly bytes: number;
  /** Size and modification time of the file when its header was read. If they differ later, the file was changed or replaced. */
  readonly version: string;
}

/** Location of one tensor in its file, row-major. */
export interface StoredTensor extends StoredRange {
  readonly dtype: FloatType | OtherType;
  readonly shape: readonly number[];
}

export interface FloatTensor extends StoredTensor {
  readonly dtype: FloatType;
}

const ELEMENT_BYTES: Readonly<Record<string, number>> = {
  BOOL: 1,
  U8: 1,
  I8: 1,
  F8_E4M3: 1,
  F8_E5M2: 1,
  U16: 2,
  I16: 2,
  F16: 2,
  BF16: 2,
  U32: 4,
  I32: 4,
  F32: 4,
  U64: 8,
  I64: 8,
  F64: 8,
};
/** A file begins with the length of its header, a little-endian integer of this size. */
const LENGTH_BYTES = 8;
/** The format's limit. */
const MAX_HEADER_BYTES = 100_000_000;
/** Alignment of the first tensor in a written file. */
const ALIGNMENT_BYTES = 64;
/** Maximum bytes of one read call; neither Node nor Linux reads 2 GiB at once. */
const READ_BYTES = 1 << 30;
/** Bytes that `readThrough` reads at once. */
const THROUGH_BYTES = 4 << 20;

const entrySchema = z.object({
  dtype: z.string(),
  shape: z.array(z.int().min(0)).max(8),
  data_offsets: z.tuple([z.int().min(0), z.int().min(0)]),
});

/**
 * Reads the header of a safetensors file and checks it as the format demands: every tensor lies inside the file, its size matches its
 * shape, and the data has no gaps or overlaps. Leaves out tensors of types that no supported model has, after the same checks.
 *
 * @throws ModelError `malformed-weights`, naming the tensor, or `missing-file`
 * @see https://github.com/huggingface/safetensors#format
 */
export function readStoredTensors(file: string): Map<string, StoredTensor> {
  const fd = openFile(file);
  try {
    return parseHeader(fd, file, fstatSync(fd, { bigint: true }));
  } finally {
    closeSync(fd);
  }
}

/** The float tensors of {@link readStoredTensors}. */
export function readSafetensorsHeader(file: string): Map<string, FloatTensor> {
  return new Map([...readStoredTensors(file)].filter((entry): entry is [string, FloatTensor] => isFloat(entry[1])));
}

function parseHeader(fd: number, file: string, stats: BigIntStats): Map<string, StoredTensor> {
  const fileBytes = Number(stats.size);
  const version = versionOf(stats);
  const fail = (what: string, cause?: unknown): never => {
    throw new ModelError('malformed-weights', `${file}: ${what}`, { cause });
  };
  if (fileBytes < LENGTH_BYTES) fail('too short for a safetensors file');
  const headerBytes = Number(readRange(fd, file, 0, LENGTH_BYTES).readBigUInt64LE());
  if (headerBytes > MAX_HEADER_BYTES || headerBytes > fileBytes - LENGTH_BYTES) {
    fail(`its header claims ${headerBytes} bytes, the file has ${fileBytes}`);
  }
  let json: unknown;
  try {
    const headerJson = readRange(fd, file, LENGTH_BYTES, headerBytes);
    json = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(headerJson));
  } catch (cause) {
    fail(`its header is not JSON: ${causeText(cause)}`, cause);
  }
  if (typeof json !== 'object' || json === null || Array.isArray(json)) fail('its header is not an object');

  const dataStart = LENGTH_BYTES + headerBytes;
  const tensors = new Map<string, StoredTensor>();
  const ranges: { name: string; begin: number; end: number }[] = [];
  for (const [name, value] of Object.entries(json as object)) {
    if (name === '__metadata__') continue;
    const parsed = entrySchema.safeParse(value);
    if (!parsed.success) return fail(`tensor "${name}": ${parsed.error.issues[0]?.message ?? 'malformed'}`);
    const { dtype, shape, data_offsets } = parsed.data;
    const [begin, end] = data_offsets;
    const elementBytes = ELEMENT_BYTES[dtype];
    if (elementBytes === undefined) return fail(`tensor "${name}": unknown type "${dtype}"`);
    const bytes = shape.reduce((product, dimension) => product * dimension, elementBytes);
    if (!Number.isSafeInteger(bytes) || end - begin !== bytes) {
      fail(
        `tensor "${name}": shape [${shape.join(', ')}] of ${dtype} needs ${bytes} bytes, its range has ${end - begin}`,
      );
    }
    if (end > fileBytes - dataStart) fail(`tensor "${name}" ends at byte ${dataStart + end} of a file of ${fileBytes}`);
    ranges.push({ name, begin, end });
    if (isReadType(dtype)) tensors.set(name, { dtype, shape, file, offset: dataStart + begin, bytes, version });
  }
  ranges.sort((a, b) => a.begin - b.begin || a.end - b.end);
  let position = 0;
  for (const { name, begin, end } of ranges) {
    if (begin !== position) fail(`tensor "${name}" ${begin < position ? 'overlaps another tensor' : 'follows a gap'}`);
    position = end;
  }
  if (position !== fileBytes - dataStart) fail(`${fileBytes - dataStart - position} bytes after the last tensor`);
  return tensors;
}

const READ_TYPES: ReadonlySet<string> = new Set([...FLOAT_TYPES, ...OTHER_TYPES]);

function isReadType(dtype: string): dtype is StoredTensor['dtype'] {
  return READ_TYPES.has(dtype);
}

export function isFloat(tensor: StoredTensor): tensor is FloatTensor {
  return FLOAT_TYPES.some((type) => type === tensor.dtype);
}

/** Reads one tensor from its file, converted to 32-bit floats. */
export function readTensor(info: FloatTensor): Float32Array {
  return floatsOf(readBytes(info), info.dtype);
}

/** Like {@link readTensor}, but leaves the thread free while it waits for the disk. */
export async function readTensorAhead(info: FloatTensor): Promise<Float32Array> {
  return floatsOf(await readBytesAhead(info), info.dtype);
}

/**
 * Checks that the file of a tensor is the one whose header was read.
 * @throws ModelError `malformed-weights` when it was changed or replaced, `missing-file` when it cannot be read
 */
export function checkUnchanged(range: StoredRange): void {
  closeSync(openUnchanged(range));
}

/** Opens the file of a tensor with the checks of {@link checkUnchanged}; the caller closes the descriptor. */
export function openUnchanged({ file, version }: Pick<StoredRange, 'file' | 'version'>): number {
  const fd = openFile(file);
  if (versionOf(fstatSync(fd, { bigint: true })) === version) return fd;
  closeSync(fd);
  throw changed(file);
}

function changed(file: string): ModelError {
  return new ModelError('malformed-weights', `${file} was changed since it was checked`, {
    hint: 'restart the GPU host to use the new one',
  });
}

function unreadable(file: string, cause: unknown): ModelError {
  return new ModelError('missing-file', `${file} cannot be read: ${causeText(cause)}`, { cause });
}

/** Without `O_NONBLOCK`, opening a pipe would wait for its writer. */
const READ_ONLY = constants.O_RDONLY | constants.O_NONBLOCK;

/** Opens a regular file for reading: only such a file can be mapped, and has a size to check offsets against. */
export function openFile(file: string): number {
  let fd: number;
  try {
    fd = openSync(file, READ_ONLY);
  } catch (cause) {
    throw unreadable(file, cause);
  }
  if (fstatSync(fd).isFile()) return fd;
  closeSync(fd);
  throw new ModelError('malformed-weights', `${file} is not a regular file`);
}

/** The version of a file by its size and modification time, for {@link StoredRange}. */
export function versionOf({ size, mtimeNs }: BigIntStats): string {
  return `${size} ${mtimeNs}`;
}

/** Reads one tensor's bytes from its file, into a new buffer. @throws ModelError when the file was changed or replaced */
export function readBytes(tensor: StoredRange): Buffer<ArrayBuffer> {
  const { file, offset, bytes } = tensor;
  const fd = openUnchanged(tensor);
  try {
    return readRange(fd, file, offset, bytes);
  } finally {
    closeSync(fd);
  }
}

/** Like {@link readBytes}, but leaves the thread free while it waits for the disk. */
export async function readBytesAhead({ file, offset, bytes, version }: StoredRange): Promise<Buffer<ArrayBuffer>> {
  let handle: FileHandle;
  try {
    handle = await open(file, READ_ONLY);
  } catch (cause) {
    throw unreadable(file, cause);
  }
  try {
    if (versionOf(await handle.stat({ bigint: true })) !== version) throw changed(file);
    const buffer = Buffer.from(new ArrayBuffer(bytes));
    let done = 0;
    while (done < bytes) {
      const { bytesRead } = await handle.read(buffer, done, Math.min(READ_BYTES, bytes - done), offset + done);
      if (bytesRead === 0) throw new ModelError('malformed-weights', `${file}: ends before byte ${offset + bytes}`);
      done += bytesRead;
    }
    return buffer;
  } finally {
    await handle.close();
  }
}

/**
 * Reads bytes of a file without keeping them, and leaves the thread free meanwhile: what maps these bytes next finds them in memory. An error
 * ends the reading: whoever maps the file reports it.
 */
export async function readThrough({
  file,
  offset,
  bytes,
}: Pick<StoredRange, 'file' | 'offset' | 'bytes'>): Promise<void> {
  const handle = await open(file, READ_ONLY).catch(() => undefined);
  if (!handle) return;
  try {
    const buffer = Buffer.allocUnsafe(Math.min(THROUGH_BYTES, bytes));
    for (let done = 0; done < bytes; ) {
      const { bytesRead } = await handle.read(buffer, 0, Math.min(buffer.length, bytes - done), offset + done);
      if (bytesRead === 0) return;
      done += bytesRead;
    }
  } catch {
    // See above.
  } finally {
    await handle.close();
  }
}

/** Like {@link readBytes}, but in pieces of at most `pieceBytes`, each in a new buffer. */
export function* readPieces(tensor: StoredRange, pieceBytes: number): Generator<Buffer<ArrayBuffer>> {
  const { file, offset, bytes } = tensor;
  const fd = openUnchanged(tensor);
  try {
    for (let done = 0; done < bytes; done += pieceBytes)
      yield readRange(fd, file, offset + done, Math.min(pieceBytes, bytes - done));
  } finally {
    closeSync(fd);
  }
}

/** Little-endian values as 32-bit floats; `raw` must be aligned to its elements. */
export function floatsOf(raw: Uint8Array<ArrayBuffer>, dtype: FloatType): Float32Array {
  switch (dtype) {
    case 'F32':
      return new Float32Array(raw.buffer, raw.byteOffset, raw.byteLength / 4);
    case 'F16':
      return Float32Array.from(new Float16Array(raw.buffer, raw.byteOffset, raw.byteLength / 2));
    case 'BF16': {
      // A bfloat16 is the upper half of a float32.
      const halves = new Uint16Array(raw.buffer, raw.byteOffset, raw.byteLength / 2);
      const words = new Uint32Array(halves.length);
      for (let i = 0; i < halves.length; i++) words[i] = (halves[i] as number) << 16;
      return new Float32Array(words.buffer);
    }
  }
}

function readRange(fd: number, file: string, offset: number, bytes: number): Buffer<ArrayBuffer> {
  // Do not use Node's shared buffer pool: the tensor keeps this memory, and its elements must be aligned.
  const buffer = Buffer.from(new ArrayBuffer(bytes));
  let done = 0;
  while (done < bytes) {
    const read = readSync(fd, buffer, done, Math.min(READ_BYTES, bytes - done), offset + done);
    if (read === 0) throw new ModelError('malformed-weights', `${file}: ends before byte ${offset + bytes}`);
    done += read;
  }
  return buffer;
}

/** A tensor to write. The writer calls `data` once, when it writes this tensor, so that a converter holds one tensor at a time. */
export interface TensorSource {
  readonly name: string;
  readonly shape: readonly number[];
  /** `F32` by default. */
  readonly dtype?: StoredTensor['dtype'];
  /** 32-bit floats; or the bytes of values of any type, in pieces, so that a converter never holds a large tensor. */
  data(): Float32Array | Iterable<Uint8Array>;
}

/** Writes tensors in the order given and syncs the file to disk. */
export async function writeSafetensors(
  file: string,
  tensors: readonly TensorSource[],
  onTensor: (done: number, total: number) => void = () => {},
): Promise<void> {
  const header: Record<string, unknown> = { __metadata__: { format: 'pt' } };
  let position = 0;
  for (const tensor of tensors) {
    const bytes = tensorBytes(tensor);
    const { name, shape, dtype = 'F32' } = tensor;
    header[name] = { dtype, shape, data_offsets: [position, position + bytes] };
    position += bytes;
  }
  const json = Buffer.from(JSON.stringify(header));
  // Pad the header so that the first tensor is aligned in a memory-mapped file.
  const dataStart = Math.ceil((json.length + LENGTH_BYTES) / ALIGNMENT_BYTES) * ALIGNMENT_BYTES;
  const padded = Buffer.alloc(dataStart - LENGTH_BYTES, ' ');
  json.copy(padded);
  const length = Buffer.alloc(LENGTH_BYTES);
  length.writeBigUInt64LE(BigInt(padded.length));

  const handle = await open(file, 'w');
  try {
    await handle.writev([length, padded]);
    for (const [index, tensor] of tensors.entries()) {
      const data = tensor.data();
      let written = 0;
      for (const piece of data instanceof Float32Array ? [data] : data) {
        await handle.writeFile(new Uint8Array(piece.buffer, piece.byteOffset, piece.byteLength));
        written += piece.byteLength;
      }
      if (written !== tensorBytes(tensor)) {
        throw new ModelError('wrong-shape', `${tensor.name}: ${written} bytes for shape [${tensor.shape.join(', ')}]`);
      }
      onTensor(index + 1, tensors.length);
    }
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function tensorBytes({ shape, dtype = 'F32' }: TensorSource): number {
  return shape.reduce((product, dimension) => product * dimension, ELEMENT_BYTES[dtype] as number);
}

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { causeText, ModelError } from './errors.ts';
import { expectedTensors, type LoadedModel } from './load.ts';
import { makeFile } from './make-file.ts';
import { readStoredTensors, type TensorSource, writeSafetensors } from './safetensors.ts';
import {
  bitsOf,
  blockedNames,
  decoded,
  isBlocked,
  isPacked,
  type PackedTensor,
  packedPieces,
  type TensorInfo,
  tensorsOf,
} from './tensors.ts';

const WIDENED = 'widened.safetensors';
const CONVERTED = 'converted.safetensors';
/** Bytes of a packed tensor that a conversion reads at once. */
const PIECE_BYTES = 1 << 20;

/** Takes a line about the progress of a conversion. Nothing is reported when the file is there already. */
export type Report = (line: string) => void;

/** Least time between two lines of progress. */
const REPORT_MS = 5000;

/**
 * The same model with every matrix as plain floats, for backends that read nothing else. The first call writes the values of the blocks as 32-bit
 * floats to a file in the model's directory.
 *
 * @throws ModelError `missing-file` when the file cannot be written
 */
export function widenBlocks(model: LoadedModel, report?: Report): Promise<LoadedModel> {
  const { tensors } = model;
  return withFile(model, WIDENED, report, (name, info) => {
    if (isPacked(info)) return [floats(name, info)];
    return isBlocked(info) ? [{ name, shape: info.shape, data: () => tensors.read(name) }] : [];
  });
}

/**
 * The same model without tensors of GGUF's own types, for backends that map Pie's blocks and plain floats. The first call writes a file in the model's
 * directory: blocks where these hold exactly the same values (Q4_0, Q8_0, Q6_K), else 32-bit floats. F16 and BF16 keep their type.
 *
 * @throws ModelError `missing-file` when the file cannot be written
 */
export function convertPacked(model: LoadedModel, report?: Report): Promise<LoadedModel> {
  return withFile(model, CONVERTED, report, (name, info) => {
    if (!isPacked(info)) return [];
    return info.type.exact !== undefined && info.shape.length === 2 ? inBlocks(name, info) : [floats(name, info)];
  });
}

/** The model with some of its tensors in another file of its directory, which this function writes if it is missing. */
async function withFile(
  model: LoadedModel,
  fileName: string,
  report: Report = () => {},
  sourcesOf: (name: string, info: TensorInfo) => TensorSource[],
): Promise<LoadedModel> {
  const { directory, tensors } = model;
  const sources = expectedTensors(model.config).flatMap(([name]) => sourcesOf(name, tensors.info(name)));
  if (sources.length === 0) return model;
  const file = join(directory, fileName);
  try {
    await makeFile(
      file,
      async () => existsSync(file),
      (partial) => writeSafetensors(partial, sources, progressOf(file, report)),
    );
  } catch (cause) {
    throw new ModelError('missing-file', `the weights of ${directory} cannot be converted: ${causeText(cause)}`, {
      cause,
      hint: 'this backend does not read the blocks of the file and needs a second file there: up to 4 bytes for each weight',
    });
  }
  const written = tensorsOf(readStoredTensors(file));
  return {
    ...model,
    // `read` stays: it computes the same floats from the original file.
    tensors: { ...tensors, info: (name) => written.get(name) ?? tensors.info(name) },
  };
}

function progressOf(file: string, report: Report): (done: number, total: number) => void {
  let reportedMs = performance.now();
  report(`converting the weights of the model's file for this backend, into ${file}`);
  return (done, total) => {
    if (performance.now() - reportedMs < REPORT_MS && done < total) return;
    reportedMs = performance.now();
    report(`converted ${done} of ${total} tensors`);
  };
}

/** A packed tensor as plain values, converted in pieces, so that memory never holds the whole matrix. */
function floats(name: string, info: PackedTensor): TensorSource {
  const { type, shape } = info;
  const data = function* (): Generator<Uint8Array> {
    for (const piece of packedPieces(info, PIECE_BYTES))
      yield type.plain === undefined ? bytesOf(decoded(type, piece)) : piece;
  };
  return { name, shape, dtype: type.plain ?? 'F32', data };
}

/** The two tensors of a matrix in blocks. Each of them reads the file separately. */
function inBlocks(name: string, info: PackedTensor): TensorSource[] {
  const { exact } = info.type;
  if (exact === undefined) return [floats(name, info)];
  const { dtype, blockSize } = exact;
  const [rows = 0, columns = 0] = info.shape;
  const shape = [rows, columns / blockSize];
  const names = blockedNames(name, dtype);
  const extracted = function* (part: 'levels' | 'scales'): Generator<Uint8Array> {
    for (const piece of packedPieces(info, PIECE_BYTES))
      yield bytesOf(exact[part](new DataView(piece.buffer, piece.byteOffset, piece.byteLength)));
  };
  const levelsShape = [...shape, (blockSize * bitsOf(dtype)) / 8];
  return [
    { name: names.levels, shape: levelsShape, dtype: 'U8', data: () => extracted('levels') },
    { name: names.scales, shape, data: () => extracted('scales') },
  ];
}

function bytesOf({ buffer, byteOffset, byteLength }: Uint8Array | Float32Array): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

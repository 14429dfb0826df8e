import { ModelError } from '../../errors.ts';
import { readPieces, type StoredTensor, type TensorSource } from '../../safetensors.ts';
import type { Float8, Tile } from './config.ts';
import { expectStored, MISMATCH, readScales, type Stored } from './stored.ts';

/** Bytes of 32-bit floats that a conversion makes at a time; a single row may take more. */
const PIECE_BYTES = 4 << 20;
/** The largest e4m3 value. */
const LARGEST = 448;

/**
 * The value of each byte as e4m3: sign, 4 bits of exponent with the bias 7, 3 bits of fraction, NaN at 0x7f and 0xff,
 * no infinities.
 */
const VALUES = Float32Array.from({ length: 256 }, (_, byte) => {
  const exponent = (byte >> 3) & 15;
  const fraction = byte & 7;
  if (exponent === 15 && fraction === 7) return Number.NaN;
  const magnitude = exponent === 0 ? fraction * 2 ** -9 : (8 + fraction) * 2 ** (exponent - 10);
  return byte < 128 ? magnitude : -magnitude;
});

/**
 * A matrix of 8-bit floats as 32-bit floats: value × scale, rounded once; `shared` tells which values share a scale.
 * Null when the checkpoint has the matrix as plain floats.
 *
 * @throws ModelError `missing-tensor`, `wrong-shape` or `malformed-weights`
 */
export function float8Source(
  { scales: suffixes, shared }: Float8,
  stored: Stored,
  name: string,
  shape: readonly number[],
): TensorSource | null {
  const weight = stored.find(name);
  const base = name.replace(/weight$/, '');
  const scaleNames = suffixes.map((suffix) => base + suffix);
  const present = scaleNames.filter((each) => stored.find(each) !== undefined);
  if (weight?.dtype !== 'F8_E4M3') {
    if (present.length > 0) throw contradiction(`"${present[0]}" scales "${name}", which has no 8-bit floats`);
    return null;
  }
  expectStored(name, weight, 'F8_E4M3', shape);
  if (present.length > 1) throw contradiction(`"${name}" has two scales: ${present.join(' and ')}`);
  const scaleName = present[0] ?? (scaleNames[0] as string);
  const scale = stored.require(scaleName, name);
  const [rows = 0, columns = 0] = shape;
  expectStored(scaleName, scale, 'floats', ...scaleShapes(shared, shape));
  // Rejects bad scales now; `data` reads them again.
  readScales(scaleName, scale, LARGEST);
  const tile = tileOf(shared, rows, columns);
  return { name, shape, data: () => values(name, weight, readScales(scaleName, scale, LARGEST), tile) };
}

/** Size of the part of a matrix that shares one scale. */
function tileOf(shared: Float8['shared'], rows: number, columns: number): Tile {
  if (shared === 'matrix') return [rows, columns];
  return shared === 'row' ? [1, columns] : shared;
}

/** The shapes that a matrix's scales may have. */
function scaleShapes(shared: Float8['shared'], [rows = 0, columns = 0]: readonly number[]): number[][] {
  if (shared === 'matrix') return [[1], [], [1, 1]];
  if (shared === 'row') return [[rows, 1], [rows]];
  return [[Math.ceil(rows / shared[0]), Math.ceil(columns / shared[1])]];
}

function* values(
  name: string,
  weight: StoredTensor,
  scales: Float32Array,
  [tileRows, tileColumns]: Tile,
): Generator<Uint8Array> {
  const columns = weight.shape[1] ?? 1;
  const tilesOfRow = Math.ceil(columns / tileColumns);
  const rowsOfPiece = Math.max(1, Math.floor(PIECE_BYTES / (4 * columns)));
  let row = 0;
  for (const piece of readPieces(weight, rowsOfPiece * columns)) {
    const floats = new Float32Array(piece.length);
    for (let at = 0; at < piece.length; row++) {
      const end = at + columns;
      for (let tile = Math.floor(row / tileRows) * tilesOfRow; at < end; tile++) {
        const scale = scales[tile] as number;
        for (const last = Math.min(at + tileColumns, end); at < last; at++) {
          const byte = piece[at] as number;
          if ((byte & 127) === 127)
            throw new ModelError('malformed-weights', `"${name}" has a value in row ${row} that is not a number`, {
              hint: 'the checkpoint is damaged, fetch it again',
            });
          floats[at] = (VALUES[byte] as number) * scale;
        }
      }
    }
    yield new Uint8Array(floats.buffer);
  }
}

function contradiction(what: string): ModelError {
  return new ModelError('malformed-weights', what, {
    hint: MISMATCH,
  });
}

import { readBytes, type StoredTensor } from '../../safetensors.ts';

/** Layout of a matrix of small unsigned numbers in 32-bit words. Each word holds several neighbours along one dimension. */
export interface Packing {
  readonly bits: 4 | 8;
  /** The dimension whose neighbours share a word. */
  readonly along: 'rows' | 'columns';
  /** Distance in words from a row, or from a group of rows that share a word, to the next. */
  readonly rowStride: number;
  /** Distance in words from a column, or from a group of columns that share a word, to the next. */
  readonly columnStride: number;
  /** Place of each neighbour in its word, counted from the lowest bits; in order by default. */
  readonly places?: readonly number[];
}

/** Reads a tensor of 32-bit integers as unsigned words. */
export function readWords(tensor: StoredTensor): Uint32Array {
  const bytes = readBytes(tensor);
  return new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
}

/** Unpacks some rows of a matrix, one number per byte. */
export function unpackRows(
  words: Uint32Array,
  { bits, along, rowStride, columnStride, places }: Packing,
  firstRow: number,
  count: number,
  columns: number,
): Uint8Array {
  const numbersPerWord = 32 / bits;
  const mask = 2 ** bits - 1;
  const shifts = Array.from({ length: numbersPerWord }, (_, i) => bits * (places?.[i] ?? i));
  const numbers = new Uint8Array(count * columns);
  for (let row = firstRow, to = 0; row < firstRow + count; row++) {
    if (along === 'rows') {
      const shift = shifts[row % numbersPerWord] as number;
      const line = rowStride * Math.floor(row / numbersPerWord);
      for (let column = 0; column < columns; column++)
        numbers[to++] = ((words[line + columnStride * column] as number) >>> shift) & mask;
    } else {
      const end = to + columns;
      for (let at = rowStride * row; to < end; at += columnStride) {
        const word = words[at] as number;
        for (let i = 0; i < numbersPerWord && to < end; i++) numbers[to++] = (word >>> (shifts[i] as number)) & mask;
      }
    }
  }
  return numbers;
}

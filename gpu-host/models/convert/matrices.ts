/** Transposes a row-major matrix of `rows` rows and `columns` columns. */
export function transposed(values: Float32Array, rows: number, columns: number): Float32Array {
  const out = new Float32Array(values.length);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++)
      out[column * rows + row] = values[row * columns + column] as number;
  }
  return out;
}

/** The place in the order for neighbouring pairs of a row in the order for halves; see {@link halvesOfHeads}. With a `headDim` of 0, the same place. */
export function fileRow(row: number, headDim: number): number {
  if (headDim === 0) return row;
  const inHead = row % headDim;
  const half = headDim / 2;
  return row - inHead + (inHead < half ? 2 * inHead : 2 * (inHead - half) + 1);
}

/**
 * Reorders the rows of whole heads, which are in the order for a rotation of neighbouring pairs, into the order for a rotation of halves: rows 0,
 * 2, 4, … of each head become its first half, rows 1, 3, 5, … its second half. A row is `rowBytes` bytes of any type.
 */
export function halvesOfHeads(rows: Uint8Array, rowBytes: number, headDim: number): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(rows.length);
  for (let row = 0; row * rowBytes < rows.length; row++) {
    const source = fileRow(row, headDim);
    out.set(rows.subarray(source * rowBytes, (source + 1) * rowBytes), row * rowBytes);
  }
  return out;
}

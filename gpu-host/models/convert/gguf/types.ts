import type { FloatType } from '../../safetensors.ts';
import { type BlockedTensor, bitsOf, dequantize } from '../../tensors.ts';

/** Encoding of a GGUF tensor: blocks of `values` values, each in `bytes` bytes. No block spans two rows. */
export interface TensorType {
  /** ggml's number of the type. */
  readonly number: number;
  readonly name: string;
  readonly values: number;
  readonly bytes: number;
  /** Bits of a value, without what its block adds. */
  readonly bits: number;
  /** Type of the same bytes in safetensors, for values that are not in blocks. */
  readonly plain?: FloatType;
  /** Writes the values of the blocks in `source` to `target`. */
  decode?(source: DataView, target: Float32Array): void;
  /** Conversion to Pie's own blocks, for types whose values are `(level − middle) × scale`. */
  readonly exact?: ExactBlocks;
}

/** Conversion of a type's blocks to Pie's own blocks, which hold exactly the same values. */
export interface ExactBlocks extends Pick<BlockedTensor, 'dtype' | 'blockSize'> {
  levels(source: DataView): Uint8Array;
  scales(source: DataView): Float32Array;
}

/** Number of values in a block of the formats with one scale per block. */
const SMALL_BLOCK = 32;
/** Number of values in a block of the K-quants (Q2_K to Q6_K) and of IQ4_XS. */
const K_QUANT_BLOCK = 256;
/** Values of the 16 levels of IQ4_NL and IQ4_XS, which lie closer to each other near zero. */
const IQ4_VALUES = Int8Array.of(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
/** Twice the values of the 16 levels of MXFP4: floats with a sign, two bits of exponent and one of fraction (E2M1). */
const MXFP4_VALUES = Int8Array.of(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);

/**
 * The types that Pie reads, by ggml's number. The first three arguments of `blocks` and `exact` are the type's name and a block's number of values
 * and of bytes.
 *
 * @see https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h (`block_q4_0`, …) and `ggml-quants.c` (`dequantize_row_…`)
 */
export const TYPES: Readonly<Record<number, TensorType>> = numbered({
  0: { name: 'F32', values: 1, bytes: 4, plain: 'F32' },
  1: { name: 'F16', values: 1, bytes: 2, plain: 'F16' },
  30: { name: 'BF16', values: 1, bytes: 2, plain: 'BF16' },
  2: exact(
    'Q4_0',
    SMALL_BLOCK,
    18,
    { dtype: 'int4', blockSize: 32 },
    {
      levels: (block, at, set) => nibbles(block, at + 2, SMALL_BLOCK, set),
      scales: (block, at, set) => set(0, block.getFloat16(at, true)),
    },
  ),
  3: blocks('Q4_1', SMALL_BLOCK, 20, (block, at, out, to) => {
    const scale = block.getFloat16(at, true);
    const least = block.getFloat16(at + 2, true);
    nibbles(block, at + 4, SMALL_BLOCK, (i, value) => {
      out[to + i] = Math.fround(scale * value) + least;
    });
  }),
  6: blocks('Q5_0', SMALL_BLOCK, 22, (block, at, out, to) => {
    const scale = block.getFloat16(at, true);
    const high = block.getUint32(at + 2, true);
    nibbles(block, at + 6, SMALL_BLOCK, (i, value) => {
      out[to + i] = scale * (value + 16 * ((high >>> i) & 1) - 16);
    });
  }),
  7: blocks('Q5_1', SMALL_BLOCK, 24, (block, at, out, to) => {
    const scale = block.getFloat16(at, true);
    const least = block.getFloat16(at + 2, true);
    const high = block.getUint32(at + 4, true);
    nibbles(block, at + 8, SMALL_BLOCK, (i, value) => {
      out[to + i] = Math.fround(scale * (value + 16 * ((high >>> i) & 1))) + least;
    });
  }),
  8: exact(
    'Q8_0',
    SMALL_BLOCK,
    34,
    { dtype: 'int8', blockSize: 32 },
    {
      levels(block, at, set) {
        for (let i = 0; i < SMALL_BLOCK; i++) set(i, block.getInt8(at + 2 + i) + 128);
      },
      scales: (block, at, set) => set(0, block.getFloat16(at, true)),
    },
  ),
  10: blocks('Q2_K', K_QUANT_BLOCK, 84, (block, at, out, to) => {
    const scale = block.getFloat16(at + 80, true);
    const least = block.getFloat16(at + 82, true);
    for (let group = 0; group < 16; group++) {
      const factors = block.getUint8(at + group);
      const [ofScale, ofLeast] = [Math.fround(scale * (factors & 15)), Math.fround(least * (factors >> 4))];
      twoBits(block, at + 16, group, (i, value) => {
        out[to + i] = Math.fround(ofScale * value) - ofLeast;
      });
    }
  }),
  11: blocks('Q3_K', K_QUANT_BLOCK, 110, (block, at, out, to) => {
    const scale = block.getFloat16(at + 108, true);
    for (let group = 0; group < 16; group++) {
      // Bytes 96 to 103 hold the low 4 bits of two groups' factors each, bytes 104 to 107 the high 2 bits of four groups' factors.
      const low = (block.getUint8(at + 96 + (group & 7)) >> (group < 8 ? 0 : 4)) & 15;
      const high = (block.getUint8(at + 104 + (group & 3)) >> (2 * (group >> 2))) & 3;
      const ofScale = Math.fround(scale * (low + 16 * high - 32));
      twoBits(block, at + 32, group, (i, value) => {
        const isHigh = (block.getUint8(at + (i & 31)) >> (i >> 5)) & 1;
        out[to + i] = ofScale * (value + 4 * isHigh - 4);
      });
    }
  }),
  12: blocks('Q4_K', K_QUANT_BLOCK, 144, (block, at, out, to) => {
    groupsOf32(block, at, (group, scale, least) => {
      for (let i = 0; i < 32; i++) {
        const value = (block.getUint8(at + 16 + 32 * (group >> 1) + i) >> (4 * (group & 1))) & 15;
        out[to + 32 * group + i] = Math.fround(scale * value) - least;
      }
    });
  }),
  13: blocks('Q5_K', K_QUANT_BLOCK, 176, (block, at, out, to) => {
    groupsOf32(block, at, (group, scale, least) => {
      for (let i = 0; i < 32; i++) {
        const low = (block.getUint8(at + 48 + 32 * (group >> 1) + i) >> (4 * (group & 1))) & 15;
        const high = (block.getUint8(at + 16 + i) >> group) & 1;
        out[to + 32 * group + i] = Math.fround(scale * (low + 16 * high)) - least;
      }
    });
  }),
  // llama.cpp keeps the output head of a Q4_0 file in this type.
  14: exact(
    'Q6_K',
    K_QUANT_BLOCK,
    210,
    { dtype: 'int8', blockSize: 16 },
    {
      levels(block, at, set) {
        for (let i = 0; i < K_QUANT_BLOCK; i++) {
          // Each half of the block has four groups of 32 values. Of each value, 64 bytes hold the low 4 bits: those of groups 0 and 1 in their low
          // halves, those of groups 2 and 3 in their high halves. Another 32 bytes hold the high 2 bits, four values to a byte.
          const half = i >> 7;
          const group = (i >> 5) & 3;
          const low = block.getUint8(at + 64 * half + 32 * (group & 1) + (i & 31)) >> (group < 2 ? 0 : 4);
          const high = block.getUint8(at + 128 + 32 * half + (i & 31)) >> (2 * group);
          // Q6_K's middle level is 32, that of Pie's blocks is 128.
          set(i, (low & 15) + 16 * (high & 3) - 32 + 128);
        }
      },
      scales(block, at, set) {
        const scale = block.getFloat16(at + 208, true);
        // Exact: the product of an 11-bit and an 8-bit significand fits a 32-bit float.
        for (let i = 0; i < K_QUANT_BLOCK / 16; i++) set(i, scale * block.getInt8(at + 192 + i));
      },
    },
  ),
  20: blocks('IQ4_NL', SMALL_BLOCK, 18, (block, at, out, to) => {
    const scale = block.getFloat16(at, true);
    nibbles(block, at + 2, SMALL_BLOCK, (i, level) => {
      out[to + i] = scale * (IQ4_VALUES[level] as number);
    });
  }),
  23: blocks('IQ4_XS', K_QUANT_BLOCK, 136, (block, at, out, to) => {
    const scale = block.getFloat16(at, true);
    const highBits = block.getUint16(at + 2, true);
    for (let group = 0; group < 8; group++) {
      const low = (block.getUint8(at + 4 + (group >> 1)) >> (4 * (group & 1))) & 15;
      const ofScale = Math.fround(scale * (low + 16 * ((highBits >> (2 * group)) & 3) - 32));
      nibbles(block, at + 8 + 16 * group, 32, (i, level) => {
        out[to + 32 * group + i] = ofScale * (IQ4_VALUES[level] as number);
      });
    }
  }),
  39: blocks('MXFP4', SMALL_BLOCK, 17, (block, at, out, to) => {
    // The exponent's bias is 127; one more halves the doubled levels.
    const scale = 2 ** (block.getUint8(at) - 128);
    nibbles(block, at + 1, SMALL_BLOCK, (i, level) => {
      out[to + i] = scale * (MXFP4_VALUES[level] as number);
    });
  }),
});

type Unnumbered = Omit<TensorType, 'number' | 'bits'>;

/** Adds each type's number, and its bits: the digit in the names of types in blocks. */
function numbered(types: Readonly<Record<number, Unnumbered>>): Record<number, TensorType> {
  return Object.fromEntries(
    Object.entries(types).map(([number, type]) => {
      const bits = type.plain === undefined ? Number(/\d/.exec(type.name)?.[0]) : 8 * type.bytes;
      return [number, { ...type, number: Number(number), bits }];
    }),
  );
}

/** Writes the values of the block at byte `at` to `out`, from index `to` on. */
type DecodeBlock = (block: DataView, at: number, out: Float32Array, to: number) => void;

function blocks(name: string, values: number, bytes: number, decodeBlock: DecodeBlock): Unnumbered {
  return {
    name,
    values,
    bytes,
    decode(source, target) {
      for (let at = 0, to = 0; at < source.byteLength; at += bytes, to += values) decodeBlock(source, at, target, to);
    },
  };
}

/** Reads the levels and the scales of the block at byte `at`. */
interface ReadBlock {
  levels(block: DataView, at: number, set: (i: number, level: number) => void): void;
  scales(block: DataView, at: number, set: (i: number, scale: number) => void): void;
}

/** A type whose blocks each become one or more of Pie's blocks with exactly the same values. */
function exact(
  name: string,
  values: number,
  bytes: number,
  { dtype, blockSize }: Pick<BlockedTensor, 'dtype' | 'blockSize'>,
  read: ReadBlock,
): Unnumbered {
  const bits = bitsOf(dtype);
  const levels = (source: DataView): Uint8Array => {
    const packedLevels = new Uint8Array((source.byteLength / bytes) * ((values * bits) / 8));
    for (let at = 0, to = 0; at < source.byteLength; at += bytes, to += values) {
      read.levels(source, at, (i, level) => {
        if (bits === 8) packedLevels[to + i] = level;
        else packedLevels[(to + i) >> 1] = (packedLevels[(to + i) >> 1] as number) | (level << ((i & 1) * 4));
      });
    }
    return packedLevels;
  };
  const scales = (source: DataView): Float32Array => {
    const allScales = new Float32Array((source.byteLength / bytes) * (values / blockSize));
    for (let at = 0, to = 0; at < source.byteLength; at += bytes, to += values / blockSize) {
      read.scales(source, at, (i, scale) => {
        allScales[to + i] = scale;
      });
    }
    return allScales;
  };
  return {
    name,
    values,
    bytes,
    exact: { dtype, blockSize, levels, scales },
    decode: (source, target) =>
      target.set(dequantize({ levels: levels(source), scales: scales(source) }, dtype, blockSize)),
  };
}

/** The 4-bit values of a block: the low halves of its bytes are the first half of the values, the high halves the second. */
function nibbles(block: DataView, at: number, count: number, take: (i: number, value: number) => void): void {
  const half = count / 2;
  for (let i = 0; i < half; i++) {
    const byte = block.getUint8(at + i);
    take(i, byte & 15);
    take(half + i, byte >> 4);
  }
}

/**
 * The low 2 bits of the 16 values of a group of Q2_K or Q3_K; `at` is the place of the block's 64 bytes with such bits. Each half of the block has
 * 32 of these bytes: four pairs of groups, one pair after the other from the lowest bits on.
 */
function twoBits(block: DataView, at: number, group: number, take: (i: number, value: number) => void): void {
  const first = at + 32 * (group >> 3) + 16 * (group & 1);
  const shift = 2 * ((group >> 1) & 3);
  for (let i = 0; i < 16; i++) take(16 * group + i, (block.getUint8(first + i) >> shift) & 3);
}

/**
 * Scale and offset of each group of 32 values in a Q4_K or Q5_K block. The block begins with two 16-bit factors, one for all scales and one for all
 * offsets. The next 12 bytes hold, for each of 8 groups, 6 bits of its scale and 6 bits of its offset:
 *
 * - Groups 0 to 3: the scales are the low 6 bits of bytes 0 to 3, the offsets are the low 6 bits of bytes 4 to 7.
 * - Groups 4 to 7: bytes 8 to 11 hold the low 4 bits of the scale and, above them, the low 4 bits of the offset. The high 2 bits of bytes 0 to 3
 *   complete the scales, the high 2 bits of bytes 4 to 7 complete the offsets.
 */
function groupsOf32(block: DataView, at: number, take: (group: number, scale: number, least: number) => void): void {
  const scale = block.getFloat16(at, true);
  const least = block.getFloat16(at + 2, true);
  const byte = (i: number) => block.getUint8(at + 4 + i);
  for (let group = 0; group < 8; group++) {
    const [ofScale, ofLeast] =
      group < 4
        ? [byte(group) & 63, byte(group + 4) & 63]
        : [(byte(group + 4) & 15) | ((byte(group - 4) >> 6) << 4), (byte(group + 4) >> 4) | ((byte(group) >> 6) << 4)];
    take(group, Math.fround(scale * ofScale), Math.fround(least * ofLeast));
  }
}

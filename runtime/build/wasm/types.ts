import { type Reader, WasmError } from './binary.ts';
import { isAddedName, isReservedName, reservedNameMessage } from './names.ts';

const FUNCTION_TYPE = 0x60;

/**
 * Value types of one byte, none of which needs a garbage collector: i32, i64, f32, f64, v128, funcref, externref, exnref, and the types of
 * null references to functions, host values and exceptions.
 */
const SINGLE_BYTE_TYPES: ReadonlySet<number> = new Set([
  0x7f, 0x7e, 0x7d, 0x7c, 0x7b, 0x70, 0x6f, 0x69, 0x73, 0x72, 0x74,
]);

/** `s33` reads the byte of a type as the byte minus this number: negative, so that it differs from an index. */
const SIGNED_OFFSET = 128;
/** The byte for a block without a result. */
const NO_RESULT = 0x40;

const REFERENCE_NULLABLE = 0x63;
const REFERENCE = 0x64;

/** Skips a value type. Refuses types of the garbage collection proposal, whose instructions we do not meter. */
export function skipValueType(reader: Reader): void {
  const at = reader.at;
  const code = reader.byte();
  if (code === REFERENCE || code === REFERENCE_NULLABLE) skipHeapType(reader);
  else if (!SINGLE_BYTE_TYPES.has(code)) throw unsupportedType(code, at);
}

/** Skips the type that a reference points to: an index of the module's types, or one byte for an abstract type. */
export function skipHeapType(reader: Reader): void {
  const at = reader.at;
  const type = reader.s33();
  if (type < 0 && !SINGLE_BYTE_TYPES.has(type + SIGNED_OFFSET)) throw unsupportedType(type + SIGNED_OFFSET, at);
}

const unsupportedType = (code: number, at: number): WasmError =>
  new WasmError(`type 0x${code.toString(16)} (garbage collection or a newer proposal) is not supported`, at);

/** Skips a block's type: no result, the type of one result, or the index of a function type. */
export function skipBlockType(reader: Reader): void {
  const at = reader.at;
  const type = reader.s33();
  if (type === REFERENCE - SIGNED_OFFSET || type === REFERENCE_NULLABLE - SIGNED_OFFSET) skipHeapType(reader);
  else if (type < 0 && type !== NO_RESULT - SIGNED_OFFSET && !SINGLE_BYTE_TYPES.has(type + SIGNED_OFFSET)) {
    throw unsupportedType(type + SIGNED_OFFSET, at);
  }
}

/** Parameter counts of the module's function types, by type index. */
export function readParameterCounts(reader: Reader): number[] {
  const counts: number[] = [];
  for (let left = reader.u32(); left > 0; left -= 1) {
    const at = reader.at;
    const form = reader.byte();
    if (form !== FUNCTION_TYPE) throw unsupportedType(form, at);
    const params = reader.u32();
    for (let i = 0; i < params; i += 1) skipValueType(reader);
    for (let results = reader.u32(); results > 0; results -= 1) skipValueType(reader);
    counts.push(params);
  }
  return counts;
}

export interface Limits {
  readonly min: number;
  readonly max: number | null;
}

/** Limits of a table or memory. Refuses shared and 64-bit limits. */
export function readLimits(reader: Reader): Limits {
  const at = reader.at;
  const flags = reader.byte();
  if (flags & 2) throw new WasmError('shared memory (threads) is not supported', at);
  if (flags & 4) throw new WasmError('64-bit memories and tables are not supported', at);
  if (flags > 1) throw new WasmError('limits of a newer proposal are not supported', at);
  const min = reader.u32();
  return { min, max: flags & 1 ? reader.u32() : null };
}

interface ImportCounts {
  readonly functions: number;
  readonly tables: number;
  readonly memories: number;
  readonly globals: number;
}

/** Reads the name of an import or export. Refuses reserved names. */
function readName(reader: Reader): string {
  const at = reader.at;
  const name = reader.name();
  if (isReservedName(name)) throw new WasmError(reservedNameMessage(name), at);
  return name;
}

/** Checks the names of a module's exports. */
export function checkExportNames(reader: Reader): void {
  for (let left = reader.u32(); left > 0; left -= 1) {
    const at = reader.at;
    const name = readName(reader);
    if (isAddedName(name)) throw new WasmError(`a core module exports \`${name}\`, which this platform adds`, at);
    reader.byte();
    reader.u32();
  }
}

/** Number of imports of each kind. Imports come first in the index spaces. Refuses reserved names. */
export function readImports(reader: Reader): ImportCounts {
  const counts = { functions: 0, tables: 0, memories: 0, globals: 0 };
  for (let left = reader.u32(); left > 0; left -= 1) {
    readName(reader);
    readName(reader);
    const at = reader.at;
    const kind = reader.byte();
    switch (kind) {
      case 0: // Function
        reader.u32();
        counts.functions += 1;
        break;
      case 1: // Table
        skipValueType(reader);
        readLimits(reader);
        counts.tables += 1;
        break;
      case 2: // Memory
        readLimits(reader);
        counts.memories += 1;
        break;
      case 3: // Global
        skipValueType(reader);
        reader.byte();
        counts.globals += 1;
        break;
      case 4: // Exception tag
        reader.byte();
        reader.u32();
        break;
      default:
        throw new WasmError(`import kind ${kind} is not supported`, at);
    }
  }
  return counts;
}

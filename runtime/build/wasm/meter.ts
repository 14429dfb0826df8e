import {
  appendEntry,
  entryCount,
  leb,
  nameBytes,
  Reader,
  readSections,
  SECTION,
  type Section,
  sectionBody,
  signedLeb,
  WasmError,
  Writer,
  withSection,
  writeSections,
} from './binary.ts';
import { type FunctionBody, readCallGraph } from './call-graph.ts';
import { EMPTY_BLOCK, GLOBAL_GET, GLOBAL_SET, I32, I32_CONST, I32_LE_S, I32_SUB, OP } from './instructions.ts';
import { readDefinitions } from './limits.ts';
import { PIE_EXPORTS } from './names.ts';
import { type BranchHints, BulkPieces, type Checks, FunctionRewriter, GRANT, PIECES_TYPE } from './rewrite-function.ts';
import { checkExportNames, readImports, readParameterCounts } from './types.ts';

const I32_EQZ = 0x45;
/** The type of a function without parameters and results. */
const NULLARY_TYPE = [0x60, 0, 0];
/** A table with one function reference: type of its elements, flag "has a maximum", minimum, maximum. */
const YIELD_TABLE = [0x70, 1, 1, 1];
/** A mutable i32, 0 at first. */
const FUEL_GLOBAL = [I32, 1, I32_CONST, 0, OP.end];
/** Kinds of exports. */
const [FUNCTION_EXPORT, TABLE_EXPORT, GLOBAL_EXPORT] = [0, 1, 3] as const;
/** Number of declarations of locals, with which a function's body begins. */
const NO_LOCALS = 0;

interface Metered {
  readonly bytes: Uint8Array;
  /** Number of inserted checks; 0 when the module needs none. */
  readonly checks: number;
}

/**
 * Inserts fuel checks into a core module, so that the host can preempt and kill it on a shared thread (V8 has neither fuel nor epochs).
 *
 * Fuel is the exported global `pie_fuel` (i32). When none is left, the module calls element 0 of the exported table `pie_yield`, a function
 * without parameters and results. That function sets `pie_fuel` anew and returns, at once or (with JSPI) later. When it returns with
 * `pie_fuel` 0, the module traps (`unreachable`). No guest can catch this trap; it could catch an exception that the host throws.
 *
 * A module has no fuel until the host gives it some. Its start function therefore becomes the export `pie_start`, which the host calls.
 *
 * `rewrite-function.ts` decides the places and prices of checks. Nothing else changes: indices stay the same, because types, functions,
 * tables and globals are appended at the ends. Custom sections other than names are dropped (some hold code offsets).
 *
 * Throws WasmError for bytes that are not well-formed, for features that we do not meter (garbage collection, threads, 64-bit memories) and
 * for reserved names (`names.ts`).
 */
export function meter(bytes: Uint8Array): Metered {
  // Refuses shared, 64-bit and malformed memories and tables; the result is not needed.
  readDefinitions(bytes);
  checkExportNames(new Reader(sectionBody(readSections(bytes), SECTION.export)));
  const sections = exportStart(
    readSections(bytes).filter((section) => section.id !== SECTION.custom || isName(section)),
  );
  const imports = readImports(new Reader(sectionBody(sections, SECTION.import)));
  const fuel = leb(imports.globals + entryCount(sections, SECTION.global));
  // The appended functions are refill, yield and those for pieces, in this order; the appended types are the nullary one and that of the pieces.
  const refillIndex = imports.functions + entryCount(sections, SECTION.function);
  const nullaryType = entryCount(sections, SECTION.type);
  const piecesType = nullaryType + 1;
  const yieldIndex = leb(refillIndex + 1);
  const pieces = new BulkPieces(fuel, yieldIndex, refillIndex + 2);
  const code = rewriteCode(sections, imports.functions, {
    fuel,
    refill: leb(refillIndex),
    yield: yieldIndex,
    pieces,
    piecesType: signedLeb(piecesType),
  });
  if (code.checks === 0) return { bytes: writeSections(sections), checks: 0 };

  const table = imports.tables + entryCount(sections, SECTION.table);
  let metered = appendEntry(sections, SECTION.type, NULLARY_TYPE);
  if (pieces.count > 0) metered = appendEntry(metered, SECTION.type, PIECES_TYPE);
  metered = appendEntry(metered, SECTION.function, leb(nullaryType));
  metered = appendEntry(metered, SECTION.function, leb(nullaryType));
  for (let i = 0; i < pieces.count; i++) metered = appendEntry(metered, SECTION.function, leb(piecesType));
  metered = appendEntry(metered, SECTION.table, YIELD_TABLE);
  metered = appendEntry(metered, SECTION.global, FUEL_GLOBAL);
  metered = appendEntry(metered, SECTION.export, [...nameBytes(PIE_EXPORTS.fuel), GLOBAL_EXPORT, ...fuel]);
  metered = appendEntry(metered, SECTION.export, [...nameBytes(PIE_EXPORTS.yield), TABLE_EXPORT, ...leb(table)]);
  metered = withSection(metered, SECTION.code, code.body);
  metered = appendEntry(metered, SECTION.code, refillFunction(fuel, yieldIndex));
  metered = appendEntry(metered, SECTION.code, yieldFunction(nullaryType, table, fuel));
  for (const body of pieces.bodies) metered = appendEntry(metered, SECTION.code, withSize(body));
  const codePosition = metered.findIndex((section) => section.id === SECTION.code);
  metered = metered.toSpliced(codePosition, 0, { id: SECTION.custom, body: branchHintSection(code.hints) });
  return { bytes: writeSections(metered), checks: code.checks };
}

/**
 * Makes the start function an export, `pie_start`, that the host calls as soon as the instance is made: a start section runs before the
 * host can give the module fuel.
 */
function exportStart(sections: readonly Section[]): readonly Section[] {
  const start = sections.find(({ id }) => id === SECTION.start);
  if (!start) return sections;
  const reader = new Reader(start.body);
  const index = reader.u32();
  if (!reader.done) throw new WasmError('bytes after the start function', reader.at);
  const otherSections = sections.filter((section) => section !== start);
  return appendEntry(otherSections, SECTION.export, [...nameBytes(PIE_EXPORTS.start), FUNCTION_EXPORT, ...leb(index)]);
}

/** Tells V8 which branches are rare (branch hinting proposal), so that it moves their code out of the way. */
function branchHintSection(hints: readonly BranchHints[]): Uint8Array {
  const ordered = hints.toSorted((a, b) => a.index - b.index);
  const out = new Writer(hints.length * 16 + 64);
  out.push(nameBytes('metadata.code.branch_hint'));
  out.push(leb(ordered.length));
  for (const { index, unlikely } of ordered) {
    out.push([...leb(index), ...leb(unlikely.length)]);
    // A hint of one byte: 0 for a branch that is rarely taken.
    for (const offset of unlikely) out.push([...leb(offset), 1, 0]);
  }
  return out.bytes();
}

const isName = ({ body }: Section): boolean => {
  const reader = new Reader(body);
  return body.length > 0 && reader.name() === 'name';
};

const withSize = (body: readonly number[]): number[] => [...leb(body.length), ...body];

/**
 * The function that refills a local counter. A function with loops takes GRANT units of fuel at its entry and counts them down in a local. At the
 * end of the count it calls this function, which takes GRANT units again, and yields when no fuel is left.
 */
const refillFunction = (fuel: readonly number[], yieldIndex: readonly number[]): number[] =>
  withSize([
    NO_LOCALS,
    ...[GLOBAL_GET, ...fuel, I32_CONST, GRANT, I32_SUB, GLOBAL_SET, ...fuel],
    ...[GLOBAL_GET, ...fuel, I32_CONST, 0, I32_LE_S, OP.if, EMPTY_BLOCK, OP.call, ...yieldIndex, OP.end],
    OP.end,
  ]);

/** The function that code calls when no fuel is left. It calls the host, and traps when the host gives no fuel. */
const yieldFunction = (type: number, table: number, fuel: readonly number[]): number[] =>
  withSize([
    NO_LOCALS,
    ...[I32_CONST, 0, OP.callIndirect, ...leb(type), ...leb(table)],
    ...[GLOBAL_GET, ...fuel, I32_EQZ, OP.if, EMPTY_BLOCK, OP.unreachable, OP.end],
    OP.end,
  ]);

function rewriteCode(
  sections: readonly Section[],
  imported: number,
  target: Checks,
): { body: Uint8Array; checks: number; hints: readonly BranchHints[] } {
  const source = sectionBody(sections, SECTION.code);
  const bodies = readBodies(sections, source);
  const at = ({ start, end }: FunctionBody) => new Reader(source, start, end);
  const graph = readCallGraph(bodies, at, imported);
  const rewriter = new FunctionRewriter(target, imported, graph.recursive);
  const rewritten: Uint8Array[] = new Array(bodies.length);
  for (const index of graph.order) {
    const body = bodies[index];
    if (body) rewritten[index] = rewriter.rewrite(index, at(body), body.params);
  }
  const out = new Writer(source.length + (source.length >> 2));
  out.push(leb(bodies.length));
  for (const body of rewritten) {
    out.push(leb(body.length));
    out.push(body);
  }
  return { body: out.bytes(), checks: rewriter.checks, hints: rewriter.hints };
}

function readBodies(sections: readonly Section[], source: Uint8Array): FunctionBody[] {
  const counts = readParameterCounts(new Reader(sectionBody(sections, SECTION.type)));
  const functions = new Reader(sectionBody(sections, SECTION.function));
  const reader = new Reader(source);
  const count = reader.u32();
  if (functions.u32() !== count) throw new WasmError('function and code sections differ in length');
  const bodies: FunctionBody[] = [];
  for (let i = 0; i < count; i += 1) {
    const params = counts[functions.u32()];
    if (params === undefined) throw new WasmError('unknown function type', reader.at);
    const { at: start, end } = reader.slice(reader.u32());
    bodies.push({ params, start, end });
  }
  if (!reader.done) throw new WasmError('bytes after the last function', reader.at);
  return bodies;
}

import { leb, Reader, signedLeb } from '#runtime/build/wasm/binary.ts';
import { skipLocals } from '#runtime/build/wasm/call-graph.ts';
import { type Instruction, OP, readInstruction } from '#runtime/build/wasm/instructions.ts';
import type { Random } from '../../harness/random.ts';

const I32_CONST = 0x41;
/** Ranges of `i32` opcodes with equal signatures. */
const COMPARISONS = { first: 0x46, last: 0x4f } as const;
const ARITHMETIC = { first: 0x6a, last: 0x78 } as const;
const CONSTANTS = [
  ...[0, 1, 2, 3, 4, 7, 8, 15, 16, 32, 64, 255, 256, 257, 4096, 65_535, 65_536, 131_072, 1_048_576, 16_777_216],
  ...[-1, -2, -4, -8, -65_536, 0x7fff_ffff, -0x8000_0000, -0x7fff_ffff, 0x4000_0000, 0x1000_0001],
];
const MAX_CHANGES = 4;

/** A range in a code section that a mutation may replace. */
interface Site {
  readonly start: number;
  readonly end: number;
  readonly change: (random: Random) => readonly number[];
}

/**
 * Changes a code section: in functions chosen by chance, 1 to `MAX_CHANGES` constants, operators, targets of direct
 * calls or targets of branches. Most changed code still validates. It then runs, and gives `runtime/lowering` other
 * pointers, lengths, handles and calls.
 *
 * @throws WasmError for a body that cannot be read
 */
export function withOtherCode(body: Uint8Array, random: Random): Uint8Array {
  const reader = new Reader(body);
  const count = reader.u32();
  const functions: Uint8Array[] = [];
  for (let i = 0; i < count; i++) {
    const { at, end } = reader.slice(reader.u32());
    functions.push(body.subarray(at, end));
  }
  for (let changes = 1 + random.below(MAX_CHANGES); changes > 0; changes--) {
    const at = random.below(count);
    functions[at] = changed(functions[at] ?? new Uint8Array(), random);
  }
  return codeSection(functions);
}

/** Builds a code section from function bodies. */
export function codeSection(functions: readonly Uint8Array[]): Uint8Array {
  return Buffer.concat([
    Uint8Array.from(leb(functions.length)),
    ...functions.flatMap((code) => [Uint8Array.from(leb(code.length)), code]),
  ]);
}

function changed(code: Uint8Array, random: Random): Uint8Array {
  const sites = sitesIn(code);
  if (sites.length === 0) return code;
  const { start, end, change } = random.pick(sites);
  return Buffer.concat([code.subarray(0, start), Uint8Array.from(change(random)), code.subarray(end)]);
}

function sitesIn(code: Uint8Array): Site[] {
  const sites: Site[] = [];
  const reader = new Reader(code);
  // The instructions follow the locals. The number of parameters affects only the result of `skipLocals`, which is not needed here.
  skipLocals(reader, 0);
  const instruction: Instruction = { opcode: 0, sub: 0, labels: [], index: 0, source: 0 };
  while (!reader.done) {
    const start = reader.at;
    readInstruction(reader, instruction);
    const { opcode, index } = instruction;
    const end = reader.at;
    if (opcode === I32_CONST)
      sites.push({ start: start + 1, end, change: (random) => signedLeb(random.pick(CONSTANTS)) });
    else if (opcode === OP.call)
      sites.push({ start: start + 1, end, change: (random) => leb(Math.max(0, index + random.below(5) - 2)) });
    // Most branches have at least two blocks around them, so the depths 0 to 2 name targets that exist.
    else if (opcode === OP.br || opcode === OP.brIf)
      sites.push({ start: start + 1, end, change: (random) => leb(random.below(3)) });
    else
      for (const { first, last } of [COMPARISONS, ARITHMETIC])
        if (opcode >= first && opcode <= last)
          sites.push({ start, end, change: (random) => [first + random.below(last - first + 1)] });
  }
  return sites;
}

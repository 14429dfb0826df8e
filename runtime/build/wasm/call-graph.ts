import type { Reader } from './binary.ts';
import { type Instruction, OP, readInstruction } from './instructions.ts';
import { skipValueType } from './types.ts';

/** Body of a function: number of parameters, and the range of bytes that holds its locals and code. */
export interface FunctionBody {
  readonly params: number;
  readonly start: number;
  readonly end: number;
}

interface CallGraph {
  /** Indices of the defined functions: callees before their callers, except around cycles. */
  readonly order: readonly number[];
  /** Functions at which a cycle of direct calls closes: at least one function of each cycle. */
  readonly recursive: ReadonlySet<number>;
}

/** Skips a body's declarations of locals; returns how many locals there are, parameters included. */
export function skipLocals(reader: Reader, params: number): number {
  let locals = params;
  for (let groups = reader.u32(); groups > 0; groups -= 1) {
    locals += reader.u32();
    skipValueType(reader);
  }
  return locals;
}

/** Reads the direct calls between the functions of a module in one pass over their code. `imported` is the number of imported functions. */
export function readCallGraph(
  bodies: readonly FunctionBody[],
  code: (body: FunctionBody) => Reader,
  imported: number,
): CallGraph {
  const instruction: Instruction = { opcode: 0, sub: 0, labels: [], index: 0, source: 0 };
  const callees = bodies.map((body) => {
    const reader = code(body);
    const found = new Set<number>();
    skipLocals(reader, body.params);
    while (!reader.done) {
      readInstruction(reader, instruction);
      if (instruction.opcode !== OP.call && instruction.opcode !== OP.returnCall) continue;
      const callee = instruction.index - imported;
      if (callee >= 0 && callee < bodies.length) found.add(callee);
    }
    return [...found];
  });
  return orderByCallees(callees);
}

/** Sorts functions by a depth-first search. It keeps a stack instead of calling itself, because a hostile module can chain a million functions. */
function orderByCallees(callees: readonly (readonly number[])[]): CallGraph {
  const NEW = 0;
  const OPEN = 1;
  const DONE = 2;
  const state = new Uint8Array(callees.length);
  const order: number[] = [];
  const recursive = new Set<number>();
  for (let root = 0; root < callees.length; root += 1) {
    if (state[root] !== NEW) continue;
    const stack = [{ index: root, next: 0 }];
    state[root] = OPEN;
    for (let top = stack.at(-1); top; top = stack.at(-1)) {
      const callee = callees[top.index]?.[top.next];
      top.next += 1;
      if (callee === undefined) {
        state[top.index] = DONE;
        order.push(top.index);
        stack.pop();
      } else if (state[callee] === NEW) {
        state[callee] = OPEN;
        stack.push({ index: callee, next: 0 });
      } else if (state[callee] === OPEN) recursive.add(callee);
    }
  }
  return { order, recursive };
}

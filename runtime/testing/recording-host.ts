import type { WitFunction, WitInterface, WitType } from '#wit/generate/model.ts';
import { world } from '#wit/generated/world.ts';
import type { HostFunction, HostTable } from '../lowering/compile.ts';

/** The calls of a guest with their arguments, one line a call: `interface core-name(arguments)`. */
export interface Recording {
  readonly host: HostTable;
  readonly lines: string[];
}

/**
 * The shapes of a function's answers repeat after this many calls. The shape is success or error (period 4), the length of a list (period 5), and the
 * case of a variant whose number of cases divides this number.
 */
export const SHAPES = 20;

/**
 * A host that implements the whole contract: it records each call, and answers with a value made from the type and from
 * a counter for each function. The same calls therefore get the same answers through any lowering, and four consecutive calls of a function see
 * both success and failure. Futures complete a turn later.
 */
export function recordingHost(): Recording {
  const lines: string[] = [];
  let functions = 0;
  const answer = (entry: WitInterface, fn: WitFunction): HostFunction => {
    const base = functions++ * SHAPES;
    let count = 0;
    const call = (_context: unknown, ...args: unknown[]): unknown => {
      const number = base + ++count;
      lines.push(`${entry.name} ${fn.coreName}(${args.map(show).join(', ')})`);
      if (fn.kind === 'constructor') return { resource: `${fn.resource}#${count}` };
      if (fn.result === null) return undefined;
      if (fn.result.kind !== 'future') return sample(fn.result, number);
      const value = fn.result.value ? sample(fn.result.value, number) : undefined;
      return new Promise((resolve) => setImmediate(resolve, value));
    };
    return call as HostFunction;
  };
  const host: Record<string, Record<string, HostFunction>> = {};
  for (const entry of world.imports) {
    const table: Record<string, HostFunction> = {};
    for (const fn of [...entry.functions, ...entry.resources.flatMap(({ functions }) => functions)])
      table[fn.coreName] = answer(entry, fn);
    for (const { name } of entry.resources) {
      table[`[resource-drop]${name}`] = ((_context: unknown, self: unknown) => {
        lines.push(`${entry.name} [resource-drop]${name}(${show(self)})`);
      }) as HostFunction;
    }
    host[entry.name] = table;
  }
  return { host, lines };
}

/** A value of a type, different for different numbers. Every fourth result is an error. */
export function sample(type: WitType, number: number): unknown {
  switch (type.kind) {
    case 'bool':
      return number % 2 === 1;
    case 'u8':
      return number % 256;
    case 'u64':
    case 's64':
      return BigInt(number) * 1_000_003n;
    case 'f32':
    case 'f64':
      return -number / 4;
    case 'char':
      return 'é';
    case 'string':
      return `text ${number} — ünï😀`;
    case 'list':
      return sampleList(type.element, number);
    case 'option':
      return number % 2 === 0 ? undefined : sample(type.value, number);
    case 'result':
      return number % 4 === 0
        ? { tag: 'err', val: type.err ? sample(type.err, number) : undefined }
        : { tag: 'ok', val: type.ok ? sample(type.ok, number) : undefined };
    case 'record':
      return Object.fromEntries(type.fields.map((field, i) => [field.js, sample(field.type, number + i)]));
    case 'tuple':
      return type.items.map((item, i) => sample(item, number + i));
    case 'variant': {
      const chosen = type.cases[number % type.cases.length];
      return { tag: chosen?.name, ...(chosen?.type && { val: sample(chosen.type, number) }) };
    }
    case 'own':
      return { resource: `${type.resource}#${number}` };
    case 'enum':
      return type.cases[number % type.cases.length]?.name;
    default:
      return number;
  }
}

function sampleList(element: WitType, number: number): unknown {
  const length = number % 5;
  const values = Array.from({ length }, (_, i) => sample(element, number + i));
  if (element.kind === 'u32') return Uint32Array.from(values as number[]);
  if (element.kind === 'f32') return Float32Array.from(values as number[]);
  if (element.kind === 'u8') return Uint8Array.from(values as number[]);
  return values;
}

/** Arguments as text; typed arrays with their type. */
export function show(value: unknown): string {
  return JSON.stringify(value, (_key, part: unknown) => {
    if (ArrayBuffer.isView(part))
      return `${part.constructor.name}[${Array.from(part as unknown as ArrayLike<number>).join()}]`;
    if (typeof part === 'bigint') return `${part}n`;
    return part === undefined ? 'undefined' : part;
  });
}

import type { HostFunction, HostTable } from '#runtime/lowering/compile.ts';
import { sample } from '#runtime/testing/recording-host.ts';
import type { WitFunction } from '#wit/generate/model.ts';
import { world } from '#wit/generated/world.ts';

/** Number of different values that a function returns before they repeat. */
const VARIANTS = 20;

/** A host that implements the whole contract with values made from each function's type, and keeps no state of its guests. */
export function plainHost(): HostTable {
  const host: Record<string, Record<string, HostFunction>> = {};
  for (const entry of world.imports) {
    const table: Record<string, HostFunction> = {};
    for (const fn of [...entry.functions, ...entry.resources.flatMap(({ functions }) => functions)]) {
      table[fn.coreName] = answering(fn);
    }
    for (const { name } of entry.resources) table[`[resource-drop]${name}`] = () => undefined;
    host[entry.name] = table;
  }
  return host;
}

function answering(fn: WitFunction): HostFunction {
  const { result } = fn;
  let calls = 0;
  return () => {
    const number = ++calls % VARIANTS;
    if (fn.kind === 'constructor') return {};
    if (result === null) return undefined;
    if (result.kind !== 'future') return sample(result, number);
    return new Promise((resolve) => setImmediate(resolve, result.value ? sample(result.value, number) : undefined));
  };
}

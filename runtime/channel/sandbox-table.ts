import { world } from '#wit/generated/world.ts';
import type { HostFunction, HostTable } from '../lowering/compile.ts';
import { callNumber } from './calls.ts';
import type { SandboxInvocation } from './sandbox-invocation.ts';

type LocalFunction = (context: unknown, ...args: unknown[]) => unknown;

/**
 * Builds a table like `runtime/host/table.ts` with a {@link SandboxInvocation} as context: calls that the runtime answers become frames,
 * and `local` answers the others.
 *
 * @throws TypeError when `local` lacks a function that the runtime does not answer
 */
export function sandboxTable(local: HostTable): HostTable {
  const tables = world.imports.map((entry) => {
    const names = [
      ...[...entry.functions, ...entry.resources.flatMap(({ functions }) => functions)].map(({ coreName }) => coreName),
      ...entry.resources.map(({ name }) => `[resource-drop]${name}`),
    ];
    const functions = names.map(
      (name) => [name, functionOf(local, entry.name, name) as unknown as HostFunction] as const,
    );
    return [entry.name, Object.fromEntries(functions)] as const;
  });
  return Object.fromEntries(tables);
}

function functionOf(local: HostTable, interfaceName: string, name: string): LocalFunction {
  const number = callNumber(interfaceName, name);
  if (number !== undefined) return (context, ...args) => (context as SandboxInvocation).call(number, args);
  const fn = local[interfaceName]?.[name] as unknown as LocalFunction | undefined;
  if (!fn) throw new TypeError(`the sandbox does not implement ${interfaceName} ${name}`);
  return fn;
}

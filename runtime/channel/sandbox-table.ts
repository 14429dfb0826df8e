import { world } from '#wit/generated/world.ts';
import type { HostFunction, HostTable } from '../lowering/compile.ts';
import { callNumber } from './calls.ts';
import type { SandboxInvocation } from './sandbox-invocation.ts';

/** A function of the table, or of `local`. */
type SandboxFunction = (context: unknown, ...args: unknown[]) => unknown;

/**
 * Builds the table of a sandbox's host functions. It has the functions of `hostTable` in `runtime/host/table.ts`, but their context is a
 * {@link SandboxInvocation}. A call that the runtime answers is sent to the runtime over the channel. All other calls are answered by `local`.
 *
 * @param local functions that the sandbox answers itself
 * @throws TypeError when a function is neither in `local` nor among the calls of the channel
 */
export function sandboxTable(local: HostTable): HostTable {
  const tables = world.imports.map((imported) => {
    const methods = imported.resources.flatMap(({ functions }) => functions);
    const coreNames = [
      ...[...imported.functions, ...methods].map(({ coreName }) => coreName),
      ...imported.resources.map(({ name }) => `[resource-drop]${name}`),
    ];
    const functions = coreNames.map(
      (coreName) => [coreName, functionOf(local, imported.name, coreName) as unknown as HostFunction] as const,
    );
    return [imported.name, Object.fromEntries(functions)] as const;
  });
  return Object.fromEntries(tables);
}

function functionOf(local: HostTable, interfaceName: string, coreName: string): SandboxFunction {
  const number = callNumber(interfaceName, coreName);
  if (number !== undefined) return (context, ...args) => (context as SandboxInvocation).call(number, args);
  const fn = local[interfaceName]?.[coreName] as unknown as SandboxFunction | undefined;
  if (!fn) throw new TypeError(`the sandbox does not implement ${interfaceName} ${coreName}`);
  return fn;
}

import { err, handlerError } from '#gpu-host/protocol/errors.ts';
import { world } from '#wit/generated/world.ts';
import type { HostTable } from '../lowering/compile.ts';

/** An interface of which every call is `unsupported`. */
export function refusing(name: string): HostTable[string] {
  const entry = world.imports.find((candidate) => candidate.name === name);
  if (!entry) throw new TypeError(`no interface ${name}`);
  const refused = err(handlerError('unsupported', `this host does not offer ${name}`));
  const functions = [...entry.functions, ...entry.resources.flatMap((resource) => resource.functions)];
  return Object.fromEntries([
    ...functions.map(({ coreName, result }) => [
      coreName,
      () =>
        coreName.startsWith('[constructor]') ? {} : result?.kind === 'future' ? Promise.resolve(refused) : refused,
    ]),
    ...entry.resources.map((resource) => [`[resource-drop]${resource.name}`, () => undefined]),
  ]);
}

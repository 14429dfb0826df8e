import { hostNames, type TypeNames, typeText } from './emit-host.ts';
import type { WitFunction, WitWorld } from './model.ts';
import { HEADER } from './names.ts';

/**
 * The text of `queue-calls.ts`. For each function that takes a queue and no other resource, it has the type of the result, and one record of the
 * function's name and its arguments without the queue. The queue is always the first parameter.
 */
export function emitQueueCalls(world: WitWorld): string {
  const names = hostNames(world);
  const interfaces = world.imports
    .map((entry) => ({ name: entry.name, functions: entry.functions.filter(takesQueue) }))
    .filter(({ functions }) => functions.length > 0);
  const text = [
    '/** The functions, by interface and name. Each takes the record of its call: its name, and its arguments by name. */',
    'export interface QueueFunctions {',
    ...interfaces.flatMap(({ name, functions }) => functions.map((item) => `  ${signature(name, item, names)}`)),
    '}',
    '',
    '/** A call on a queue. */',
    'export type QueueCall = Parameters<QueueFunctions[keyof QueueFunctions]>[0];',
    '',
    '/** Host functions by interface and core name. Each makes the record of its call and gives the record to `pass`. */',
    'export const queueCalls = <Queue, Result>(pass: (queue: Queue, call: QueueCall) => Result) => ({',
    ...interfaces.flatMap(({ name, functions }) => [
      `  '${name}': {`,
      ...functions.map((item) => `    '${item.coreName}': ${maker(item, names)},`),
      '  },',
    ]),
    '});',
    '',
  ].join('\n');
  // `Queue` is a type parameter of `queueCalls`.
  const resources = world.imports
    .flatMap((entry) => entry.resources.map(({ js }) => js))
    .filter((js) => js !== 'Queue');
  const declared = ['Outcome', ...resources, ...names.values()];
  const used = declared.filter((name) => new RegExp(`\\b${name}\\b`).test(text)).sort();
  return [HEADER, `import type { ${used.join(', ')} } from './host.ts';`, '', text].join('\n');
}

/**
 * Only a call without other resources can go to a device as a record: the device does not know the platform's other
 * resources.
 */
const takesQueue = ({ params }: WitFunction): boolean => {
  const resources = params.flatMap(({ type }) => ('resource' in type ? [type.resource] : []));
  return resources.length === 1 && resources[0] === 'queue';
};

/** The parameters after the queue. */
const argumentsOf = ({ params }: WitFunction, names: TypeNames): readonly (readonly [string, string])[] =>
  params.slice(1).map(({ js, type }) => [js, typeText(type, names)] as const);

/** A member of `QueueFunctions`. Its result has the same type as the result of the function in `host.ts`. */
function signature(interfaceName: string, item: WitFunction, names: TypeNames): string {
  const members = argumentsOf(item, names).map(([name, type]) => `; readonly ${name}: ${type}`);
  const result = item.result ? typeText(item.result, names) : 'void';
  return `'${interfaceName}/${item.name}': (call: { readonly op: '${item.name}'${members.join('')} }) => ${result};`;
}

/** The text of a host function. It ignores its first argument, the context of the calling guest. */
function maker(item: WitFunction, names: TypeNames): string {
  const otherArguments = argumentsOf(item, names);
  const parameters = ['_: unknown', 'queue: Queue', ...otherArguments.map(([name, type]) => `${name}: ${type}`)].join(
    ', ',
  );
  return `(${parameters}) => pass(queue, { ${[`op: '${item.name}'`, ...otherArguments.map(([name]) => name)].join(', ')} })`;
}

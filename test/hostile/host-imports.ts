import { type CoreType, flatten, MAX_FLAT_PARAMS, MAX_FLAT_RESULTS, paramTypes } from '#wit/generate/layout.ts';
import type { WitFunction, WitInterface } from '#wit/generate/model.ts';
import { world } from '#wit/generated/world.ts';

/** Signatures of the canonical ABI's intrinsics that a guest reaches as `$root:NAME`. */
const ROOT: Readonly<Record<string, string>> = {
  'thread-yield': '(result i32)',
  'waitable-set-new': '(result i32)',
  'waitable-set-drop': '(param i32)',
  'waitable-set-wait': '(param i32 i32) (result i32)',
  'waitable-set-poll': '(param i32 i32) (result i32)',
  'waitable-join': '(param i32 i32)',
  'context-get-0': '(result i32)',
  'context-set-0': '(param i32)',
  'subtask-drop': '(param i32)',
  'subtask-cancel': '(param i32) (result i32)',
  'task-cancel': '',
};

/** Operations on the future that a function returns, as in `$read:session.receive`. `wait` blocks; the others return at once. */
const FUTURE: Readonly<Record<string, readonly [prefix: string, signature: string]>> = {
  read: ['[async-lower][future-read-0]', '(param i32 i32) (result i32)'],
  wait: ['[future-read-0]', '(param i32 i32) (result i32)'],
  cancel: ['[future-cancel-read-0]', '(param i32) (result i32)'],
  drop: ['[future-drop-readable-0]', '(param i32)'],
};

const CALL = /\$((?:[a-z]+:)?[a-z0-9-]+(?:\.[a-z0-9-]+){0,2})(?=[\s()])/g;

/**
 * The imports of the host functions that a guest's text names: `$interface.function`, `$interface.resource.method` (also for the methods `new`
 * and `drop`), `$read:interface.function` (likewise `$wait:`, `$cancel:` and `$drop:`), and `$root:intrinsic`.
 *
 * @throws Error for a name with a dot or colon that the contract does not have.
 */
export function hostImports(text: string): string {
  const names = new Set([...text.matchAll(CALL)].map(([, name = '']) => name).filter((name) => /[.:]/.test(name)));
  return [...names].map(importOf).join('\n');
}

function importOf(name: string): string {
  const [operation, key] = name.includes(':') ? (name.split(':') as [string, string]) : [null, name];
  if (operation === 'root') {
    const signature = ROOT[key];
    if (signature === undefined) throw new Error(`no intrinsic ${key}`);
    const context = /^context-(get|set)-0$/.exec(key);
    return line('$root', context ? `[context-${context[1]}-0]` : `[${key}]`, name, signature);
  }
  const [wit, ...path] = key.split('.');
  const entry = world.imports.find((each) => each.name === wit);
  if (!entry) throw new Error(`no interface ${wit}`);
  if (operation === null && path.length === 2 && path[1] === 'drop') {
    return line(entry.id, `[resource-drop]${path[0]}`, name, '(param i32)');
  }
  const fn = functionOf(entry, path);
  if (operation === null) return line(entry.id, fn.coreName, name, signatureOf(fn, entry.name));
  const future = FUTURE[operation];
  if (!future) throw new Error(`no operation ${operation}`);
  const [prefix, signature] = future;
  return line(entry.id, `${prefix}${fn.coreName}`, name, signature);
}

/** The function at a path of an interface: `[function]` or `[resource, method]`. */
function functionOf(entry: WitInterface, [first = '', method]: readonly string[]): WitFunction {
  let functions: readonly WitFunction[] | undefined = entry.functions;
  let name = first;
  if (method !== undefined) {
    functions = entry.resources.find((resource) => resource.name === first)?.functions;
    name = method === 'new' ? 'constructor' : method;
  }
  const found = functions?.find((fn) => fn.name === name);
  if (!found) throw new Error(`no function ${first}.${method} in ${entry.name}`);
  return found;
}

function signatureOf(fn: WitFunction, interfaceName: string): string {
  const params: CoreType[] = paramTypes(fn, interfaceName).flatMap((type) => [...flatten(type)]);
  if (params.length > MAX_FLAT_PARAMS) params.splice(0, params.length, 'i32');
  const results = fn.result === null ? [] : flatten(fn.result);
  const inMemory = results.length > MAX_FLAT_RESULTS;
  if (inMemory) params.push('i32');
  return `(param ${params.join(' ')}) ${!inMemory && results[0] ? `(result ${results[0]})` : ''}`;
}

const line = (module: string, field: string, name: string, signature: string): string =>
  `(import "${module}" "${field}" (func $${name} ${signature}))`;

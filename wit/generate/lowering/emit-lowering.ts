import { hostNames } from '../emit-host.ts';
import { flatten, layoutOf, paramTypes, type Signature, signatureOf } from '../layout.ts';
import { parts, pascalCase, type WitFunction, type WitInterface, type WitType, type WitWorld } from '../model.ts';
import { HEADER } from '../names.ts';
import { Emitter, indented } from './emitter.ts';
import { importKey } from './lowered.ts';

/** A host function: its keys in the host table, and its type. */
interface HostEntry {
  readonly interfaceName: string;
  readonly coreName: string;
  readonly type: string;
}

/**
 * The text of `lowering.ts`. Each function that an inferlet imports becomes one specialised core function: straight-line code that converts the
 * arguments and the result as the canonical ABI says. In that code, `g` is the guest (`LoweredGuest`), `h0`, `h1` and so on are the host
 * functions, and `F` has the types of futures.
 */
export function emitLowering(world: WitWorld): string {
  const resources: string[] = [];
  const resourceIndex = (interfaceName: string, resource: string): number => {
    const key = `${interfaceName}/${resource}`;
    const known = resources.indexOf(key);
    return known >= 0 ? known : resources.push(key) - 1;
  };
  const names = hostNames(world);
  const emitter = new Emitter(resourceIndex, names);
  const hostEntries: HostEntry[] = [];
  const functions: string[] = [];
  const futureEntries: string[] = [];
  for (const entry of world.imports) {
    for (const fn of [...entry.functions, ...entry.resources.flatMap((resource) => resource.functions)]) {
      const key = importKey(entry.id, fn.coreName);
      functions.push(`    ['${key}', ${trampoline(emitter, entry, fn, hostEntries.length)}],`);
      hostEntries.push({ interfaceName: entry.name, coreName: fn.coreName, type: functionType(emitter, entry, fn) });
      const ids = futureTypes(fn).map((type) => emitter.future(type));
      if (ids.length > 0) futureEntries.push(`    ['${key}', [${ids.map((id) => `F[${id}]`).join(', ')}]],`);
    }
    for (const { name } of entry.resources) {
      const coreName = `[resource-drop]${name}`;
      const index = resourceIndex(entry.name, name);
      const take = `g.takeResource(h, ${index}) as ${pascalCase(name)}`;
      const body = `      g.enter();\n      h${hostEntries.length}(g.context, ${take});`;
      functions.push(`    ['${importKey(entry.id, coreName)}', (g) => (h: number) => {\n${body}\n    }],`);
      const type = `(context: unknown, self: ${pascalCase(name)}) => void`;
      hostEntries.push({ interfaceName: entry.name, coreName, type });
    }
  }
  const [run] = world.exports;
  if (!run?.result) throw new TypeError('the world exports no function with a result');
  const { result } = run;
  // `[task-return]run` passes the result of `run` as core values; a plain `run` returns the address of its result.
  const flat = flatten(result).map((_, index) => `f${index}`);
  const lifted = emitter.lift(result, flat);
  const loaded = emitter.load(result, 'p');
  const futureTypeLines: string[] = [];
  // `store` may add future types to `emitter.futures` during this loop, which then visits them too.
  for (let id = 0; id < emitter.futures.length; id++) {
    const type = emitter.futures[id];
    if (!type) continue;
    const { size, align } = layoutOf(type);
    const value = `const v = value as ${emitter.text(type)};`;
    const store = `(g, p, value) => { ${value} ${emitter.store(type, 'p', 'v')} }`;
    futureTypeLines.push(`    { id: ${id}, size: ${size}, align: ${align}, store: ${store} },`);
  }
  const hostTypes = [
    ...new Set([
      ...names.values(),
      'Outcome',
      ...world.imports.flatMap((entry) => entry.resources.map(({ js }) => js)),
    ]),
  ];
  const { size, align } = layoutOf(result);
  const body = [
    ...hostEntries.map(({ interfaceName, coreName }, i) => `  const h${i} = host['${interfaceName}']['${coreName}'];`),
    indented(emitter.helpers),
    '  const F: LoweredFuture[] = [',
    ...futureTypeLines,
    '  ];',
    '  const functions: readonly (readonly [string, Trampoline])[] = [',
    ...functions,
    '  ];',
    '  const futures: readonly (readonly [string, readonly LoweredFuture[]])[] = [',
    ...futureEntries,
    '  ];',
    '  return {',
    '    functions: new Map(functions),',
    '    futures: new Map(futures),',
    `    liftResult: (g, ${flat.join(', ')}) => ${lifted},`,
    `    loadResult: (g, p) => ${loaded},`,
    `    resultLayout: { size: ${size}, align: ${align} },`,
    '  };',
  ].join('\n');
  return [
    HEADER,
    "import type { LoweredFuture, LoweredGuest, Lowering, Trampoline } from '../generate/lowering/lowered.ts';",
    `import type {\n${hostTypes
      .filter((name) => new RegExp(`\\b${name}\\b`).test(body + hostEntries.map(({ type }) => type).join()))
      .sort()
      .map((name) => `  ${name},`)
      .join('\n')}\n} from './host.ts';`,
    '',
    ...hostFunctions(hostEntries),
    '',
    ...coercions(body),
    '/** Lowers every function of the contract onto `host`, which has each of `HOST_FUNCTIONS`. */',
    'export function lower(host: HostFunctions): Lowering {',
    body,
    '}',
    '',
  ].join('\n');
}

/** The type of the table of host functions, and the names of all of them. */
function hostFunctions(hostEntries: readonly HostEntry[]): string[] {
  const interfaces = [...new Set(hostEntries.map(({ interfaceName }) => interfaceName))];
  const lines = [
    '/** Functions that the host implements, by interface and core name. The first argument of each function is the context of the guest. */',
    'export interface HostFunctions {',
  ];
  for (const name of interfaces) {
    const entries = hostEntries.filter(({ interfaceName }) => interfaceName === name);
    lines.push(
      `  readonly '${name}': {`,
      ...entries.map(({ coreName, type }) => `    readonly '${coreName}': ${type};`),
      '  };',
    );
  }
  return [
    ...lines,
    '}',
    '',
    '/** Interface and core name of each host function. */',
    'export const HOST_FUNCTIONS: readonly (readonly [string, string])[] = [',
    ...hostEntries.map(({ interfaceName, coreName }) => `  ['${interfaceName}', '${coreName}'],`),
    '];',
  ];
}

/**
 * Helpers of the generated code, if `body` calls them. The payloads of a variant's cases arrive in the same core values, so a float may arrive as
 * the bits of an integer (`coerce`). `f32of` and `f64of` turn these bits back into the float.
 */
function coercions(body: string): string[] {
  const helpers = {
    f32of: 'const f32of = (i: number): number => {\n  bits.setInt32(0, i);\n  return bits.getFloat32(0);\n};',
    f64of: 'const f64of = (i: bigint): number => {\n  bits.setBigInt64(0, i);\n  return bits.getFloat64(0);\n};',
  };
  const used = Object.entries(helpers).flatMap(([name, text]) => (body.includes(`${name}(`) ? [text] : []));
  return used.length === 0 ? [] : ['const bits = new DataView(new ArrayBuffer(8));', ...used, ''];
}

function functionType(emitter: Emitter, entry: WitInterface, fn: WitFunction): string {
  const params = paramTypes(fn, entry.name).map((type, index) => `a${index}: ${emitter.text(type)}`);
  return `(${['context: unknown', ...params].join(', ')}) => ${fn.result ? emitter.text(fn.result) : 'void'}`;
}

/**
 * Source of the core function that a guest imports as `fn`. `g.enter()` begins every call: it traps a guest that may not call now. `g.leave()`
 * ends a call that may have taken long: it stops a guest that has used up its time. Short calls omit it.
 */
function trampoline(emitter: Emitter, entry: WitInterface, fn: WitFunction, hostIndex: number): string {
  const signature = signatureOf(fn, entry.name);
  const coreParams: string[] = [];
  const lines = ['g.enter();'];
  const values = signature.spilled
    ? spilledArguments(emitter, signature, coreParams, lines)
    : flatArguments(emitter, signature, coreParams, lines);
  if (signature.returnPointer) coreParams.push('r: number');
  const call = `h${hostIndex}(${['g.context', ...values].join(', ')})`;
  const leave = mayTakeLong(signature, fn.result) ? ['g.leave();'] : [];
  if (fn.result === null) lines.push(`${call};`, ...leave);
  else if (signature.returnPointer) {
    const { size, align } = layoutOf(fn.result);
    lines.push(
      `r = g.range(r, ${size}, ${align});`,
      `const v = ${call};`,
      emitter.store(fn.result, 'r', 'v'),
      ...leave,
    );
  } else if (leave.length > 0) {
    lines.push(`const v = ${emitter.lowerFlat(fn.result, call)};`, ...leave, 'return v;');
  } else lines.push(`return ${emitter.lowerFlat(fn.result, call)};`);
  return `(g) => (${coreParams.join(', ')}) => {\n${lines.map((line) => `      ${line}`).join('\n')}\n    }`;
}

/**
 * For arguments that are core values: adds their parameters to `coreParams`, and to `lines` the code that lifts them. Returns the expressions of
 * the lifted arguments.
 */
function flatArguments(emitter: Emitter, signature: Signature, coreParams: string[], lines: string[]): string[] {
  return signature.params.map((type, index) => {
    const types = flatten(type);
    const flat = types.map((_, i) => `a${index}_${i}`);
    coreParams.push(...flat.map((name, i) => `${name}: ${types[i] === 'i64' ? 'bigint' : 'number'}`));
    lines.push(`const v${index} = ${emitter.lift(type, flat)};`);
    return `v${index}`;
  });
}

/** Like `flatArguments`, for arguments that lie in memory behind one pointer. */
function spilledArguments(emitter: Emitter, signature: Signature, coreParams: string[], lines: string[]): string[] {
  const tuple: WitType = { kind: 'tuple', items: signature.params };
  const { size, align } = layoutOf(tuple);
  coreParams.push('p: number');
  lines.push(`p = g.range(p, ${size}, ${align});`, `const t = ${emitter.load(tuple, 'p')};`);
  return signature.params.map((_, index) => `t[${index}]`);
}

/** True if the arguments or the result contain a string or a list: the duration of the call then depends on its length. */
const mayTakeLong = ({ params }: Signature, result: WitType | null): boolean => [...params, result].some(hasLength);

function hasLength(type: WitType | null): boolean {
  // The guest reads the value of a future by another call.
  if (type === null || type.kind === 'future') return false;
  return type.kind === 'string' || type.kind === 'list' || parts(type).some(hasLength);
}

/**
 * Types of the values of the futures in a function's signature. They have the order in which the canonical ABI numbers the imports that read them:
 * `[future-read-0]` reads the first future, `[future-read-1]` the second. A future inside the value of another future comes before the outer one.
 */
function futureTypes(fn: WitFunction): WitType[] {
  const found: WitType[] = [];
  const visit = (type: WitType | null): void => {
    if (!type) return;
    if (type.kind === 'future') {
      visit(type.value);
      if (type.value) found.push(type.value);
    } else if (type.kind === 'list') visit(type.element);
    else if (type.kind === 'option') visit(type.value);
    else if (type.kind === 'result') [type.ok, type.err].forEach(visit);
  };
  for (const param of fn.params) visit(param.type);
  visit(fn.result);
  return found;
}

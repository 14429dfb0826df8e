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
 * The text of `lowering.ts`: the canonical ABI of each function that an inferlet imports, one specialised core function each, made of
 * straight-line code.
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
  const futures: string[] = [];
  for (const entry of world.imports) {
    for (const fn of [...entry.functions, ...entry.resources.flatMap((resource) => resource.functions)]) {
      const key = importKey(entry.id, fn.coreName);
      functions.push(`    ['${key}', ${trampoline(emitter, entry, fn, hostEntries.length)}],`);
      hostEntries.push({ interfaceName: entry.name, coreName: fn.coreName, type: functionType(emitter, entry, fn) });
      const ids = futureTypes(fn).map((type) => emitter.future(type));
      if (ids.length > 0) futures.push(`    ['${key}', [${ids.map((id) => `F[${id}]`).join(', ')}]],`);
    }
    for (const { name } of entry.resources) {
      const coreName = `[resource-drop]${name}`;
      const index = resourceIndex(entry.name, name);
      const take = `g.takeResource(h, ${index}) as ${pascalCase(name)}`;
      const body = `      g.enter();\n      h${hostEntries.length}(g.context, ${take});`;
      functions.push(`    ['${importKey(entry.id, coreName)}', (g) => (h: number) => {\n${body}\n    }],`);
      hostEntries.push({
        ...{ interfaceName: entry.name, coreName },
        type: `(context: unknown, self: ${pascalCase(name)}) => void`,
      });
    }
  }
  const [run] = world.exports;
  if (!run?.result) throw new TypeError('the world exports no function with a result');
  const { result } = run;
  const flat = flatten(result).map((_, index) => `f${index}`);
  const lifted = emitter.lift(result, flat);
  const loaded = emitter.load(result, 'p');
  const stores: string[] = [];
  // `store` may add future types to `emitter.futures`, so this list may grow during the loop.
  for (let id = 0; id < emitter.futures.length; id++) {
    const type = emitter.futures[id];
    if (!type) continue;
    const { size, align } = layoutOf(type);
    const value = `const v = value as ${emitter.text(type)};`;
    const store = `(g, p, value) => { ${value} ${emitter.store(type, 'p', 'v')} }`;
    stores.push(`    { id: ${id}, size: ${size}, align: ${align}, store: ${store} },`);
  }
  const types = [
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
    ...stores,
    '  ];',
    '  const functions: readonly (readonly [string, Trampoline])[] = [',
    ...functions,
    '  ];',
    '  const futures: readonly (readonly [string, readonly LoweredFuture[]])[] = [',
    ...futures,
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
    `import type {\n${types
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
    const own = hostEntries.filter(({ interfaceName }) => interfaceName === name);
    lines.push(
      `  readonly '${name}': {`,
      ...own.map(({ coreName, type }) => `    readonly '${coreName}': ${type};`),
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

/** The helpers that the contract needs to move a payload between the core types of joined cases. */
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

function trampoline(emitter: Emitter, entry: WitInterface, fn: WitFunction, hostIndex: number): string {
  const signature = signatureOf(fn, entry.name);
  const core: string[] = [];
  const lines = ['g.enter();'];
  const values = signature.spilled
    ? spilledArguments(emitter, signature, core, lines)
    : flatArguments(emitter, signature, core, lines);
  if (signature.returnPointer) core.push('r: number');
  const call = `h${hostIndex}(${['g.context', ...values].join(', ')})`;
  const leave = isSized(signature, fn.result) ? ['g.leave();'] : [];
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
  return `(g) => (${core.join(', ')}) => {\n${lines.map((line) => `      ${line}`).join('\n')}\n    }`;
}

function flatArguments(emitter: Emitter, signature: Signature, core: string[], lines: string[]): string[] {
  return signature.params.map((type, index) => {
    const types = flatten(type);
    const flat = types.map((_, i) => `a${index}_${i}`);
    core.push(...flat.map((name, i) => `${name}: ${types[i] === 'i64' ? 'bigint' : 'number'}`));
    lines.push(`const v${index} = ${emitter.lift(type, flat)};`);
    return `v${index}`;
  });
}

function spilledArguments(emitter: Emitter, signature: Signature, core: string[], lines: string[]): string[] {
  const tuple: WitType = { kind: 'tuple', items: signature.params };
  const { size, align } = layoutOf(tuple);
  core.push('p: number');
  lines.push(`p = g.range(p, ${size}, ${align});`, `const t = ${emitter.load(tuple, 'p')};`);
  return signature.params.map((_, index) => `t[${index}]`);
}

/** True if the duration of a call can depend on its arguments or result: strings and lists have any size. */
const isSized = ({ params }: Signature, result: WitType | null): boolean => [...params, result].some(hasSize);

function hasSize(type: WitType | null): boolean {
  if (type === null || type.kind === 'future') return false;
  return type.kind === 'string' || type.kind === 'list' || parts(type).some(hasSize);
}

/** Payloads of the futures in a function's signature, in order. */
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

import { isReservedName, reservedNameMessage } from '../build/wasm/names.ts';
import { Fuel, GO_ON, TRAP } from './fuel.ts';
import {
  type Location,
  PLAN_FORMAT,
  type Plan,
  type PlannedImport,
  type PlannedInstance,
  type Source,
} from './plan.ts';
import { GuestTrap } from './trap.ts';

type CoreImports = Record<string, Record<string, unknown>>;

/** The factory that `jco transpile --instantiation async` writes as `app.js`. */
export type JcoInstantiate = (
  getCoreModule: (path: string) => WebAssembly.Module,
  imports: Record<string, unknown>,
  instantiateCore: (module: WebAssembly.Module, imports?: CoreImports) => WebAssembly.Instance,
) => Promise<unknown>;

/** A core module and the content of its file. */
export interface CoreModule {
  readonly name: string;
  readonly bytes: Uint8Array;
  readonly module: WebAssembly.Module;
}

/** The links of the component cannot be described by a plan; the message says which link. */
export class UnplannableError extends Error {
  override readonly name = 'UnplannableError';
}

/** The component uses a name that a plan must not contain. The component is refused before any of its code runs. */
export class ReservedNameError extends Error {
  override readonly name = 'ReservedNameError';
}

/** Maximum CPU time of this thread that the start functions of a component may take. */
const RECORD_LIMIT_MS = 500;

interface Recorded {
  readonly file: CoreModule;
  readonly imports: CoreImports;
  readonly instance: WebAssembly.Instance;
}

/** Imports of the platform: the contract's interfaces and the canonical ABI's intrinsics. */
const OURS = /^(pie:inferlet\/|\$root$|\[export\])/;
/** Imports of the modules that jco makes for calls between components of a composition. */
const ADAPTER_IMPORTS = new Set([
  'callee',
  'flags',
  'post_return',
  'runtime',
  'transcode',
  'augments',
  'realloc',
  'resource',
  'async',
  'context',
  'memory',
]);

/**
 * Instantiates a component once through jco's glue and records its links. An adapter is a module that jco makes for
 * calls between components. The plan leaves out the adapters of components that only trap, such as the stubbed WASI of
 * a JavaScript inferlet. Throws `UnplannableError`, `ReservedNameError`, and the errors of start functions.
 */
export async function recordPlan(instantiate: JcoInstantiate, modules: readonly CoreModule[]): Promise<Plan> {
  for (const { module } of modules) checkNames(module);
  const byModule = new Map(modules.map((entry) => [entry.module, entry] as const));
  const byName = new Map(modules.map((entry) => [entry.name, entry] as const));
  const recorded: Recorded[] = [];
  // Every platform function traps: a platform call belongs to a run, and start functions execute before any run exists.
  const trapOnCall = () =>
    function calledTooEarly() {
      throw new GuestTrap('trap', 'its start function calls the platform');
    };
  const trappingInterface = new Proxy({}, { get: trapOnCall });
  const fromMs = threadCpuMs();
  let isOverLimit = false;
  // The start functions either go on or trap, because a start function cannot be suspended.
  const fuel = new Fuel({
    ask: () => {
      fuel.refill();
      isOverLimit = threadCpuMs() - fromMs >= RECORD_LIMIT_MS;
      return isOverLimit ? TRAP : GO_ON;
    },
    wait: () => Promise.resolve(),
    resumed: () => TRAP,
  });
  const getModule = (path: string): WebAssembly.Module => {
    const found = byName.get(path);
    if (!found) throw new UnplannableError(`the glue asks for ${path}, which is not in the artifact`);
    return found.module;
  };
  const instantiateCore = (module: WebAssembly.Module, imports: CoreImports = {}): WebAssembly.Instance => {
    const file = byModule.get(module);
    if (!file) throw new UnplannableError('the glue made a core module of its own');
    const instance = new WebAssembly.Instance(module, imports as WebAssembly.Imports);
    fuel.adopt(instance.exports);
    recorded.push({ file, imports, instance });
    return instance;
  };
  try {
    const interfaces = new Proxy({}, { get: () => trappingInterface }) as Record<string, unknown>;
    await instantiate(getModule, interfaces, instantiateCore);
  } catch (error) {
    // A guest that is out of fuel executes `unreachable`, whose error gives no reason.
    throw isOverLimit ? new GuestTrap('cpu-limit', `its start functions computed for ${RECORD_LIMIT_MS} ms`) : error;
  }
  return prune(describe(recorded));
}

function threadCpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

function checkNames(module: WebAssembly.Module): void {
  const imports = WebAssembly.Module.imports(module).flatMap((entry) => [entry.module, entry.name]);
  const exports = WebAssembly.Module.exports(module).map(({ name }) => name);
  const reserved = [...imports, ...exports].find(isReservedName);
  if (reserved !== undefined) throw new ReservedNameError(reservedNameMessage(reserved));
}

function describe(recorded: readonly Recorded[]): Plan {
  const exportedBy = new Map<unknown, Location>();
  const globals = new Map<WebAssembly.Global, number>();
  const inert = recorded.map(({ file }) => isInert(file.bytes));
  /** Indices of adapters all of whose callees only trap. */
  const deadAdapters = new Set<number>();
  const instances = recorded.map(({ file, imports, instance }, index) => {
    const planned: PlannedImport[] = WebAssembly.Module.imports(file.module).map(({ module, name }) => ({
      module,
      name,
      source: sourceOf(module, name, importedBy(imports, module, name), exportedBy, globals),
    }));
    if (isDeadAdapter(planned, inert)) deadAdapters.add(index);
    for (const [name, value] of Object.entries(instance.exports)) {
      if (!exportedBy.has(value)) exportedBy.set(value, { instance: index, name });
    }
    return { module: file.name, imports: planned };
  });
  const leadsNowhere = (source: Source): boolean =>
    source.kind === 'export' && (deadAdapters.has(source.instance) || (inert[source.instance] ?? false));
  const isFunction = (instance: number, name: string) =>
    typeof recorded[instance]?.instance.exports[name] === 'function';
  const cleaned = instances.map((entry) => ({
    ...entry,
    imports: entry.imports.map((item) =>
      item.source.kind === 'export' && leadsNowhere(item.source) && isFunction(item.source.instance, item.source.name)
        ? { ...item, source: { kind: 'trap' as const } }
        : item,
    ),
  }));
  return { format: PLAN_FORMAT, instances: bypassShims(cleaned), entry: findEntry(recorded, exportedBy) };
}

/**
 * In wit-component's output, a module imports numbered functions from a shim. The shim calls the real functions through a table. A later *fixup*
 * instance imports the real functions from `actual` and fills the table with them. If a real function is not a core export, the plan links the
 * module's import past the shim: to the platform's function, or to a trap.
 */
function bypassShims(instances: readonly PlannedInstance[]): PlannedInstance[] {
  /** Sources of the real functions, by `<index of the shim> <number>`. */
  const realFunctions = new Map<string, Source>();
  for (const { imports } of instances) {
    const table = imports.find(({ name }) => name === SHIM_TABLE)?.source;
    if (table?.kind !== 'export') continue;
    for (const { module, name, source } of imports) {
      if (module === 'actual') realFunctions.set(`${table.instance} ${name}`, source);
    }
  }
  return instances.map((entry) => ({
    ...entry,
    imports: entry.imports.map((item) => {
      if (item.source.kind !== 'export') return item;
      const actual = realFunctions.get(`${item.source.instance} ${item.source.name}`);
      if (actual?.kind !== 'trap') return item;
      return { ...item, source: { kind: OURS.test(item.module) ? 'host' : 'trap' } };
    }),
  }));
}

/** Name under which a shim exports its table. */
const SHIM_TABLE = '$imports';

/** Value that the glue passes for an import; undefined when the glue's objects only inherit the property. */
function importedBy(imports: CoreImports, module: string, name: string): unknown {
  const fields = Object.hasOwn(imports, module) ? imports[module] : undefined;
  return fields && Object.hasOwn(fields, name) ? fields[name] : undefined;
}

/** True for an adapter whose callees are all inert: they only trap. */
function isDeadAdapter(imports: readonly PlannedImport[], inert: readonly boolean[]): boolean {
  if (imports.length === 0 || !imports.every((item) => ADAPTER_IMPORTS.has(item.module))) return false;
  const callees = imports.filter((item) => item.module === 'callee');
  return (
    callees.length > 0 && callees.every(({ source }) => source.kind === 'export' && inert[source.instance] === true)
  );
}

/** Returns the origin of an import from the value that the glue passes for it. Numbers a global when it first occurs. */
function sourceOf(
  module: string,
  name: string,
  value: unknown,
  exportedBy: ReadonlyMap<unknown, Location>,
  globals: Map<WebAssembly.Global, number>,
): Source {
  const location = exportedBy.get(value);
  if (location) return { kind: 'export', ...location };
  if (OURS.test(module)) return { kind: 'host' };
  if (value instanceof WebAssembly.Global) {
    const id = globals.get(value) ?? globals.size;
    globals.set(value, id);
    const content: unknown = value.value;
    return {
      kind: 'global',
      id,
      type: typeof content === 'bigint' ? 'i64' : 'i32',
      mutable: true,
      value: Number(content),
    };
  }
  if (typeof value === 'function' || value instanceof WebAssembly.Suspending) return { kind: 'trap' };
  throw new UnplannableError(`the import ${module} ${name} comes from outside the component`);
}

/** Name of the `run` export in each form. */
const RUN_EXPORTS = [
  ['callback', '[async-lift]run'],
  ['stackful', '[async-lift-stackful]run'],
  ['sync', 'run'],
] as const;

/** Finds the core instance that exports `run`. */
function findEntry(recorded: readonly Recorded[], exportedBy: ReadonlyMap<unknown, Location>): Plan['entry'] {
  for (let instance = 0; instance < recorded.length; instance++) {
    const entry = recorded[instance];
    if (!entry) continue;
    const { exports } = entry.instance;
    const at = (name: string): Location => ({ instance, name });
    const found = RUN_EXPORTS.find(([, name]) => name in exports);
    if (!found) continue;
    const [form, runName] = found;
    const memory = exports.memory instanceof WebAssembly.Memory ? at('memory') : importedMemory(entry, exportedBy);
    if (!memory) throw new UnplannableError('the module that exports run has no memory');
    return {
      form,
      run: at(runName),
      callback: form === 'callback' ? at('[callback][async-lift]run') : null,
      memory,
      realloc: 'cabi_realloc' in exports ? at('cabi_realloc') : null,
    };
  }
  throw new UnplannableError('no core module exports run');
}

function importedMemory(entry: Recorded, exportedBy: ReadonlyMap<unknown, Location>): Location | null {
  for (const { module, name, kind } of WebAssembly.Module.imports(entry.file.module)) {
    if (kind === 'memory') return exportedBy.get(importedBy(entry.imports, module, name)) ?? null;
  }
  return null;
}

/** Removes unneeded instances and renumbers the others. */
function prune(plan: Plan): Plan {
  const needed = new Set<number>();
  const visit = (index: number): void => {
    if (needed.has(index)) return;
    needed.add(index);
    for (const { source } of plan.instances[index]?.imports ?? []) if (source.kind === 'export') visit(source.instance);
  };
  visit(plan.entry.run.instance);
  // An instance without exports may fill another instance's table or run that instance's constructors. It is needed if that instance is needed.
  for (let index = 0; index < plan.instances.length; index++) {
    const targets =
      plan.instances[index]?.imports.flatMap(({ source }) => (source.kind === 'export' ? [source.instance] : [])) ?? [];
    const hasNeededTarget = plan.instances[index]?.imports.some(
      ({ source }) => source.kind === 'export' && needed.has(source.instance),
    );
    if (hasNeededTarget && targets.includes(plan.entry.run.instance)) visit(index);
    else if (hasNeededTarget && sharesTable(plan, index, needed)) visit(index);
  }
  const order = [...needed].sort((a, b) => a - b);
  const renumbered = new Map(order.map((old, index) => [old, index] as const));
  const move = <T extends { readonly instance: number }>(location: T): T => ({
    ...location,
    instance: renumbered.get(location.instance) ?? 0,
  });
  return {
    ...plan,
    instances: order.flatMap((old) => {
      const entry = plan.instances[old];
      if (!entry) return [];
      return [
        {
          ...entry,
          imports: entry.imports.map((item) =>
            item.source.kind === 'export' ? { ...item, source: move(item.source) } : item,
          ),
        },
      ];
    }),
    entry: {
      ...plan.entry,
      run: move(plan.entry.run),
      callback: plan.entry.callback && move(plan.entry.callback),
      memory: move(plan.entry.memory),
      realloc: plan.entry.realloc && move(plan.entry.realloc),
    },
  };
}

/** True when an instance imports the indirection table of a needed instance, as wit-component's fixup modules do. */
function sharesTable(plan: Plan, index: number, needed: ReadonlySet<number>): boolean {
  return (
    plan.instances[index]?.imports.some(
      ({ name, source }) => name === SHIM_TABLE && source.kind === 'export' && needed.has(source.instance),
    ) ?? false
  );
}

/** Id of the code section in a core module. */
const CODE_SECTION = 10;

/**
 * True when no function of a core module does anything: each body is empty or `unreachable`. Componentised JavaScript has such modules as
 * stubbed WASI. A metered module is inert, too, if metering has added no code. Throws a `RangeError` on a truncated module.
 */
export function isInert(bytes: Uint8Array): boolean {
  // The sections begin behind the header of eight bytes.
  let at = 8;
  const byte = (): number => {
    const value = bytes[at++];
    if (value === undefined) throw new RangeError('a truncated core module');
    return value;
  };
  const leb = (): number => {
    let result = 0;
    let shift = 0;
    for (;;) {
      const value = byte();
      result |= (value & 127) << shift;
      if (value < 128) return result >>> 0;
      shift += 7;
    }
  };
  while (at < bytes.length) {
    const id = byte();
    const size = leb();
    const end = at + size;
    if (id === CODE_SECTION) {
      const count = leb();
      for (let i = 0; i < count; i++) {
        const length = leb();
        const body = bytes.subarray(at, at + length);
        at += length;
        if (!isEmptyBody(body)) return false;
      }
      return true;
    }
    at = end;
  }
  // A module without a code section has no function that traps: it is no stub.
  return false;
}

/** True for a body of `end` (byte 0x0b) or `unreachable end` (bytes 0x00, 0x0b). A first byte of 0 declares no locals. */
function isEmptyBody(body: Uint8Array): boolean {
  if (body.length === 2) return body[0] === 0 && body[1] === 0x0b;
  return body.length === 3 && body[0] === 0 && body[1] === 0x00 && body[2] === 0x0b;
}

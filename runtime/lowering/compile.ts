import { flatten, layoutOf, type Signature, signatureOf } from '#wit/generate/layout.ts';
import type { WitFunction, WitInterface, WitType, WitWorld } from '#wit/generate/model.ts';
import { Emitter } from './emit.ts';
import type { FutureType, Guest } from './guest.ts';

/** A function of the platform that a guest may call. Its first argument is `Guest.context`, then the WIT arguments (a method's resource first). */
export type HostFunction = (context: never, ...args: never[]) => unknown;

/** Host functions by interface name (`queue`) and core name (`[method]queue.synchronize`). */
export type HostTable = Readonly<Record<string, Readonly<Record<string, HostFunction>>>>;

/** Makes the core function that one guest imports. */
export type Trampoline = (guest: Guest) => (...args: never[]) => unknown;

export interface CompiledWorld {
  /** By interface id (`pie:inferlet/queue@0.1.0`) and core name. */
  readonly functions: ReadonlyMap<string, Trampoline>;
  /** The future types of each function, in the order in which its signature names them: `[future-read-0]step` is the first of `step`. */
  readonly futures: ReadonlyMap<string, readonly FutureType[]>;
  /** Types of the futures that devices answer. */
  readonly deviceFutures: readonly FutureType[];
  /** Lifts what `[task-return]run` is called with. */
  readonly liftResult: (guest: Guest, ...flat: number[]) => unknown;
  /** Loads what a plain `run` export returns a pointer to. */
  readonly loadResult: (guest: Guest, address: number) => unknown;
  /** Bytes and alignment of that result. */
  readonly resultLayout: { readonly size: number; readonly align: number };
}

/** Whether any guest waits for an answer that only a device gives. Futures of nothing but success (`sleep`, `synchronize`) do not count. */
export function deviceBusy({ deviceFutures }: CompiledWorld): boolean {
  for (const type of deviceFutures) if (type.pending > 0) return true;
  return false;
}

/** Interfaces whose futures come from a device. */
const DEVICE_INTERFACES = new Set([
  'allocate',
  'output-text',
  'fused',
  'introspect',
  'kv-files',
  'input-image',
  'adapter',
]);

/** Name under which a core module's import is looked up. Patch versions of an interface are one. */
export const importKey = (module: string, name: string): string => `${module.replace(PATCH_VERSION, '')}#${name}`;

const PATCH_VERSION = /(?<=@\d+\.\d+)\.\d+$/;

/**
 * Compiles the lowering of a world against its host functions, once a process: one specialised function for each signature, made of
 * straight-line code. Throws when the host does not implement the whole world.
 */
export function compileWorld(world: WitWorld, host: HostTable): CompiledWorld {
  const resources: string[] = [];
  const resourceIndex = (interfaceName: string, resource: string): number => {
    const key = `${interfaceName}/${resource}`;
    const known = resources.indexOf(key);
    return known >= 0 ? known : resources.push(key) - 1;
  };
  const emitter = new Emitter(resourceIndex);
  const hostFunctions: HostFunction[] = [];
  const entries: string[] = [];
  const futuresOf = new Map<string, number[]>();
  const deviceFutures = new Set<number>();

  const hostFunction = (entry: WitInterface, coreName: string): string => {
    const fn: HostFunction | undefined = host[entry.name]?.[coreName];
    if (fn === undefined) throw new TypeError(`the host does not implement ${entry.name} ${coreName}`);
    return `H[${hostFunctions.push(fn) - 1}]`;
  };
  for (const entry of world.imports) {
    for (const fn of [...entry.functions, ...entry.resources.flatMap((resource) => resource.functions)]) {
      const key = importKey(entry.id, fn.coreName);
      entries.push(
        `[${JSON.stringify(key)},${trampolineSource(emitter, entry, fn, hostFunction(entry, fn.coreName))}]`,
      );
      const payloads = futureTypes(fn);
      futuresOf.set(
        key,
        payloads.map((type) => emitter.future(type)),
      );
      if (DEVICE_INTERFACES.has(entry.name)) {
        for (const type of payloads) if (!isBareSuccess(type)) deviceFutures.add(emitter.future(type));
      }
    }
    for (const resource of entry.resources) {
      const name = `[resource-drop]${resource.name}`;
      const drop = hostFunction(entry, name);
      const index = resourceIndex(entry.name, resource.name);
      entries.push(
        `[${JSON.stringify(importKey(entry.id, name))},g=>h=>{g.enter();${drop}(g.context,g.takeResource(h,${index}));}]`,
      );
    }
  }

  const [run] = world.exports;
  if (!run?.result) throw new TypeError('the world exports no function with a result');
  const flat = flatten(run.result).map((_, i) => `f${i}`);
  const liftResult = `(g,${flat.join(',')})=>${emitter.lift(run.result, flat)}`;
  const loadResult = `(g,p)=>${emitter.load(run.result, 'p')}`;
  // Storing may meet futures that nothing named before; the list grows while it is walked.
  const stores: string[] = [];
  for (let i = 0; i < emitter.futures.length; i++) {
    const type = emitter.futures[i];
    if (type) stores.push(`(g,p,v)=>{${emitter.store(type, 'p', 'v')}}`);
  }
  const source = `'use strict';
const bits=new DataView(new ArrayBuffer(8));
const f32of=i=>{bits.setInt32(0,i);return bits.getFloat32(0);};
const f64of=i=>{bits.setBigInt64(0,i);return bits.getFloat64(0);};
${emitter.helpers}
return{functions:[${entries.join(',\n')}],stores:[${stores.join(',\n')}],liftResult:${liftResult},loadResult:${loadResult}};`;

  const futureTypesByIndex: FutureType[] = [];
  const compiled = new Function('H', 'F', source)(hostFunctions, futureTypesByIndex) as {
    functions: [string, Trampoline][];
    stores: FutureType['store'][];
    liftResult: CompiledWorld['liftResult'];
    loadResult: CompiledWorld['loadResult'];
  };
  emitter.futures.forEach((type, id) => {
    const store = compiled.stores[id];
    if (store !== undefined) futureTypesByIndex.push({ id, ...layoutOf(type), store, pending: 0 });
  });
  return {
    functions: new Map(compiled.functions),
    futures: new Map(
      [...futuresOf].map(([key, ids]) => [key, ids.flatMap((id) => futureTypesByIndex[id] ?? [])] as const),
    ),
    deviceFutures: futureTypesByIndex.filter(({ id }) => deviceFutures.has(id)),
    liftResult: compiled.liftResult,
    loadResult: compiled.loadResult,
    resultLayout: layoutOf(run.result),
  };
}

function trampolineSource(emitter: Emitter, entry: WitInterface, fn: WitFunction, host: string): string {
  const signature = signatureOf(fn, entry.name);
  const core: string[] = [];
  const lines = ['g.enter();'];
  const values = signature.spilled
    ? spilled(emitter, signature, core, lines)
    : flatArguments(emitter, signature, core, lines);
  if (signature.returnPointer) core.push('r');
  const call = `${host}(g.context${values.map((value) => `,${value}`).join('')})`;
  if (fn.result === null) lines.push(`${call};`);
  else if (signature.returnPointer) {
    const { size, align } = layoutOf(fn.result);
    lines.push(`r=g.range(r,${size},${align});const v=${call};`, emitter.store(fn.result, 'r', 'v'));
  } else lines.push(`return ${emitter.lowerFlat(fn.result, call)};`);
  return `g=>(${core.join(',')})=>{${lines.join('')}}`;
}

function flatArguments(emitter: Emitter, signature: Signature, core: string[], lines: string[]): string[] {
  return signature.params.map((type, index) => {
    const flat = flatten(type).map((_, i) => `a${index}_${i}`);
    core.push(...flat);
    lines.push(`const v${index}=${emitter.lift(type, flat)};`);
    return `v${index}`;
  });
}

function spilled(emitter: Emitter, signature: Signature, core: string[], lines: string[]): string[] {
  const tuple: WitType = { kind: 'tuple', items: signature.params };
  const { size, align } = layoutOf(tuple);
  core.push('p');
  lines.push(`p=g.range(p,${size},${align});const t=${emitter.load(tuple, 'p')};`);
  return signature.params.map((_, index) => `t[${index}]`);
}

/** Whether a payload says no more than that something was done: a timer's and a device's are then one type. */
const isBareSuccess = (type: WitType): boolean => type.kind === 'result' && type.ok === null;

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

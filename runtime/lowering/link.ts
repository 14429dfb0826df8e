import type { Entry } from './execution.ts';
import type { Location, Plan, Source } from './plan.ts';

/** Finds the platform function behind an import (`pie:inferlet/queue@0.1.0`, `[method]queue.synchronize`). */
export type Resolve = (module: string, name: string) => WebAssembly.ImportValue;

export interface Linked {
  readonly entry: Entry;
  readonly memory: WebAssembly.Memory;
  readonly realloc: ((old: number, oldSize: number, align: number, size: number) => number) | null;
}

export interface LinkOptions {
  readonly plan: Plan;
  /** Compiled core modules by file name. */
  readonly modules: ReadonlyMap<string, WebAssembly.Module>;
  readonly resolve: Resolve;
  /** Called with each core instance before the next one is made. */
  readonly onInstance: (instance: WebAssembly.Instance) => void;
  /** Called with each mutable global that is made for the component. */
  readonly onGlobal: (global: WebAssembly.Global) => void;
  /** Returns the function for an import that the plan maps to a trap: it traps, or stands in for WASI's standard error. */
  readonly trap: (module: string, name: string) => WebAssembly.ImportValue;
}

/** An object without a prototype: the guest chooses the keys, and every key, even `__proto__`, is a plain property. */
const table = <T>(): Record<string, T> => Object.create(null) as Record<string, T>;

/** Instantiates a component by its plan. Throws the errors of the guest's start functions. */
export function link({ plan, modules, resolve, onInstance, onGlobal, trap }: LinkOptions): Linked {
  const instances: WebAssembly.Instance[] = [];
  const globals: WebAssembly.Global[] = [];
  const exported = ({ instance, name }: Location): unknown => {
    const value = instances[instance]?.exports[name];
    if (value === undefined) throw new TypeError(`instance ${instance} of the plan has no export ${name}`);
    return value;
  };
  const importValue = (source: Source, module: string, name: string): WebAssembly.ImportValue => {
    switch (source.kind) {
      case 'export':
        return exported(source);
      case 'host':
        return resolve(module, name);
      case 'trap':
        return trap(module, name);
      case 'global': {
        let global = globals[source.id];
        if (!global) {
          const initial = source.type === 'i64' ? BigInt(source.value) : source.value;
          global = new WebAssembly.Global({ value: source.type, mutable: source.mutable }, initial as never);
          globals[source.id] = global;
          if (source.mutable) onGlobal(global);
        }
        return global;
      }
    }
  };
  for (const planned of plan.instances) {
    const module = modules.get(planned.module);
    if (!module) throw new TypeError(`the program has no module ${planned.module}, which its plan names`);
    const imports = table<Record<string, WebAssembly.ImportValue>>();
    for (const item of planned.imports) {
      const fields = imports[item.module] ?? table();
      imports[item.module] = fields;
      fields[item.name] = importValue(item.source, item.module, item.name);
    }
    const instance = new WebAssembly.Instance(module, imports);
    instances.push(instance);
    onInstance(instance);
  }
  const { entry } = plan;
  return {
    entry: {
      form: entry.form,
      run: exported(entry.run) as Entry['run'],
      callback: entry.callback ? (exported(entry.callback) as Entry['callback']) : null,
    },
    memory: exported(entry.memory) as unknown as WebAssembly.Memory,
    realloc: entry.realloc ? (exported(entry.realloc) as unknown as Linked['realloc']) : null,
  };
}

import type { WitFunction, WitInterface, WitWorld } from '#wit/generate/model.ts';
import type { HostFunction, HostTable } from '../lowering/compile.ts';
import type { Ending } from '../lowering/execution.ts';
import { Fuel, GO_ON, TRAP } from '../lowering/fuel.ts';
import { releaseOf } from '../lowering/future-release.ts';
import { Guest } from '../lowering/guest.ts';
import type { JcoInstantiate } from '../lowering/record.ts';
import { GuestTrap } from '../lowering/trap.ts';

/**
 * A component for jco's own glue: the oracle of the lowering's tests and the reference of its benchmark. No production
 * code imports this file.
 */
export interface GlueProgram {
  readonly instantiate: JcoInstantiate;
  readonly modules: ReadonlyMap<string, WebAssembly.Module>;
}

type AnyFunction = (...args: unknown[]) => unknown;

/** A single-use instance behind jco's glue, in the shape of an `Execution`. */
export interface GlueExecution {
  readonly guest: Guest;
  start(input: string): Promise<Ending>;
  dispose(): void;
}

/** Makes an instance through jco's glue. Nothing limits the instance but its fuel checks, which end it after `dispose`. */
export async function instantiateGlue(program: GlueProgram, world: WitWorld, host: HostTable): Promise<GlueExecution> {
  const guest = new Guest();
  const fuel: Fuel = new Fuel({
    ask: () => {
      fuel.refill();
      return guest.dead ? TRAP : GO_ON;
    },
    wait: () => Promise.resolve(),
    resumed: () => GO_ON,
  });
  let memory: WebAssembly.Memory | null = null;
  const root = (await program.instantiate(
    (path) => {
      const module = program.modules.get(path);
      if (!module) throw new TypeError(`the artifact has no ${path}`);
      return module;
    },
    glueImports(world, host, guest),
    (module, imports) => {
      const instance = new WebAssembly.Instance(module, imports as WebAssembly.Imports);
      fuel.adopt(instance.exports);
      for (const value of Object.values(instance.exports)) if (value instanceof WebAssembly.Memory) memory ??= value;
      return pinDuringAllocation(instance, guest);
    },
  )) as { run(input: string): Promise<string> };
  if (memory) guest.attach(memory, null);
  return {
    guest,
    start: async (input) => {
      try {
        return { kind: 'returned', ok: true, text: await root.run(input) };
      } catch (error) {
        if (error instanceof Error && 'payload' in error) {
          return { kind: 'returned', ok: false, text: String(error.payload) };
        }
        return { kind: 'trapped', trap: new GuestTrap('trap', String(error), { cause: error }) };
      }
    },
    dispose: () => guest.kill(new GuestTrap('terminated', 'has ended')),
  };
}

/** The glue calls a guest's allocator from JavaScript, where the guest must not be suspended. */
function pinDuringAllocation(instance: WebAssembly.Instance, guest: Guest): WebAssembly.Instance {
  const allocate = instance.exports.cabi_realloc;
  if (typeof allocate !== 'function') return instance;
  const pinned = (...args: number[]): unknown => {
    guest.pinned++;
    try {
      return (allocate as AnyFunction)(...args);
    } finally {
      guest.pinned--;
    }
  };
  return { exports: { ...instance.exports, cabi_realloc: pinned } } as WebAssembly.Instance;
}

/** The host table in the shape of jco's glue: for each interface id, with and without its version, an object of functions and classes. */
function glueImports(world: WitWorld, host: HostTable, guest: Guest): Record<string, unknown> {
  const imports: Record<string, unknown> = {};
  const classes: ResourceClasses = new Map();
  for (const entry of world.imports) {
    const object = interfaceObject(entry, host[entry.name] ?? {}, guest, classes);
    imports[entry.id] = object;
    imports[entry.id.replace(/@.*$/, '')] = object;
  }
  return imports;
}

/** Classes of the resources, by `interface/name`: the glue passes a guest each host object as an instance of its resource's class. */
type ResourceClasses = Map<string, { readonly prototype: object }>;

function interfaceObject(
  entry: WitInterface,
  functions: Readonly<Record<string, HostFunction>>,
  guest: Guest,
  classes: ResourceClasses,
): Record<string, unknown> {
  const object: Record<string, unknown> = {};
  for (const fn of entry.functions) object[fn.js] = glueFunction(fn, functions[fn.coreName], guest, classes);
  for (const resource of entry.resources) {
    const made = resourceClass(resource.name, resource.functions, functions, guest, classes);
    classes.set(`${entry.name}/${resource.name}`, made);
    object[resource.js] = made;
  }
  return object;
}

/** Property of a resource's instance that holds the host's object. */
const VALUE = Symbol('value');

interface ResourceInstance {
  readonly [VALUE]: unknown;
}

function resourceClass(
  name: string,
  members: readonly WitFunction[],
  functions: Readonly<Record<string, HostFunction>>,
  guest: Guest,
  classes: ResourceClasses,
): { readonly prototype: object } {
  const construct = functions[`[constructor]${name}`] as AnyFunction | undefined;
  const drop = functions[`[resource-drop]${name}`] as AnyFunction | undefined;
  class Resource implements ResourceInstance {
    readonly [VALUE]: unknown;
    constructor(...args: unknown[]) {
      guest.enter();
      this[VALUE] = construct?.(guest.context, ...args.map(unwrap));
    }
    [Symbol.dispose](): void {
      if (!guest.dead) drop?.(guest.context, this[VALUE]);
    }
  }
  for (const member of members) {
    if (member.kind !== 'method') continue;
    const call = glueFunction(member, functions[member.coreName], guest, classes);
    Object.defineProperty(Resource.prototype, member.js, {
      value(this: Resource, ...args: unknown[]) {
        return call(this, ...args);
      },
    });
  }
  return Resource;
}

const unwrap = (value: unknown): unknown =>
  typeof value === 'object' && value !== null && VALUE in value ? value[VALUE] : value;

/** A failed result, thrown as the glue expects it. */
class ResultError extends Error {
  readonly payload: unknown;
  constructor(payload: unknown) {
    super('a failed result');
    this.payload = payload;
  }
}

function glueFunction(
  fn: WitFunction,
  call: HostFunction | undefined,
  guest: Guest,
  classes: ResourceClasses,
): AnyFunction {
  const { result } = fn;
  return (...args) => {
    guest.enter();
    const value = (call as AnyFunction)(guest.context, ...args.map(unwrap));
    if (result?.kind === 'u64' || result?.kind === 's64') return BigInt(value as number | bigint);
    if (result?.kind === 'own') {
      const { prototype = null } = classes.get(`${result.interface}/${result.resource}`) ?? {};
      return Object.create(prototype, { [VALUE]: { value } }) as unknown;
    }
    if (result?.kind === 'future') return releaseOnSettle(value as Promise<unknown>);
    if (result?.kind !== 'result') return value;
    const outcome = value as { tag: 'ok' | 'err'; val: unknown };
    if (outcome.tag === 'err') throw new ResultError(outcome.val);
    return outcome.val;
  };
}

/** The glue takes a future's value as soon as the future settles, so the future then counts as read. The glue does not report dropped futures. */
function releaseOnSettle(promise: Promise<unknown>): Promise<unknown> {
  const release = releaseOf(promise);
  return release ? promise.finally(() => release(true)) : promise;
}

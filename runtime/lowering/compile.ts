import { importKey, type Lowering } from '#wit/generate/lowering/lowered.ts';
import { HOST_FUNCTIONS, type HostFunctions, lower } from '#wit/generated/lowering.ts';
import type { Guest } from './guest.ts';
import type { CoreFunction } from './intrinsics.ts';

export { importKey };

/** A platform function that a guest may call. Its first argument is `Guest.context`, then the WIT arguments (a method's resource first). */
export type HostFunction = (context: never, ...args: never[]) => unknown;

/** Host functions by interface name (`queue`) and core name (`[method]queue.synchronize`). */
export type HostTable = Readonly<Record<string, Readonly<Record<string, HostFunction>>>>;

/** Makes the core function for one guest's import. */
export type Trampoline = (guest: Guest) => CoreFunction;

/** The generated lowering (`Lowering`) for the guests of this runtime. */
export interface CompiledWorld extends Omit<Lowering, 'functions'> {
  /** Functions by interface id and core name, as `importKey` joins them. */
  readonly functions: ReadonlyMap<string, Trampoline>;
}

/** Binds the contract's lowering to its host functions, once per process. Throws when the host does not implement the whole contract. */
export function compileWorld(host: HostTable): CompiledWorld {
  for (const [interfaceName, coreName] of HOST_FUNCTIONS) {
    if (typeof host[interfaceName]?.[coreName] !== 'function') {
      throw new TypeError(`the host does not implement ${interfaceName} ${coreName}`);
    }
  }
  return lower(host as unknown as HostFunctions);
}

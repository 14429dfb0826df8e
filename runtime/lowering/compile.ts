import { importKey, type LoweredFuture } from '#wit/generate/lowering/lowered.ts';
import { HOST_FUNCTIONS, type HostFunctions, lower } from '#wit/generated/lowering.ts';
import type { FutureType, Guest } from './guest.ts';
import type { CoreFunction } from './intrinsics.ts';

export { importKey };

/** A function of the platform that a guest may call. Its first argument is `Guest.context`, then the WIT arguments (a method's resource first). */
export type HostFunction = (context: never, ...args: never[]) => unknown;

/** Host functions by interface name (`queue`) and core name (`[method]queue.synchronize`). */
export type HostTable = Readonly<Record<string, Readonly<Record<string, HostFunction>>>>;

/** Makes the core function that one guest imports. */
export type Trampoline = (guest: Guest) => CoreFunction;

/** The generated lowering (`Lowering`), over the guests of this runtime. */
export interface CompiledWorld {
  /** By interface id (`pie:inferlet/queue@0.1.0`) and core name. */
  readonly functions: ReadonlyMap<string, Trampoline>;
  /** The future types of each function, in the order in which its signature names them: `[future-read-0]step` is the first of `step`. */
  readonly futures: ReadonlyMap<string, readonly FutureType[]>;
  /** Types of the futures that devices answer. */
  readonly deviceFutures: readonly LoweredFuture[];
  /** Lifts what `[task-return]run` is called with. */
  readonly liftResult: (guest: Guest, ...flat: number[]) => unknown;
  /** Loads what a plain `run` export returns a pointer to. */
  readonly loadResult: (guest: Guest, address: number) => unknown;
  /** Bytes and alignment of that result. */
  readonly resultLayout: { readonly size: number; readonly align: number };
}

/** Binds the contract's lowering to its host functions, once a process. Throws when the host does not implement the whole contract. */
export function compileWorld(host: HostTable): CompiledWorld {
  for (const [interfaceName, coreName] of HOST_FUNCTIONS) {
    if (typeof host[interfaceName]?.[coreName] !== 'function') {
      throw new TypeError(`the host does not implement ${interfaceName} ${coreName}`);
    }
  }
  return lower(host as unknown as HostFunctions);
}

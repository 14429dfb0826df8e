import { blockingImport } from './blocking.ts';
import { type CompiledWorld, importKey } from './compile.ts';
import { Execution, type ExecutionOptions } from './execution.ts';
import { type CoreFunction, futureIntrinsic, parseFutureIntrinsic, rootIntrinsic } from './intrinsics.ts';
import { link } from './link.ts';
import type { Plan } from './plan.ts';
import { stderrStub } from './stderr.ts';

/** A component ready for instantiation: its plan and its compiled core modules by file name. */
export interface Program {
  readonly plan: Plan;
  readonly modules: ReadonlyMap<string, WebAssembly.Module>;
}

/**
 * Makes an instance of a program, whose imports are the host functions of `world`. Throws when a start function of the guest traps.
 * The instance runs when `start` is called; `guest.context` must be set before.
 */
export function instantiate(program: Program, world: CompiledWorld, options: ExecutionOptions): Execution {
  const execution = new Execution(world, options);
  const { guest } = execution;
  execution.instantiate(() => {
    const linked = link({
      plan: program.plan,
      modules: program.modules,
      resolve: (module, name) => resolve(execution, world, module, name),
      onInstance: ({ exports }) => {
        execution.fuel.adopt(exports);
        execution.state.add(exports);
      },
      onGlobal: (global) => execution.state.addGlobal(global),
      trap: (module, name) => {
        if (module === 'actual') return unreachable;
        const refuse = () => {
          guest.enter();
          return guest.trap(`the inferlet called ${module} ${name}, which no inferlet is given`);
        };
        return stderrStub(guest, module, name) ?? refuse;
      },
    });
    guest.attach(linked.memory, linked.realloc);
    return linked.entry;
  });
  return execution;
}

/** Fills slots of a function table that no import needs. `bypassShims` in `record.ts` explains these slots and the module `actual`. */
const unreachable = (): never => {
  throw new WebAssembly.RuntimeError('unreachable');
};

/** Returns the function for an import: a host function, an intrinsic of the canonical ABI, or a function that traps. */
function resolve(execution: Execution, world: CompiledWorld, module: string, name: string): WebAssembly.ImportValue {
  const { guest } = execution;
  const make = world.functions.get(importKey(module, name));
  const fn = make ? make(guest) : intrinsic(execution, world, module, name);
  if (fn) return typeof fn === 'function' ? (fn as WebAssembly.ImportValue) : blockingImport(fn, execution.fuel);
  return () => {
    guest.enter();
    return guest.trap(`the contract has no ${module} ${name}`);
  };
}

/** Returns an intrinsic of the canonical ABI for futures, waits and tasks; null for an unknown name. */
function intrinsic(execution: Execution, world: CompiledWorld, module: string, name: string): CoreFunction | null {
  const future = parseFutureIntrinsic(name);
  if (!future) return rootIntrinsic(execution.guest, execution, name);
  const type = world.futures.get(importKey(module, future.of))?.[future.index];
  return type ? futureIntrinsic(execution.guest, execution, future.operation, future.async, type) : null;
}

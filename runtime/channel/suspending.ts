import { flatten, signatureOf } from '#wit/generate/layout.ts';
import { CHANNEL_CALLS } from '#wit/generated/channel.ts';
import { world as contract } from '#wit/generated/world.ts';
import { type CompiledWorld, importKey, type Trampoline } from '../lowering/compile.ts';
import { AnswerPending, type SandboxInvocation } from './sandbox-invocation.ts';

/**
 * A compiled world whose synchronous calls to the runtime suspend the guest until the answer arrives. The other imports stay unchanged, because
 * V8 suspends the guest at every suspending import, even at one that returns at once.
 *
 * A trampoline lifts the arguments, makes the call and stores the result. Its first run sends the call and throws `AnswerPending`; its second
 * run, after the wait, finds the answer. The arguments cannot change in between, because the guest's only stack is suspended.
 */
export function suspendingWorld(world: CompiledWorld): CompiledWorld {
  const waits = waitingCalls();
  return {
    ...world,
    functions: new Map(
      [...world.functions].map(([key, make]) => {
        const shape = waits.get(key);
        return [key, shape === undefined ? make : suspending(make, shape)] as const;
      }),
    ),
  };
}

/** Numbers of core values that a call takes and returns. */
interface Shape {
  readonly params: number;
  readonly results: 0 | 1;
}

function suspending(make: Trampoline, shape: Shape): Trampoline {
  return (guest) => {
    const trampoline = make(guest);
    if (typeof trampoline !== 'function') throw new TypeError('this function suspends the guest already');
    const run = trampoline as (...core: number[]) => unknown;
    let pending = false;
    // Result of a call that was answered at once.
    let value: unknown;
    return {
      ...shape,
      begin: (...core) => {
        try {
          value = run(...core);
        } catch (error) {
          if (!(error instanceof AnswerPending)) throw error;
          pending = true;
        }
        return pending;
      },
      wait: () => (guest.context as SandboxInvocation).suspend(),
      end: (...core) => {
        if (!pending) return value;
        pending = false;
        // Both runs count as one call of the guest.
        guest.calls--;
        return run(...core);
      },
    };
  };
}

/** Synchronous calls to the runtime, by the key of their import. */
function waitingCalls(): ReadonlyMap<string, Shape> {
  const found = new Map<string, Shape>();
  for (const call of CHANNEL_CALLS) {
    if (call.answering !== 'waits') continue;
    const entry = contract.imports.find(({ name }) => name === call.interface);
    const functions = entry && [...entry.functions, ...entry.resources.flatMap((resource) => resource.functions)];
    const fn = functions?.find(({ coreName }) => coreName === call.name);
    if (!entry || !fn) throw new TypeError(`the contract has no ${call.interface} ${call.name}`);
    const signature = signatureOf(fn, entry.name);
    const flat = signature.spilled ? (['i32'] as const) : signature.params.flatMap((type) => flatten(type));
    const answer = signature.returnPointer || !fn.result ? [] : flatten(fn.result);
    if (answer.length > 1 || [...flat, ...answer].some((type) => type !== 'i32')) {
      throw new TypeError(
        `${call.interface} ${call.name} cannot suspend its guest: only i32 parameters and at most one i32 result can`,
      );
    }
    found.set(importKey(entry.id, call.name), {
      params: flat.length + (signature.returnPointer ? 1 : 0),
      results: answer.length === 0 ? 0 : 1,
    });
  }
  return found;
}

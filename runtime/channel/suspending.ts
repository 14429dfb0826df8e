import { flatten, signatureOf } from '#wit/generate/layout.ts';
import { CHANNEL_CALLS } from '#wit/generated/channel.ts';
import { world as contract } from '#wit/generated/world.ts';
import { type CompiledWorld, importKey, type Trampoline } from '../lowering/compile.ts';
import { AnswerPending, type SandboxInvocation } from './sandbox-invocation.ts';

/**
 * A compiled world whose synchronous calls to the runtime suspend the guest until the answer arrives. The other imports stay unchanged,
 * since V8 suspends at a suspending import even when it returns at once.
 *
 * The lowering lifts, calls and stores in one straight line. The first pass of that line sends the call and stops there; the second pass,
 * after the wait, finds the answer. The arguments cannot change in between, because the guest's only stack is suspended.
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
    const line = make(guest);
    if (typeof line !== 'function') throw new TypeError('this function suspends the guest already');
    const pass = line as (...core: number[]) => unknown;
    let pending = false;
    // Result of a call that was answered at once.
    let value: unknown;
    return {
      ...shape,
      begin: (...core) => {
        try {
          value = pass(...core);
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
        // Both passes count as one call of the guest.
        guest.calls--;
        return pass(...core);
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
        `${call.interface} ${call.name} takes or answers more than integers of 32 bits, so it cannot wait`,
      );
    }
    found.set(importKey(entry.id, call.name), {
      params: flat.length + (signature.returnPointer ? 1 : 0),
      results: answer.length === 0 ? 0 : 1,
    });
  }
  return found;
}

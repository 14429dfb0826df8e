import type { Duplex } from 'node:stream';
import { flatten, signatureOf } from '#wit/generate/layout.ts';
import { CHANNEL_CALLS, readLifecycleOpening } from '#wit/generated/channel.ts';
import { world as contract, world } from '#wit/generated/world.ts';
import {
  type CompiledWorld,
  type HostFunction,
  type HostTable,
  importKey,
  type Trampoline,
} from '../lowering/compile.ts';
import { callNumber, decodeControl, encodeControl, FINGERPRINT } from './calls.ts';
import { Channel, type Lane } from './channel.ts';
import { MessageReader } from './codec.ts';
import { KIND } from './frames.ts';
import { ChannelFault } from './limits.ts';
import { AnswerPending, SandboxInvocation } from './sandbox-invocation.ts';
import { SharedThread } from './shared-thread.ts';

export interface SandboxEndOptions {
  /** Called when the runtime begins an invocation; attaches an owner to it. */
  readonly opened: (invocation: SandboxInvocation) => void;
  /** Called with the runtime's control messages. */
  readonly control: (description: unknown, body: Buffer) => void;
  /** Called once, when the channel has ended and each invocation has been closed. */
  readonly lost: (fault: ChannelFault) => void;
}

/** The sandbox's end of its channel to the runtime. */
export class SandboxEnd {
  readonly #channel: Channel;
  readonly #options: SandboxEndOptions;
  readonly #invocations = new Set<SandboxInvocation>();
  readonly #control: Lane;

  constructor(stream: Duplex, options: SandboxEndOptions) {
    this.#options = options;
    this.#channel = new Channel(stream, {
      fingerprint: FINGERPRINT,
      // The sandbox's thread has only this channel. Turns still let timers and answers run between messages, each of which may run a guest.
      thread: new SharedThread(),
      unknown: (number, kind) => (kind === KIND.open ? this.#begin(number) : null),
      lost: (fault) => {
        for (const invocation of [...this.#invocations]) invocation.lost(fault);
        options.lost(fault);
      },
    });
    this.#control = this.#channel.open(0, {
      message: (_kind, payload) => {
        const { description, body } = decodeControl(payload);
        options.control(description, body);
      },
      signal: () => undefined,
    });
  }

  /** Sends a control message. */
  tell(description: unknown): void {
    if (!this.#channel.fault) this.#control.send(KIND.control, encodeControl(description));
  }

  /** Number of invocations that the runtime has not closed. */
  get invocations(): number {
    return this.#invocations.size;
  }

  /** True while frames of the runtime wait for the thread. */
  get isBehind(): boolean {
    return this.#channel.behind;
  }

  close(): void {
    this.#channel.close();
  }

  /** Makes a lane whose first message is the opening. */
  #begin(number: number): Lane {
    let invocation: SandboxInvocation | null = null;
    // Signals that arrived while the opening was incomplete.
    const earlySignals: { readonly kind: number; readonly payload: Buffer }[] = [];
    const lane = this.#channel.open(number, {
      message: (kind, payload) => {
        if (invocation) {
          invocation.message(kind, payload);
          return;
        }
        if (kind !== KIND.open)
          throw new ChannelFault('bad-frame', 'the runtime opened an invocation without an opening');
        const reader = new MessageReader(payload);
        const opening = readLifecycleOpening(reader);
        reader.end();
        invocation = new SandboxInvocation(lane, opening, (closed) => this.#invocations.delete(closed));
        this.#invocations.add(invocation);
        this.#options.opened(invocation);
        for (const signal of earlySignals) invocation.signal(signal.kind, signal.payload);
      },
      signal: (kind, payload) => {
        if (invocation) invocation.signal(kind, payload);
        else if (kind === KIND.close) lane.closed();
        else earlySignals.push({ kind, payload: Buffer.from(payload) });
      },
    });
    return lane;
  }
}

/** A function of the table, or of `local`. */
type SandboxFunction = (context: unknown, ...args: unknown[]) => unknown;

/**
 * Builds the table of a sandbox's host functions. It has the functions of `hostTable` in `runtime/host/table.ts`, but their context is a
 * {@link SandboxInvocation}. A call that the runtime answers is sent to the runtime over the channel. All other calls are answered by `local`.
 *
 * @param local functions that the sandbox answers itself
 * @throws TypeError when a function is neither in `local` nor among the calls of the channel
 */
export function sandboxTable(local: HostTable): HostTable {
  const tables = world.imports.map((imported) => {
    const methods = imported.resources.flatMap(({ functions }) => functions);
    const coreNames = [
      ...[...imported.functions, ...methods].map(({ coreName }) => coreName),
      ...imported.resources.map(({ name }) => `[resource-drop]${name}`),
    ];
    const functions = coreNames.map(
      (coreName) => [coreName, functionOf(local, imported.name, coreName) as unknown as HostFunction] as const,
    );
    return [imported.name, Object.fromEntries(functions)] as const;
  });
  return Object.fromEntries(tables);
}

function functionOf(local: HostTable, interfaceName: string, coreName: string): SandboxFunction {
  const number = callNumber(interfaceName, coreName);
  if (number !== undefined) return (context, ...args) => (context as SandboxInvocation).call(number, args);
  const fn = local[interfaceName]?.[coreName] as unknown as SandboxFunction | undefined;
  if (!fn) throw new TypeError(`the sandbox does not implement ${interfaceName} ${coreName}`);
  return fn;
}

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

import { type HandlerError, handlerError } from '#gpu-host/protocol/errors.ts';
import { unexpected } from '#runtime/unexpected.ts';
import {
  CHANNEL_CALLS,
  CHANNEL_RESOURCES,
  type LifecycleEnded,
  type LifecycleTrap,
  readLifecycleEnded,
  writeLifecycleCharge,
  writeLifecycleStop,
  writeLifecycleTrap,
} from '#wit/generated/channel.ts';
import { type Release, releaseOf } from '../lowering/future-release.ts';
import { GuestTrap } from '../lowering/trap.ts';
import { ANSWER, type hostCalls } from './calls.ts';
import type { Lane, LaneEvents } from './channel.ts';
import { type Handles, MessageReader, MessageWriter } from './codec.ts';
import { EventRelay } from './event-credit.ts';
import { KIND } from './frames.ts';
import { ChannelFault, MAX_NUMBERS, MAX_SANDBOX_ITEMS } from './limits.ts';

/** Outcome of an invocation in a sandbox. */
export type RemoteEnding =
  | { readonly tag: 'ended'; readonly ended: LifecycleEnded }
  /** A function of the host threw, or an answer could not be sent. */
  | { readonly tag: 'trapped'; readonly val: LifecycleTrap }
  /** The sandbox, or the channel to it, is gone. */
  | { readonly tag: 'sandbox-lost'; readonly fault: ChannelFault };

export interface RemoteGuestOptions {
  /** First argument of every host function: the invocation's `Inferlet`. */
  readonly context: unknown;
  /** Charges the guest for the time that a call took in this process. */
  readonly charge: (cpuMs: number) => void;
  /** Resolves to true when every event so far is in the log; to false when that cannot happen. Without `atOnce`, the log chooses when it writes. */
  readonly flushed: (atOnce: boolean) => Promise<boolean>;
  /** Called once when the invocation has ended; the owner then releases the context. Not called after a `close`. */
  readonly ended: (ending: RemoteEnding) => void;
}

interface Wiring extends RemoteGuestOptions {
  readonly calls: ReturnType<typeof hostCalls>;
  /** Counts the time that an answer took on this thread. */
  readonly spent: (ms: number) => void;
  /** Called when the invocation is over in this process. Its number stays taken until the sandbox has answered. */
  readonly closed: () => void;
}

/** Thread time that a guest must have used before it is charged, because each report of a charge to the sandbox takes time, too. */
const CHARGED_MS = 0.25;

/** A future that the guest holds. */
interface Future {
  answered: boolean;
  readonly release: Release | null;
}

/**
 * The runtime's side of one invocation in a sandbox: it takes the guest's calls, makes them with the invocation's context, and sends the answers.
 * The host's functions check rights and bounds as they do for a guest in this process.
 */
export class RemoteGuest implements LaneEvents {
  readonly #wiring: Wiring;
  readonly #resources = new ResourceTable();
  readonly #futures = new Map<number, Future>();
  readonly #writer = new MessageWriter();
  readonly #events: EventRelay;
  #lane: Lane | null = null;
  /** Largest number of a future so far. */
  #lastNumber = 0;
  #unchargedMs = 0;
  /** Number of host promises that have not settled, including those of dropped futures. */
  #unsettled = 0;
  /** True while the guest is suspended for an answer. */
  #isSuspended = false;
  #ended = false;
  #isClosed = false;

  constructor(wiring: Wiring) {
    this.#wiring = wiring;
    this.#events = new EventRelay({
      flushed: wiring.flushed,
      written: (bytes) => this.#reportWritten(bytes),
      pause: () => this.#lane?.inbound.pause(),
      resume: () => this.#lane?.inbound.resume(),
      failed: (error) => this.#fail(error),
    });
  }

  /** Number of futures and resources that the guest holds in the runtime. */
  get held(): number {
    return this.#futures.size + this.#resources.size;
  }

  attach(lane: Lane): void {
    this.#lane = lane;
  }

  begin(kind: number, payload: Buffer): void {
    this.#lane?.send(kind, payload);
  }

  /** Asks the guest to stop: its timers complete with the reason, and `is-cancelled` returns true. */
  stop(reason: HandlerError): void {
    if (this.#isClosed) return;
    writeLifecycleStop(this.#writer, { reason });
    this.#lane?.signalBehindOpening(KIND.stop, this.#writer.take());
  }

  /** Charges the guest CPU time that the platform spent for it. */
  charge(cpuMs: number): void {
    if (this.#isClosed) return;
    writeLifecycleCharge(this.#writer, { cpuMs });
    this.#lane?.signalBehindOpening(KIND.charge, this.#writer.take());
  }

  /** Tells the sandbox the time left until the guest's new deadline. It is a duration and no clock time, because a wall clock may jump. */
  deadline(leftMs: number): void {
    if (this.#isClosed) return;
    this.#writer.u64(Math.floor(leftMs));
    this.#lane?.signalBehindOpening(KIND.deadline, this.#writer.take());
  }

  /** Ends the invocation at once; its number stays taken until the sandbox has answered. Does not call `ended`. */
  close(trap: LifecycleTrap = { code: 'terminated', message: 'the invocation has ended' }): void {
    if (this.#isClosed) return;
    this.#finish();
    writeLifecycleTrap(this.#writer, { ...trap, message: trap.message.slice(0, MAX_REASON_CHARACTERS) });
    this.#lane?.close(this.#writer.take());
  }

  /** Called when the channel is gone. */
  lost(fault: ChannelFault): void {
    if (this.#isClosed) return;
    this.#finish();
    this.#end({ tag: 'sandbox-lost', fault });
  }

  message(kind: number, payload: Buffer): void {
    if (this.#ended) throw new ChannelFault('bad-frame', 'the sandbox sent a message behind the end of its invocation');
    const fromMs = performance.now();
    try {
      this.#take(kind, payload);
    } finally {
      this.#countTime(performance.now() - fromMs);
    }
  }

  #take(kind: number, payload: Buffer): void {
    const reader = new MessageReader(payload, this.#resources, MAX_SANDBOX_ITEMS);
    switch (kind) {
      case KIND.call:
        this.#handleCall(reader);
        return;
      case KIND.release: {
        const number = reader.u32();
        const isRead = reader.u8() !== 0;
        reader.end();
        this.#release(number, isRead);
        return;
      }
      case KIND.ended: {
        const ended = readLifecycleEnded(reader);
        reader.end();
        this.close();
        this.#end({ tag: 'ended', ended });
        return;
      }
      default:
        throw new ChannelFault('bad-frame', `the sandbox sent a message of kind ${kind}`);
    }
  }

  signal(kind: number): void {
    throw new ChannelFault('bad-frame', `the sandbox sent a signal of kind ${kind}`);
  }

  #handleCall(reader: MessageReader): void {
    const index = reader.u16();
    const number = reader.u32();
    const call = CHANNEL_CALLS[index];
    const fn = this.#wiring.calls[index];
    if (!call || !fn)
      throw new ChannelFault('unknown-function', `the sandbox called function ${index}, which does not exist`);
    const args = call.readArguments(reader);
    reader.end();
    if (call.answering === 'waits' && this.#isSuspended) {
      throw new ChannelFault('too-much-in-flight', 'the sandbox made a second call that suspends its guest');
    }
    if (call.answering === 'future') this.#admit(number);
    if (call.answering === 'makes') this.#resources.check(number);
    const make = () => fn(this.#wiring.context, ...args);
    try {
      switch (call.answering) {
        case 'future':
          this.#beginFuture(number, make() as Promise<unknown>, call);
          return;
        case 'waits':
          this.#isSuspended = true;
          this.#answerWhen(number, make(), call);
          return;
        case 'makes':
          this.#resources.add(call.resource, number, make());
          return;
        case 'outbox':
          this.#events.take(args, make);
          return;
        default:
          make();
      }
    } catch (error) {
      if (error instanceof ChannelFault) throw error;
      this.#fail(error);
    }
  }

  #admit(number: number): void {
    if (number <= this.#lastNumber) {
      throw new ChannelFault('bad-number', `the sandbox used the number ${number} for a second call`);
    }
    this.#lastNumber = number;
    if (this.#futures.size >= MAX_NUMBERS) {
      throw new ChannelFault('too-much-in-flight', `an invocation holds more than ${MAX_NUMBERS} futures`);
    }
  }

  #beginFuture(number: number, promise: Promise<unknown>, call: (typeof CHANNEL_CALLS)[number]): void {
    const mark = this.#events.mark(call);
    const future: Future = { answered: false, release: releaseOf(promise) };
    this.#futures.set(number, future);
    // An honest guest may drop futures faster than they settle; the pause makes it wait until one has settled.
    this.#unsettled++;
    if (this.#unsettled === MAX_NUMBERS) this.#lane?.inbound.pause();
    const onSettled = () => {
      const wasPaused = this.#unsettled === MAX_NUMBERS;
      this.#unsettled--;
      if (wasPaused) this.#lane?.inbound.resume();
    };
    promise.then(
      (value) => {
        if (this.#futures.get(number) === future) {
          future.answered = true;
          if (!future.release) this.#futures.delete(number);
          this.#events.settled(mark, value);
          this.#answerLater(number, future.release ? ANSWER.kept : ANSWER.value, call, value);
        }
        onSettled();
      },
      (cause: unknown) => {
        onSettled();
        this.#fail(new GuestTrap('trap', 'a host promise was rejected', { cause }));
      },
    );
  }

  #answerWhen(number: number, value: unknown, call: (typeof CHANNEL_CALLS)[number]): void {
    if (!(value instanceof Promise)) {
      this.#isSuspended = false;
      this.#answer(number, ANSWER.value, call, value);
      return;
    }
    value.then(
      (answer) => {
        this.#isSuspended = false;
        this.#answerLater(number, ANSWER.value, call, answer);
      },
      (error: unknown) => this.#fail(error),
    );
  }

  /** Sends an answer some time after its call. `message` does not run then, so the time must be counted here. */
  #answerLater(number: number, flag: number, call: (typeof CHANNEL_CALLS)[number], value: unknown): void {
    const fromMs = performance.now();
    this.#answer(number, flag, call, value);
    const tookMs = performance.now() - fromMs;
    this.#wiring.spent(tookMs);
    this.#countTime(tookMs);
  }

  /** Counts time for which this thread worked for the guest. */
  #countTime(ms: number): void {
    this.#unchargedMs += ms;
    if (this.#unchargedMs < CHARGED_MS || this.#ended) return;
    const usedMs = this.#unchargedMs;
    this.#unchargedMs = 0;
    this.#wiring.charge(usedMs);
  }

  #answer(number: number, flag: number, call: (typeof CHANNEL_CALLS)[number], value: unknown): void {
    if (this.#isClosed) return;
    const head = () => {
      this.#writer.u32(number);
      this.#writer.u8(flag);
    };
    try {
      head();
      call.writeResult(this.#writer, value);
    } catch (error) {
      // Without the reset, the next message would begin with the bytes of this one.
      this.#writer.reset();
      if (!(error instanceof ChannelFault) || !call.fallible) {
        this.#fail(error);
        return;
      }
      head();
      call.writeResult(this.#writer, { tag: 'err', val: handlerError('limit-exceeded', error.message) });
    }
    this.#send(this.#writer.take());
  }

  #release(number: number, isRead: boolean): void {
    const future = this.#futures.get(number);
    if (!future) {
      if (number > this.#lastNumber)
        throw new ChannelFault('bad-number', `the sandbox dropped future ${number}, which it does not hold`);
      // The runtime has answered the call while this message was on its way.
      return;
    }
    this.#futures.delete(number);
    if (!future.answered) {
      this.#writer.u32(number);
      this.#writer.u8(ANSWER.gone);
      this.#send(this.#writer.take());
    }
    future.release?.(isRead && future.answered);
  }

  #send(payload: Buffer): void {
    try {
      this.#lane?.send(KIND.answer, payload);
    } catch (error) {
      this.#fail(error);
    }
  }

  #reportWritten(bytes: number): void {
    if (this.#isClosed) return;
    this.#writer.u32(bytes);
    this.#lane?.signalBehindOpening(KIND.written, this.#writer.take());
  }

  /** Called when a host function threw or its answer cannot be sent: the guest traps, as a guest in this process would. */
  #fail(error: unknown): void {
    if (this.#isClosed) return;
    const trap = {
      code: error instanceof GuestTrap ? error.code : 'trap',
      message: error instanceof GuestTrap || error instanceof ChannelFault ? error.message : unexpected(error),
    };
    this.close(trap);
    this.#end({ tag: 'trapped', val: trap });
  }

  #end(ending: RemoteEnding): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#wiring.ended(ending);
  }

  #finish(): void {
    this.#isClosed = true;
    this.#futures.clear();
    this.#resources.clear();
    this.#events.end();
    this.#wiring.closed();
  }
}

/** Maximum length of the reason for a `close`. A `close` is a signal and needs no credit, so no other rule bounds its size. */
const MAX_REASON_CHARACTERS = 4096;

interface HeldResource {
  readonly resource: number;
  readonly value: unknown;
}

/** Resources that one invocation holds in the runtime, under numbers that its sandbox chose. A number is valid only for its own kind. */
export class ResourceTable implements Handles {
  readonly #entries = new Map<number, HeldResource>();

  get size(): number {
    return this.#entries.size;
  }

  /** @throws ChannelFault when a new resource cannot have this number */
  check(number: number): void {
    if (this.#entries.has(number)) {
      throw new ChannelFault('bad-number', `the sandbox used the number ${number}, which it holds, for a new resource`);
    }
    if (this.#entries.size >= MAX_NUMBERS) {
      throw new ChannelFault('too-much-in-flight', `an invocation holds more than ${MAX_NUMBERS} resources`);
    }
  }

  /** Adds a resource of kind `resource`, an index of `CHANNEL_RESOURCES`. Call `check` first. */
  add(resource: number, number: number, value: unknown): void {
    this.#entries.set(number, { resource, value });
  }

  /** @throws ChannelFault `bad-number` when `number` is not a resource of this kind */
  get(resource: number, number: number): unknown {
    const entry = this.#entries.get(number);
    if (entry?.resource === resource) return entry.value;
    const kind = CHANNEL_RESOURCES[resource];
    throw new ChannelFault(
      'bad-number',
      `the sandbox named ${number}, which is not the number of a ${kind} in this invocation`,
    );
  }

  take(resource: number, number: number): unknown {
    const value = this.get(resource, number);
    this.#entries.delete(number);
    return value;
  }

  clear(): void {
    this.#entries.clear();
  }
}

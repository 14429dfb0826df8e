import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { ChannelCall } from '#wit/generate/channel-io.ts';
import {
  CHANNEL_CALLS,
  type LifecycleEnded,
  type LifecycleOpening,
  type LifecycleTrap,
  readLifecycleCharge,
  readLifecycleStop,
  readLifecycleTrap,
  writeLifecycleEnded,
} from '#wit/generated/channel.ts';
import { cutSpan } from '../host/session/session-state.ts';
import { withRelease } from '../lowering/future-release.ts';
import type { Task } from '../lowering/intrinsics.ts';
import { GuestTrap } from '../lowering/trap.ts';
import { ANSWER } from './calls.ts';
import type { Lane } from './channel.ts';
import { MessageReader, MessageWriter } from './codec.ts';
import { EventCredit } from './event-credit.ts';
import { KIND } from './frames.ts';
import { ChannelFault, MAX_QUEUED_BYTES } from './limits.ts';

/** The sandbox's reference to a resource that the runtime holds. */
export class RemoteResource {
  readonly resource: number;
  readonly number: number;
  /** Reason why the request to make the resource was not sent; each call of the resource returns this error. */
  readonly refused: HandlerError | null;

  constructor(resource: number, number: number, refused: HandlerError | null) {
    this.resource = resource;
    this.number = number;
    this.refused = refused;
  }
}

/** Thrown by a call when the guest must be suspended for the answer; `suspendingWorld` catches it. */
export class AnswerPending extends Error {
  override readonly name = 'AnswerPending';
}

/** A future without an answer. */
interface Pending {
  readonly call: ChannelCall;
  readonly resolve: (value: unknown) => void;
  /** True when the guest has dropped the future. */
  dropped: boolean;
}

/** A call for which the guest is suspended. */
interface Waiting {
  readonly number: number;
  readonly call: ChannelCall;
  answer: { readonly value: unknown } | null;
  wake: (() => void) | null;
}

/** Functions that the owner of a guest provides to the guest's invocation. */
export interface InvocationOwner {
  /** The guest's `Execution`, which can suspend the guest. */
  readonly task: Pick<Task, 'block'>;
  /** Charges the guest CPU time that the platform spent for it. */
  readonly charge: (cpuMs: number) => void;
  /** Called when the invocation is over: the owner kills the guest. Nothing can be sent any more. */
  readonly closed: (trap: GuestTrap) => void;
}

const SENT: Outcome<undefined> = ok(undefined);

/** True for the call that records a span. Spans may be lost: such a call is refused when too many bytes wait, and does not end the program. */
const isSpan = (call: ChannelCall): boolean => call.name === 'record-span';

/** Calls that can be refused may fill half of the queue; the other half is for messages that cannot be refused. */
const MAX_REFUSABLE_BYTES = MAX_QUEUED_BYTES / 2;

/** One invocation in a sandbox: the context of all calls of its guest, whether the runtime or the sandbox answers them. */
export class SandboxInvocation {
  readonly opening: LifecycleOpening;
  readonly #lane: Lane;
  readonly #onClosed: (self: SandboxInvocation) => void;
  readonly #writer: MessageWriter;
  readonly #pendingFutures = new Map<number, Pending>();
  /** Answered futures that the runtime keeps until this side reports that the guest has read or dropped them. */
  readonly #keptFutures = new Set<number>();
  readonly #events = new EventCredit();
  #owner: InvocationOwner | null = null;
  #lastNumber = 0;
  readonly #freeResources: number[] = [];
  #lastResource = 0;
  #waitingCall: Waiting | null = null;
  #stopReason: HandlerError | null = null;
  /** Time of the guest's deadline, by `performance.now`. */
  #deadlineAtMs: number;
  #ended = false;
  /** Trap after which nothing can be sent any more. */
  #closingTrap: GuestTrap | null = null;

  constructor(lane: Lane, opening: LifecycleOpening, onClosed: (self: SandboxInvocation) => void) {
    this.#lane = lane;
    this.opening = opening;
    this.#deadlineAtMs = performance.now() + Number(opening.leftMs);
    this.#onClosed = onClosed;
    this.#writer = new MessageWriter((resource, value) => {
      if (value instanceof RemoteResource && value.resource === resource) return value.number;
      throw new TypeError('a call to the runtime takes a resource of the runtime');
    });
  }

  /** Called once, before the guest starts. */
  attach(owner: InvocationOwner): void {
    this.#owner = owner;
    if (this.#closingTrap) owner.closed(this.#closingTrap);
  }

  /** Reason for which the guest was asked to stop, or null. */
  get stopped(): HandlerError | null {
    return this.#stopReason;
  }

  /** Time until the guest's deadline. The runtime may lengthen it. */
  get leftMs(): number {
    return Math.max(0, Math.floor(this.#deadlineAtMs - performance.now()));
  }

  /** Number of futures that wait for an answer. */
  get pending(): number {
    return this.#pendingFutures.size;
  }

  /** Makes call number `index` and returns the host function's result. @throws AnswerPending when the guest must be suspended first */
  call(index: number, args: readonly unknown[]): unknown {
    const call = CHANNEL_CALLS[index] as ChannelCall;
    const waitingCall = this.#waitingCall;
    // The second run of the call that suspended the guest: see `suspendingWorld`.
    if (waitingCall?.answer && waitingCall.call === call) {
      this.#waitingCall = null;
      return waitingCall.answer.value;
    }
    if (this.#closingTrap) return this.#refuse(call, handlerError('unavailable', this.#closingTrap.message));
    for (const arg of args) if (arg instanceof RemoteResource && arg.refused) return this.#refuse(call, arg.refused);
    switch (call.answering) {
      case 'future':
        return this.#future(index, call, args);
      case 'waits': {
        const refused = this.#send(index, ++this.#lastNumber, call, args);
        if (refused) return this.#refuse(call, refused);
        this.#waitingCall = { number: this.#lastNumber, call, answer: null, wake: null };
        throw new AnswerPending();
      }
      case 'makes':
        return this.#make(index, call, args);
      case 'outbox':
        return this.#event(index, call, args);
      case 'drop':
        // The number 0 stands for a call without an answer.
        this.#send(index, 0, call, args);
        this.#freeResources.push((args[0] as RemoteResource).number);
        return undefined;
      default:
        this.#send(index, 0, call, isSpan(call) ? cutSpan(args) : args);
        return undefined;
    }
  }

  /** Suspends the guest until the call that threw `AnswerPending` has its answer; the guest's next call takes the answer. */
  suspend(): Promise<void> {
    const waiting = this.#waitingCall;
    const owner = this.#owner;
    if (!waiting || !owner) throw new TypeError('no call waits for an answer');
    return owner.task.block((wake) => {
      waiting.wake = wake;
    });
  }

  /** Reports the guest's end. The guest can make no more calls. */
  end(ended: LifecycleEnded): void {
    if (this.#ended || this.#closingTrap) return;
    this.#ended = true;
    this.#flushDroppedLines();
    try {
      writeLifecycleEnded(this.#writer, ended);
    } catch {
      this.#writer.reset();
      const ending = { tag: 'trapped', val: { code: 'output-limit', message: 'the result is too large' } } as const;
      writeLifecycleEnded(this.#writer, { ...ended, ending });
    }
    this.#lane.send(KIND.ended, this.#writer.take());
  }

  message(kind: number, payload: Buffer): void {
    if (kind !== KIND.answer) throw new ChannelFault('bad-frame', `the runtime sent a message of kind ${kind}`);
    if (this.#ended) return;
    const reader = new MessageReader(payload);
    const number = reader.u32();
    const flag = reader.u8();
    if (this.#waitingCall?.number === number) this.#answerWaiting(this.#waitingCall, reader);
    else this.#answerFuture(number, flag, reader);
  }

  signal(kind: number, payload: Buffer): void {
    const reader = new MessageReader(Buffer.from(payload));
    switch (kind) {
      case KIND.written:
        this.#events.written(reader.u32());
        return;
      case KIND.stop: {
        const { reason } = readLifecycleStop(reader);
        this.#stopReason ??= reason;
        return;
      }
      case KIND.deadline:
        this.#deadlineAtMs = performance.now() + Number(reader.u64());
        return;
      case KIND.charge:
        this.#owner?.charge(readLifecycleCharge(reader).cpuMs);
        return;
      case KIND.close: {
        const { code, message } = readLifecycleTrap(reader) as LifecycleTrap & Pick<GuestTrap, 'code'>;
        this.#close(new GuestTrap(code, message));
        this.#lane.closed();
        return;
      }
      default:
        throw new ChannelFault('bad-frame', `the runtime sent a signal of kind ${kind}`);
    }
  }

  /** Called when the channel is gone. */
  lost(fault: ChannelFault): void {
    this.#close(new GuestTrap('terminated', `runtime-lost: ${fault.message}`, { cause: fault }));
  }

  #close(trap: GuestTrap): void {
    if (this.#closingTrap) return;
    this.#closingTrap = trap;
    this.#onClosed(this);
    const pending = [...this.#pendingFutures.values()];
    this.#pendingFutures.clear();
    const error = handlerError('unavailable', trap.message);
    // The future of a call that cannot fail stays pending: the owner kills the guest below.
    for (const { call, resolve } of pending) if (call.fallible) resolve(err(error));
    this.#owner?.closed(trap);
  }

  #future(index: number, call: ChannelCall, args: readonly unknown[]): Promise<unknown> {
    const number = ++this.#lastNumber;
    const refused = this.#send(index, number, call, args);
    if (refused) return this.#refuse(call, refused) as Promise<unknown>;
    const { promise, resolve } = Promise.withResolvers<unknown>();
    const pending: Pending = { call, resolve, dropped: false };
    this.#pendingFutures.set(number, pending);
    return withRelease(promise, (isRead) => this.#release(number, isRead));
  }

  /** Called when the guest has dropped a future, or has read a future that the runtime keeps. */
  #release(number: number, isRead: boolean): void {
    const pending = this.#pendingFutures.get(number);
    if (pending) pending.dropped = true;
    else if (!this.#keptFutures.delete(number)) return;
    if (this.#ended || this.#closingTrap) return;
    this.#writer.u32(number);
    this.#writer.u8(isRead ? 1 : 0);
    this.#lane.send(KIND.release, this.#writer.take());
  }

  #answerFuture(number: number, flag: number, reader: MessageReader): void {
    const pending = this.#pendingFutures.get(number);
    if (!pending) throw new ChannelFault('unasked-answer', `the runtime answered call ${number}, which does not wait`);
    this.#pendingFutures.delete(number);
    if (pending.dropped || flag === ANSWER.gone) return;
    const value = pending.call.readResult(reader);
    reader.end();
    if (flag === ANSWER.kept) this.#keptFutures.add(number);
    pending.resolve(value);
  }

  #answerWaiting(waiting: Waiting, reader: MessageReader): void {
    if (waiting.answer) throw new ChannelFault('unasked-answer', `the runtime answered call ${waiting.number} twice`);
    waiting.answer = { value: waiting.call.readResult(reader) };
    reader.end();
    waiting.wake?.();
  }

  #make(index: number, call: ChannelCall, args: readonly unknown[]): RemoteResource {
    const number = this.#freeResources.pop() ?? ++this.#lastResource;
    const refused = this.#send(index, number, call, args);
    if (refused) this.#freeResources.push(number);
    return new RemoteResource(call.resource, number, refused);
  }

  #event(index: number, call: ChannelCall, eventArgs: readonly unknown[]): Outcome<undefined> | undefined {
    const args = this.#events.cutLine(eventArgs);
    const refused = this.#events.take(call, args);
    if (refused === 'dropped') return undefined;
    if (refused) return err(refused);
    this.#flushDroppedLines();
    const sendError = this.#send(index, 0, call, args);
    if (!sendError) return SENT;
    return this.#events.unsent(call, args) === 'dropped' ? undefined : err(sendError);
  }

  /** Reports the number of dropped log lines if the queue has room. Called before the next event, or the guest's end, is sent. */
  #flushDroppedLines(): void {
    const line = this.#events.droppedLine();
    if (!line || this.#send(line.index, 0, CHANNEL_CALLS[line.index] as ChannelCall, line.args)) return;
    this.#events.reported(line.args);
  }

  /** Sends a call; returns null, or the reason why the call cannot be sent. */
  #send(index: number, number: number, call: ChannelCall, args: readonly unknown[]): HandlerError | null {
    const writer = this.#writer;
    writer.u16(index);
    writer.u32(number);
    try {
      call.writeArguments(writer, args);
    } catch (error) {
      writer.reset();
      if (error instanceof ChannelFault) return handlerError('limit-exceeded', error.message);
      throw error;
    }
    const payload = writer.take();
    const { queuedBytes } = this.#lane.outbound;
    const isRefusable = call.fallible || call.answering === 'makes' || call.answering === 'outbox' || isSpan(call);
    if (isRefusable && queuedBytes > 0 && queuedBytes + payload.length > MAX_REFUSABLE_BYTES) {
      const text = `${queuedBytes} bytes of calls wait to be sent; await some of them and call again`;
      return handlerError('limit-exceeded', text);
    }
    this.#lane.send(KIND.call, payload);
    return null;
  }

  /** Returns the result of a call that is refused. */
  #refuse(call: ChannelCall, error: HandlerError): unknown {
    switch (call.answering) {
      case 'future':
      case 'waits':
        if (!call.fallible) throw new GuestTrap('trap', error.val);
        return call.answering === 'future' ? Promise.resolve(err(error)) : err(error);
      case 'makes':
        return new RemoteResource(call.resource, 0, error);
      case 'outbox':
        return err(error);
      default:
        return undefined;
    }
  }
}

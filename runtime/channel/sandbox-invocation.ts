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
import type { Task } from '../lowering/intrinsics.ts';
import { lettingGo } from '../lowering/let-go.ts';
import { GuestTrap } from '../lowering/trap.ts';
import { ANSWER } from './calls.ts';
import type { Lane } from './channel.ts';
import { EventCredit } from './event-credit.ts';
import { eventBytes } from './event-relay.ts';
import { ChannelFault } from './fault.ts';
import { KIND } from './frames.ts';
import { MAX_QUEUED_BYTES } from './limits.ts';
import { MessageReader } from './value-reader.ts';
import { MessageWriter } from './value-writer.ts';

/** A resource that the runtime holds, as the sandbox knows it. */
export class RemoteResource {
  readonly resource: number;
  readonly number: number;
  /** Why the runtime was not asked for it: each call of it answers this. */
  readonly refused: HandlerError | null;

  constructor(resource: number, number: number, refused: HandlerError | null) {
    this.resource = resource;
    this.number = number;
    this.refused = refused;
  }
}

/** Thrown by a call whose answer the guest must be suspended for; `suspending.ts` catches it. */
export class AnswerPending extends Error {
  override readonly name = 'AnswerPending';
}

/** A future that was not answered. */
interface Pending {
  readonly call: ChannelCall;
  readonly resolve: (value: unknown) => void;
  /** The guest has dropped it. */
  dropped: boolean;
}

/** What the guest of an invocation is suspended for. */
interface Waiting {
  readonly number: number;
  readonly call: ChannelCall;
  answer: { readonly value: unknown } | null;
  wake: (() => void) | null;
}

/** What an owner attaches to an invocation. */
export interface InvocationOwner {
  /** Suspends the guest: its `Execution`. */
  readonly task: Pick<Task, 'block'>;
  /** The platform spent CPU time for the guest. */
  readonly charge: (cpuMs: number) => void;
  /** The invocation is over: what still runs is killed. Nothing can be sent any more. */
  readonly closed: (trap: GuestTrap) => void;
}

const SENT: Outcome<undefined> = ok(undefined);

/** Calls that a guest makes count against this half of the queue; the other half is for what cannot be refused. */
const MAX_REFUSABLE_BYTES = MAX_QUEUED_BYTES / 2;

/** One invocation in a sandbox: the context of its guest's calls, those to the runtime and those that are answered here. */
export class SandboxInvocation {
  readonly opening: LifecycleOpening;
  readonly #lane: Lane;
  readonly #onClosed: (self: SandboxInvocation) => void;
  readonly #writer: MessageWriter;
  readonly #pending = new Map<number, Pending>();
  /** Answered futures whose end the runtime wants to hear of. */
  readonly #kept = new Set<number>();
  readonly #events = new EventCredit();
  #owner: InvocationOwner | null = null;
  #lastNumber = 0;
  readonly #freeResources: number[] = [];
  #lastResource = 0;
  #waiting: Waiting | null = null;
  #stopped: HandlerError | null = null;
  #ended = false;
  /** Why nothing can be sent any more. */
  #closed: GuestTrap | null = null;

  constructor(lane: Lane, opening: LifecycleOpening, onClosed: (self: SandboxInvocation) => void) {
    this.#lane = lane;
    this.opening = opening;
    this.#onClosed = onClosed;
    this.#writer = new MessageWriter((resource, value) => {
      if (value instanceof RemoteResource && value.resource === resource) return value.number;
      throw new TypeError('a call to the runtime takes a resource of the runtime');
    });
  }

  /** Once, before the guest starts. */
  attach(owner: InvocationOwner): void {
    this.#owner = owner;
    if (this.#closed) owner.closed(this.#closed);
  }

  /** Why the guest was asked to stop, or null. */
  get stopped(): HandlerError | null {
    return this.#stopped;
  }

  /** Futures that wait for an answer. */
  get pending(): number {
    return this.#pending.size;
  }

  /** Makes call number `index`. Answers what the host's function would. @throws AnswerPending when the guest must be suspended first */
  call(index: number, args: readonly unknown[]): unknown {
    const call = CHANNEL_CALLS[index] as ChannelCall;
    const waited = this.#waiting;
    if (waited?.answer && waited.call === call) {
      this.#waiting = null;
      return waited.answer.value;
    }
    if (this.#closed) return this.#refuse(call, handlerError('unavailable', this.#closed.message));
    for (const arg of args) if (arg instanceof RemoteResource && arg.refused) return this.#refuse(call, arg.refused);
    switch (call.answering) {
      case 'future':
        return this.#future(index, call, args);
      case 'waits': {
        const refused = this.#send(index, ++this.#lastNumber, call, args);
        if (refused) return this.#refuse(call, refused);
        this.#waiting = { number: this.#lastNumber, call, answer: null, wake: null };
        throw new AnswerPending();
      }
      case 'makes':
        return this.#make(index, call, args);
      case 'outbox':
        return this.#event(index, call, args);
      case 'drop':
        this.#send(index, 0, call, args);
        this.#freeResources.push((args[0] as RemoteResource).number);
        return undefined;
      default:
        this.#send(index, 0, call, args);
        return undefined;
    }
  }

  /** Suspends the guest until the call that threw `AnswerPending` is answered: its next call takes the answer. */
  suspend(): Promise<void> {
    const waiting = this.#waiting;
    const owner = this.#owner;
    if (!waiting || !owner) throw new TypeError('no call waits for an answer');
    return owner.task.block((wake) => {
      waiting.wake = wake;
    });
  }

  /** The guest has ended. Nothing of it can be called any more. */
  end(ended: LifecycleEnded): void {
    if (this.#ended || this.#closed) return;
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
    if (this.#waiting?.number === number) this.#answerWaiting(this.#waiting, reader);
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
        if (this.#stopped) return;
        this.#stopped = reason;
        return;
      }
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

  /** The channel is gone. */
  lost(fault: ChannelFault): void {
    this.#close(new GuestTrap('terminated', `runtime-lost: ${fault.message}`, { cause: fault }));
  }

  #close(trap: GuestTrap): void {
    if (this.#closed) return;
    this.#closed = trap;
    this.#onClosed(this);
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    const error = handlerError('unavailable', trap.message);
    // A future of something that cannot fail stays open: its guest is killed below.
    for (const { call, resolve } of pending) if (call.fallible) resolve(err(error));
    this.#owner?.closed(trap);
  }

  #future(index: number, call: ChannelCall, args: readonly unknown[]): Promise<unknown> {
    const number = ++this.#lastNumber;
    const refused = this.#send(index, number, call, args);
    if (refused) return this.#refuse(call, refused) as Promise<unknown>;
    const { promise, resolve } = Promise.withResolvers<unknown>();
    const pending: Pending = { call, resolve, dropped: false };
    this.#pending.set(number, pending);
    return lettingGo(promise, () => this.#letGo(number));
  }

  /** The guest has dropped a future, or has read one that the runtime wants to hear of. */
  #letGo(number: number): void {
    const pending = this.#pending.get(number);
    if (pending) pending.dropped = true;
    else if (!this.#kept.delete(number)) return;
    if (this.#ended || this.#closed) return;
    this.#writer.u32(number);
    this.#lane.send(KIND.letGo, this.#writer.take());
  }

  #answerFuture(number: number, flag: number, reader: MessageReader): void {
    const pending = this.#pending.get(number);
    if (!pending) throw new ChannelFault('unasked-answer', `the runtime answered call ${number}, which does not wait`);
    this.#pending.delete(number);
    if (pending.dropped || flag === ANSWER.gone) return;
    const value = pending.call.readResult(reader);
    reader.end();
    if (flag === ANSWER.kept) this.#kept.add(number);
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

  #event(index: number, call: ChannelCall, all: readonly unknown[]): Outcome<undefined> | undefined {
    const args = this.#events.sent(all);
    const refused = this.#events.take(call, args);
    if (refused === 'dropped') return undefined;
    if (refused) return err(refused);
    this.#flushDroppedLines();
    const full = this.#send(index, 0, call, args);
    if (full) this.#events.written(eventBytes(args));
    return full ? err(full) : SENT;
  }

  /** Says how many lines of the log found no room, before anything else is said. */
  #flushDroppedLines(): void {
    const line = this.#events.droppedLine();
    if (line) this.#send(line.index, 0, CHANNEL_CALLS[line.index] as ChannelCall, line.args);
  }

  /** Sends a call; null, or why it cannot be sent. */
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
    const refusable = call.fallible || call.answering === 'makes' || call.answering === 'outbox';
    if (refusable && queuedBytes > 0 && queuedBytes + payload.length > MAX_REFUSABLE_BYTES) {
      const text = `${queuedBytes} bytes of calls wait to be sent; await some of them and call again`;
      return handlerError('limit-exceeded', text);
    }
    this.#lane.send(KIND.call, payload);
    return null;
  }

  /** What a call answers that is not made. */
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

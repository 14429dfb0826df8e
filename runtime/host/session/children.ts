import { err, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { unexpected } from '#runtime/unexpected.ts';
import type { Ending, Message } from '#wit/generated/host.ts';
import { ask, fromStore } from '../services/ask.ts';
import type { MessageReader, RunningChild } from '../services/services.ts';
import { SourceReader } from './holdings.ts';
import type { Inferlet } from './inferlet.ts';
import { messageBytes } from './session-state.ts';

/** Maximum messages on their way into one child's inbox. */
const MAX_SENDING = 256;
/** Maximum bytes of these messages together. */
const MAX_SENDING_BYTES = 4 << 20;

/** The host's side of a `child` resource. */
export class ChildHandle {
  readonly #inferlet: Inferlet;
  readonly #child: Promise<Outcome<RunningChild>>;
  /** Tail of the chain of sends: messages go out one at a time, so that they arrive in order. */
  #sending: Promise<unknown>;
  #sendingCount = 0;
  #sendingBytes = 0;
  readonly #received: SourceReader<Message>;
  #messages: MessageReader | null = null;
  /** The read of the child's ending that is under way: all waits share it. */
  #reading: Promise<Outcome<Ending>> | null = null;
  #closed = false;
  #dropped = false;

  constructor(inferlet: Inferlet, name: string, input: string) {
    this.#inferlet = inferlet;
    this.#received = new SourceReader(inferlet, () => this.#receive(), messageBytes);
    const refused = inferlet.childHandles.take(this);
    this.#child = refused ? Promise.resolve(err(refused)) : launchChild(inferlet, name, input);
    this.#sending = this.#child;
    // A handle whose child never began does not count against the bound.
    this.#child.then(({ tag }) => {
      if (tag === 'err') inferlet.childHandles.give(this);
    });
  }

  started(): Promise<Outcome<string>> {
    return this.#during(async (child) => ok(child.id));
  }

  send(message: Message): Promise<Outcome<undefined>> {
    const bytes = messageBytes(message);
    if (this.#sendingCount >= MAX_SENDING || this.#sendingBytes + bytes > MAX_SENDING_BYTES) {
      const text = `${this.#sendingCount} messages are on their way to this child; await them and send again`;
      return Promise.resolve(err(handlerError('limit-exceeded', text)));
    }
    return ask(this.#inferlet, () => this.#send(message, bytes), bytes);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    // Ignore an error: closing the inbox fails only when the child has ended.
    this.#enqueue(async () => {
      const child = await this.#child;
      if (child.tag === 'ok') await child.val.closeInbox();
    }).catch(() => undefined);
  }

  receive(): Promise<Outcome<Message>> {
    return this.#received.next();
  }

  wait(): Promise<Outcome<Ending>> {
    const whenEnded = this.#during(async (child) => {
      await child.ended;
      return ok(undefined);
    });
    const ending = whenEnded.then((outcome) => (outcome.tag === 'ok' ? this.#ending() : outcome));
    return this.#inferlet.unread.keep(ending, (how) => (how.tag === 'success' ? Buffer.byteLength(how.val) : 0));
  }

  cancel(reason = 'Its parent cancelled it.'): void {
    this.#child.then((outcome) => {
      if (outcome.tag === 'ok') outcome.val.cancel(reason);
    });
  }

  drop(): void {
    if (this.#dropped) return;
    this.#dropped = true;
    this.#inferlet.childHandles.give(this);
    this.cancel('Its parent dropped it.');
    this.#messages?.close();
    this.#received.close();
  }

  #send(message: Message, bytes: number): Promise<Outcome<undefined>> {
    this.#sendingCount++;
    this.#sendingBytes += bytes;
    // Copy the bytes: they are a view of the guest's memory, which the guest may change.
    const copiedMessage: Message = message.tag === 'text' ? message : { tag: 'bytes', val: message.val.slice() };
    return this.#enqueue(async () => {
      const child = await this.#child;
      return child.tag === 'ok' ? child.val.send(copiedMessage) : child;
    }).finally(() => {
      this.#sendingCount--;
      this.#sendingBytes -= bytes;
    });
  }

  async #receive(): Promise<Outcome<Message>> {
    const child = await this.#child;
    if (child.tag === 'err') return child;
    if (this.#dropped) return err(ALL_READ);
    try {
      this.#messages ??= child.val.messages(this.#inferlet.stopping);
      const message = await this.#messages.next();
      return message ? ok(message) : err(ALL_READ);
    } catch (error) {
      return err(fromStore(error));
    }
  }

  async #ending(): Promise<Outcome<Ending>> {
    const child = await this.#child;
    if (child.tag === 'err') return child;
    const { unread } = this.#inferlet;
    this.#reading ??= ask(this.#inferlet, () => child.val.ending((bytes) => unread.refusal(bytes))).finally(() => {
      this.#reading = null;
    });
    return this.#reading;
  }

  /** Runs `work` after all earlier work has settled, even when the earlier work failed. */
  #enqueue<T>(work: () => Promise<T>): Promise<T> {
    const queued = this.#sending.then(work, work);
    this.#sending = queued.catch(() => undefined);
    return queued;
  }

  /** Runs `work` once the child has started, and counts it as a wait of the inferlet. */
  #during<T>(work: (child: RunningChild) => Promise<Outcome<T>>): Promise<Outcome<T>> {
    const { interruptions, hooks } = this.#inferlet;
    const outcome = this.#child.then((started) => (started.tag === 'ok' ? work(started.val) : started));
    return hooks.waits.during(interruptions.until(outcome));
  }
}

function launchChild(inferlet: Inferlet, name: string, input: string): Promise<Outcome<RunningChild>> {
  if (!inferlet.invocation) return Promise.resolve(err(handlerError('unsupported', 'this host launches no children')));
  return inferlet.invocation.children.launch(name, input).catch((error: unknown) => {
    return err(handlerError('internal', `the child could not be launched: ${unexpected(error)}`));
  });
}

const ALL_READ = handlerError('closed', 'the child has ended, and all that it sent was read');

/** Implements `wit/children.wit`. */
export const children = {
  '[constructor]child': (inferlet: Inferlet, name: string, input: string) => new ChildHandle(inferlet, name, input),
  '[method]child.started': (_inferlet: Inferlet, self: ChildHandle) => self.started(),
  '[method]child.send': (_inferlet: Inferlet, self: ChildHandle, message: Message) => self.send(message),
  '[method]child.close': (_inferlet: Inferlet, self: ChildHandle): void => self.close(),
  '[method]child.receive': (_inferlet: Inferlet, self: ChildHandle) => self.receive(),
  '[method]child.wait': (_inferlet: Inferlet, self: ChildHandle) => self.wait(),
  '[method]child.cancel': (_inferlet: Inferlet, self: ChildHandle): void => self.cancel(),
  '[resource-drop]child': (_inferlet: Inferlet, self: ChildHandle): void => self.drop(),
};

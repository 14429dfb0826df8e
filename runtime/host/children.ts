import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { Ending, Message } from '#wit/generated/host.ts';
import { ask, fromStore } from './ask.ts';
import type { Inferlet } from './inferlet.ts';
import { messageBytes } from './message-bytes.ts';
import { Takes } from './takes.ts';

/** A child that runs, as its parent sees it. */
export interface RunningChild {
  /** Its invocation's id. */
  readonly id: string;
  /** Resolves when it has its terminal event. Never rejects. */
  readonly ended: Promise<unknown>;
  /** How it ended, once it has. @throws StoreError */
  ending(): Promise<Outcome<Ending>>;
  /** Puts a message into its inbox. */
  send(message: Message): Promise<Outcome<undefined>>;
  /** No more messages follow. */
  closeInbox(): Promise<void>;
  /** What it sends, from its beginning to its end, or until the signal aborts. */
  messages(signal: AbortSignal): MessageReader;
  cancel(reason: string): void;
}

/** Reads what a child sends. Whoever has it closes it. */
export interface MessageReader {
  /** The next message, null after the last; one call after the other. @throws StoreError */
  next(): Promise<Message | null>;
  close(): void;
}

/** Launches the children of one inferlet; `lifecycle/children.ts` implements it. */
export interface ChildLauncher {
  launch(name: string, input: string): Promise<Outcome<RunningChild>>;
  /** Launches nothing more, and stops every child with this reason. */
  stop(reason: HandlerError): void;
}

/** Messages and their bytes that may be on their way into one child's inbox. */
const MAX_SENDING = 256;
const MAX_SENDING_BYTES = 4 << 20;

/** The host's side of a `child` resource. */
export class ChildHandle {
  readonly #inferlet: Inferlet;
  readonly #child: Promise<Outcome<RunningChild>>;
  /** One message after the other goes out, so that they arrive in order. */
  #sending: Promise<unknown>;
  #sendingCount = 0;
  #sendingBytes = 0;
  readonly #received: Takes<Message>;
  #messages: MessageReader | null = null;
  #closed = false;
  #dropped = false;

  constructor(inferlet: Inferlet, name: string, input: string) {
    this.#inferlet = inferlet;
    this.#received = new Takes(inferlet, () => this.#receive(), messageBytes);
    const refused = inferlet.childHandles.take(this);
    this.#child = refused ? Promise.resolve(err(refused)) : launched(inferlet, name, input);
    this.#sending = this.#child;
    // One that never began needs nothing of what a handle keeps.
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
    this.#next(async () => {
      const child = await this.#child;
      if (child.tag === 'ok') await child.val.closeInbox();
      // Whoever cannot be told has ended.
    }).catch(() => undefined);
  }

  receive(): Promise<Outcome<Message>> {
    return this.#received.next();
  }

  wait(): Promise<Outcome<Ending>> {
    const ended = this.#during(async (child) => {
      await child.ended;
      return ok(undefined);
    });
    const ending = ended.then((outcome) => (outcome.tag === 'ok' ? this.#ending() : outcome));
    return this.#inferlet.unread.kept(ending, (how) => (how.tag === 'success' ? Buffer.byteLength(how.val) : 0));
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
    // Bytes are a view of the guest's memory, which goes on changing.
    const own: Message = message.tag === 'text' ? message : { tag: 'bytes', val: message.val.slice() };
    return this.#next(async () => {
      const child = await this.#child;
      return child.tag === 'ok' ? child.val.send(own) : child;
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
    return child.tag === 'ok' ? ask(this.#inferlet, () => child.val.ending()) : child;
  }

  /** After whatever was begun before it, however that went. */
  #next<T>(work: () => Promise<T>): Promise<T> {
    const next = this.#sending.then(work, work);
    this.#sending = next.catch(() => undefined);
    return next;
  }

  /** A wait of the inferlet on its child, once that has started. */
  #during<T>(work: (child: RunningChild) => Promise<Outcome<T>>): Promise<Outcome<T>> {
    const { interruptions, hooks } = this.#inferlet;
    const outcome = this.#child.then((started) => (started.tag === 'ok' ? work(started.val) : started));
    return hooks.waits.during(interruptions.until(outcome));
  }
}

function launched(inferlet: Inferlet, name: string, input: string): Promise<Outcome<RunningChild>> {
  if (!inferlet.own) return Promise.resolve(err(handlerError('unsupported', 'this host launches no children')));
  return inferlet.own.children.launch(name, input).catch((error: unknown) => {
    const text = error instanceof Error ? error.message : String(error);
    return err(handlerError('internal', `the child could not be launched: ${text}`));
  });
}

const ALL_READ = handlerError('closed', 'the child has ended, and all that it sent was read');

/** `wit/children.wit`. */
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

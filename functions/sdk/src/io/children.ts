import { type AbortSignalLike, abortable, throwIfAborted } from '../abort.ts';
import { fromWire, type Message, toJson, toWire } from '../bytes.ts';
import { InferletError } from '../errors.ts';
import { attempt, settle, Child as WireChild } from '../raw.ts';
import { Inbox, type ReceiveOptions, untilClosed } from './inbox.ts';

/** Options of {@link launch}. */
export interface LaunchOptions {
  /** Cancels the child when the signal is aborted. */
  readonly signal?: AbortSignalLike;
}

/** The ending of a child: its result, or the code and text of its error. */
export type ChildEnding<Result> =
  | { readonly ok: true; readonly result: Result }
  | { readonly ok: false; readonly code: string; readonly message: string };

/**
 * Launches another function of the tenant (`name`, or `name@version`) with a JSON value as its input. Needs the grant `launch`. Throws
 * `not-found`, `invalid-argument` for an input that the function's schema refuses, and `limit-exceeded` beyond 64 concurrent children.
 *
 * @example
 * using child = await launch<{ text: string }>('text-completion', { prompt: 'Once', maxTokens: 20 });
 * for await (const message of child) await send(message);
 * const { text } = await child.result();
 */
export async function launch<Result = unknown>(
  name: string,
  input: unknown = {},
  { signal }: LaunchOptions = {},
): Promise<Child<Result>> {
  throwIfAborted(signal);
  const wire = attempt(() => new WireChild(name, toJson(input ?? null)));
  try {
    const id = await abortable(settle(wire.started()), signal);
    // Other tasks may have aborted the signal since the start, and the new `Child` listens only to later aborts.
    throwIfAborted(signal);
    return new Child<Result>(wire, name, id, signal);
  } catch (error) {
    wire.drop();
    throw error;
  }
}

/**
 * A child: a separate invocation that ends with its parent at the latest. Iterate it for the child's messages. `using` cancels a child that
 * still runs at the end of the scope.
 */
export class Child<Result = unknown> implements AsyncIterable<Message>, Disposable {
  /** The child's invocation id. */
  readonly id: string;
  readonly name: string;
  readonly #wire: WireChild;
  readonly #signal: AbortSignalLike | undefined;
  readonly #abort = () => this.cancel();
  readonly #inbox = new Inbox(async () => fromWire(await settle(this.#wire.receive())));
  #ending: Promise<ChildEnding<Result>> | undefined;
  #dropped = false;

  /** @internal Constructed by {@link launch}. */
  constructor(wire: WireChild, name: string, id: string, signal: AbortSignalLike | undefined) {
    this.#wire = wire;
    this.name = name;
    this.id = id;
    this.#signal = signal;
    signal?.addEventListener('abort', this.#abort);
  }

  /** Sends a message into the child's session. Throws `closed` once the child has ended. */
  async send(message: Message): Promise<void> {
    this.#check();
    await settle(this.#wire.send(toWire(message)));
  }

  /** Sends a value as JSON text. Throws `invalid-argument` for a value that JSON cannot represent, such as `undefined`. */
  async sendJson(value: unknown): Promise<void> {
    await this.send(toJson(value));
  }

  /** Tells the child that no more messages follow. */
  close(): void {
    this.#check();
    this.#wire.close();
  }

  /**
   * The child's next message. Throws `closed` once the child has ended and all its messages were read. If `signal` ends the wait, the next
   * caller gets the message.
   */
  async receive(options?: ReceiveOptions): Promise<Message> {
    this.#check();
    return this.#inbox.next(options);
  }

  /** Messages until the child has ended. */
  [Symbol.asyncIterator](): AsyncGenerator<Message, void, void> {
    return untilClosed(() => this.receive());
  }

  /** Waits for the child's result. Throws `dependency-failed` with the child's error code and text when the child failed. */
  async result(): Promise<Result> {
    const ending = await this.ending();
    if (ending.ok) return ending.result;
    throw new InferletError('dependency-failed', `${this.name} (${this.id}) failed: ${ending.code}: ${ending.message}`);
  }

  /** Waits for the child's ending. */
  async ending(): Promise<ChildEnding<Result>> {
    if (!this.#ending) this.#check();
    this.#ending ??= settle(this.#wire.wait()).then(({ tag, val }) =>
      tag === 'success'
        ? { ok: true, result: JSON.parse(val) as Result }
        : { ok: false, code: val.code, message: val.message },
    );
    return this.#ending;
  }

  /** Asks the child to stop. The child then ends as `cancelled`, or with a result if it still returns one. */
  cancel(): void {
    if (!this.#dropped) this.#wire.cancel();
  }

  [Symbol.dispose](): void {
    if (this.#dropped) return;
    this.#dropped = true;
    this.#signal?.removeEventListener('abort', this.#abort);
    this.#wire.drop();
  }

  #check(): void {
    if (this.#dropped) throw new InferletError('closed', CANCELLED_WITH_SCOPE);
  }
}

const CANCELLED_WITH_SCOPE =
  'This child was cancelled with the scope of its `using`. Await what you need of it (`return await child.result()`) before the scope ends.';

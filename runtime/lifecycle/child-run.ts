import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { Inbox } from '#scheduler/invocations/inbox.ts';
import { partsOf } from '#scheduler/invocations/types.ts';
import type { Ending, Message } from '#wit/generated/host.ts';
import { fromStore } from '../host/ask.ts';
import type { MessageReader, RunningChild } from '../host/children.ts';
import { ChildMessages, type MessageSource } from './child-messages.ts';
import type { Stop } from './stopping.ts';
import { untilStored } from './stored.ts';

/** Maximum characters of a result that are kept in memory for the parent; a longer result is read from the child's log. */
const MAX_KEPT_RESULT = 4096;

export interface ChildRunOptions extends MessageSource {
  readonly inbox: Inbox;
}

/**
 * One child, as long as its parent has a handle to it. An ended child takes little memory: the parent reads the child's messages, and a long
 * result, from the child's event log.
 */
export class ChildRun implements RunningChild {
  readonly id: string;
  readonly #options: ChildRunOptions;
  readonly #stop = new AbortController();
  readonly #ended = Promise.withResolvers<void>();
  /** Null while the child runs, and when it succeeded with a result too long to keep. */
  #keptEnding: Ending | null = null;
  #storedBytes = 0;

  constructor(options: ChildRunOptions) {
    this.id = options.id;
    this.#options = options;
  }

  /** Aborts with a `Stop`. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  get ended(): Promise<unknown> {
    return this.#ended.promise;
  }

  /** Records how the child ended, once its terminal event is stored. */
  settle(ending: Ending): void {
    if (ending.tag === 'success' && ending.val.length > MAX_KEPT_RESULT) {
      this.#storedBytes = Buffer.byteLength(ending.val);
    } else this.#keptEnding = ending;
    this.#ended.resolve();
  }

  /**
   * @param refusalOf returns an error when unread results leave no room for a result of this many bytes, else null; see `RunningChild.ending`
   */
  async ending(refusalOf: (bytes: number) => HandlerError | null): Promise<Outcome<Ending>> {
    await this.#ended.promise;
    if (this.#keptEnding) return ok(this.#keptEnding);
    return this.#options.read(this.#storedBytes, () => this.#readStored(refusalOf));
  }

  async #readStored(refusalOf: (bytes: number) => HandlerError | null): Promise<Outcome<Ending>> {
    const refused = refusalOf(this.#storedBytes);
    if (refused) return err(refused);
    const lastEvent = await this.#options.events.last(this.id);
    const output = lastEvent?.event === 'result' ? (partsOf(lastEvent.data)?.output ?? null) : null;
    return output === null
      ? err(handlerError('closed', 'the result of the child is not kept any more'))
      : ok({ tag: 'success', val: output });
  }

  stop(reason: Stop): void {
    if (!this.#stop.signal.aborted) this.#stop.abort(reason);
  }

  cancel(message: string): void {
    this.stop({ code: 'cancelled', message });
  }

  async send(message: Message): Promise<Outcome<undefined>> {
    try {
      const content = message.tag === 'text' ? { text: message.val } : { bytes: message.val };
      switch (await this.#options.inbox.push(this.id, content)) {
        case 'ok':
          return ok(undefined);
        case 'full':
          return err(handlerError('limit-exceeded', 'too many messages wait for the child to receive them'));
        case 'too-large':
          return err(handlerError('limit-exceeded', 'the message is too large; send it in parts'));
        case 'closed':
          return err(handlerError('closed', 'the session with the child is already closed'));
        case 'ended':
        case 'unknown':
          return err(handlerError('closed', 'the child has ended'));
      }
    } catch (error) {
      return err(fromStore(error));
    }
  }

  async closeInbox(): Promise<void> {
    await untilStored(() => this.#options.inbox.close(this.id), this.signal);
  }

  messages(signal: AbortSignal): MessageReader {
    const messages = new ChildMessages(this.#options, signal);
    this.#ended.promise.then(() => messages.end());
    return messages;
  }
}

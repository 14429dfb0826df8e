import { setTimeout as sleep } from 'node:timers/promises';
import { err, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import type { EventLog } from '#scheduler/invocations/event-log.ts';
import type { Inbox } from '#scheduler/invocations/inbox.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import type { Ending, Message } from '#wit/generated/host.ts';
import type { RunningChild } from '../host/children.ts';
import type { Stop } from './stopping.ts';

/** Events of one read: what a parent that reads slowly may make this process hold. */
const READ_COUNT = 8;
const RETRY_MS = 200;

export interface ChildRunOptions {
  readonly job: InvocationJob;
  readonly inbox: Inbox;
  readonly events: EventLog;
}

/**
 * One child while it runs. What it sends is read from its event log, the same that its client could follow: nothing is kept here for a
 * parent that reads late or never.
 */
export class ChildRun implements RunningChild {
  readonly job: InvocationJob;
  readonly #options: ChildRunOptions;
  readonly #stop = new AbortController();
  readonly #ended = Promise.withResolvers<Ending>();
  /** Whether a client asked for its cancellation. */
  cancelledByClient = false;

  constructor(options: ChildRunOptions) {
    this.job = options.job;
    this.#options = options;
  }

  get id(): string {
    return this.job.id;
  }

  /** Aborts with a `Stop`. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  get ended(): Promise<Ending> {
    return this.#ended.promise;
  }

  /** It has its terminal event. */
  settle(ending: Ending): void {
    this.#ended.resolve(ending);
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
          return err(handlerError('closed', 'the session with the child was closed before'));
        case 'ended':
        case 'unknown':
          return err(handlerError('closed', 'the child has ended'));
      }
    } catch (error) {
      const { code, message: text } = StoreError.from(error);
      return err(handlerError(code === 'store-unavailable' ? 'unavailable' : 'internal', text));
    }
  }

  closeInbox(): Promise<void> {
    return this.#options.inbox.close(this.id);
  }

  async *messages(signal: AbortSignal): AsyncGenerator<Message, void> {
    let last = 0;
    while (!signal.aborted) {
      try {
        for await (const event of this.#options.events.follow(this.id, last, signal, READ_COUNT)) {
          last = event.seq;
          const message = event.event === 'message' ? messageOf(event.data) : null;
          if (message) yield message;
        }
        return;
      } catch (error) {
        // Its record is gone: nothing more can come.
        if (StoreError.from(error).code === 'invalid-argument') return;
        if (StoreError.from(error).code !== 'store-unavailable') throw error;
        await sleep(RETRY_MS);
      }
    }
  }
}

/** What a `message` event says; null for one that tells of a file. */
function messageOf(data: string): Message | null {
  const content = JSON.parse(data) as { readonly text?: string; readonly base64?: string };
  if (content.text !== undefined) return { tag: 'text', val: content.text };
  if (content.base64 !== undefined) return { tag: 'bytes', val: Buffer.from(content.base64, 'base64') };
  return null;
}

import { setTimeout as sleep } from 'node:timers/promises';
import type { EventLog } from '#scheduler/invocations/log.ts';
import type { InvocationEvent } from '#scheduler/invocations/types.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import type { Message } from '#wit/generated/host.ts';

/** Bounds the events of a running child that are read ahead of a slow parent: a read ends after 2 events, and at most 64 KiB wait. */
const READ_AHEAD = { readCount: 2, maxWaitingLength: 64 * 1024 };
const RETRY_MS = 200;

/** Maximum bytes that a read of one entry returns: a single event of the largest size. */
const MAX_ENTRY_BYTES = 1 << 20;

/** The child whose messages are read. */
export interface MessageSource {
  readonly id: string;
  readonly tenant: string;
  readonly events: EventLog;
  /** Makes a call to the store that reads up to `bytes`, once the tenant's queue has room. */
  readonly read: <T>(bytes: number, call: () => Promise<T>) => Promise<T>;
}

/**
 * Reads the messages of a child from its event log, as a client would. It keeps only a few messages that it has read ahead, so a parent that
 * reads late or never costs little memory. It follows the log only while the child runs: for an ended child it keeps no more than a position
 * in the log.
 */
export class ChildMessages {
  readonly #source: MessageSource;
  readonly #signal: AbortSignal;
  #followedEvents: AsyncIterableIterator<InvocationEvent, void> | null = null;
  #readAhead: InvocationEvent[] = [];
  #lastSeq = 0;
  #isReading = false;
  #ended = false;

  /** @param signal aborts when the parent stops reading */
  constructor(source: MessageSource, signal: AbortSignal) {
    this.#source = source;
    this.#signal = signal;
  }

  /** The next message; null after the last. Calls must not overlap. @throws StoreError for a fault of the platform */
  async next(): Promise<Message | null> {
    this.#isReading = true;
    try {
      for (;;) {
        const event = await this.#eventThroughOutage();
        if (!event) return null;
        this.#lastSeq = event.seq;
        const message = event.event === 'message' ? messageOf(event.data) : null;
        if (message) return message;
      }
    } finally {
      this.#isReading = false;
      if (this.#ended) this.#unfollow();
    }
  }

  /** Stops following: the child has ended, and its log has all its messages. */
  end(): void {
    this.#ended = true;
    if (!this.#isReading) this.#unfollow();
  }

  /** Drops the messages that were read ahead: the parent reads no more. */
  close(): void {
    this.#readAhead = [];
    this.end();
  }

  async #eventThroughOutage(): Promise<InvocationEvent | null> {
    while (!this.#signal.aborted) {
      try {
        return await this.#event();
      } catch (error) {
        this.#unfollow();
        const { code } = StoreError.from(error);
        // The child's record is gone: no more events can come.
        if (code === 'invalid-argument') return null;
        if (code !== 'store-unavailable') throw error;
        await sleep(RETRY_MS);
      }
    }
    return null;
  }

  async #event(): Promise<InvocationEvent | null> {
    if (this.#ended) return this.#nextStored();
    const { id, tenant, events } = this.#source;
    this.#followedEvents ??= events.follow(id, this.#lastSeq, this.#signal, { tenant, ...READ_AHEAD });
    const next = await this.#followedEvents.next();
    return next.done ? null : next.value;
  }

  async #nextStored(): Promise<InvocationEvent | null> {
    const ahead = this.#readAhead.shift();
    if (ahead) return ahead;
    // Read one entry of the log: some kilobytes, or a single event.
    const { id, events, read } = this.#source;
    const from = { epoch: null, seq: this.#lastSeq };
    const [first, ...others] = (await read(MAX_ENTRY_BYTES, () => events.readSome(id, from, 1))).events;
    this.#readAhead = others;
    return first ?? null;
  }

  #unfollow(): void {
    this.#followedEvents?.return?.().catch(() => undefined);
    this.#followedEvents = null;
  }
}

/** The message in a `message` event; null when the event announces a file. */
function messageOf(data: string): Message | null {
  const content = JSON.parse(data) as { readonly text?: string; readonly base64?: string };
  if (content.text !== undefined) return { tag: 'text', val: content.text };
  if (content.base64 !== undefined) return { tag: 'bytes', val: Buffer.from(content.base64, 'base64') };
  return null;
}

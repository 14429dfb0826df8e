import { createHash, randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { QuotaExceeded } from '../quotas/exceeded.ts';
import { type Channels, Wakeup } from '../store/channels.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import { unexpected } from './replies.ts';

/** A message from the client to its inferlet. */
export type InboxMessage = { readonly text: string } | { readonly bytes: Uint8Array };

/**
 * `full`: too many messages or bytes wait already, so the client should try again later. `closed`: the client closed its side before. `ended`: the
 * invocation has its terminal event. `unknown`: there is no such invocation. `too-large`: the message exceeds `MAX_MESSAGE_BYTES`.
 */
export type PushOutcome = 'ok' | 'full' | 'closed' | 'ended' | 'unknown' | 'too-large';

/** The inferlet's side of an inbox. */
export interface InboxHandler {
  /**
   * Receives messages in order. Once the promise has resolved, the message counts as handled, and the inbox delivers the next one. The store
   * drops a handled message, or keeps it while the invocation may restart, because the next attempt gets all messages again.
   */
  message(message: InboxMessage): void | Promise<void>;
  /** Called with the token of a message once its promise has resolved. */
  handled?(token: Buffer): void;
  /** Called when no more messages can come. */
  closed(): void;
}

/** Messages that may wait for an inferlet. */
export const MAX_INBOX_MESSAGES = 256;
/** Bytes that may wait for an inferlet, or be kept for another attempt after handling. */
const MAX_INBOX_BYTES = 8 * 1024 * 1024;
/** Bytes of one message. */
export const MAX_MESSAGE_BYTES = 1024 * 1024;

const SCRIPTS = {
  push: loadScript(new URL('./inbox.lua', import.meta.url), 'inbox-push'),
  take: loadScript(new URL('./inbox.lua', import.meta.url), 'inbox-take'),
  close: loadScript(new URL('./inbox.lua', import.meta.url), 'inbox-close'),
};

const PUSH_OUTCOMES: Readonly<Record<string, PushOutcome>> = {
  1: 'ok',
  [-1]: 'ended',
  [-2]: 'unknown',
  [-3]: 'closed',
  [-4]: 'full',
};

/** First element of the reply to a push when the tenant may keep no more bytes in Redis. */
const NO_QUOTA = -5;

/** Maximum messages that one call takes. */
const TAKE_COUNT = 64;
/** Length of the random token that precedes and identifies each message. A Redis that lost messages would give their numbers a second time. */
const TOKEN_BYTES = 16;
/** Handled messages to remember, in case Redis forgets that they were handled; more than may wait in an inbox. */
const MAX_REMEMBERED = 2 * MAX_INBOX_MESSAGES;
/** Stands for the token of the last handled message before any message was handled; releases no message. */
const NONE_HANDLED = Buffer.alloc(0);
/** Interval at which an idle handler looks for messages, since a wake-up may be lost. */
const IDLE_TAKE_MS = 5000;
const RETRY_MS = 200;
/** Kind of a text message: the byte between its token and its content. Other messages have `b`. */
const TEXT = 't'.charCodeAt(0);

/** Messages from a client to its inferlet: bounded, in order, and kept until handled, across reconnections of either side. */
export class Inbox {
  readonly #store: Store;
  readonly #channels: Channels;

  constructor(store: Store, channels: Channels) {
    this.#store = store;
    this.#channels = channels;
  }

  /**
   * Adds a message.
   *
   * @param idempotencyKey an equal message with the same key adds nothing for a minute (`REPLY_MS` of the store), and its outcome is `ok`
   * @throws QuotaExceeded when the tenant may keep no more bytes in Redis.
   */
  async push(id: string, message: InboxMessage, idempotencyKey?: string): Promise<PushOutcome> {
    const payload = encode(message);
    // The first byte is the kind of the message and does not count.
    if (payload.length - 1 > MAX_MESSAGE_BYTES) return 'too-large';
    const { keys } = this.#store;
    const token = randomBytes(TOKEN_BYTES);
    const callName = idempotencyKey === undefined ? token.toString('hex') : callNameOf(id, idempotencyKey, payload);
    const reply = await this.#store.script(
      SCRIPTS.push,
      [keys.invocation(id), keys.inbox(id), keys.reply(callName)],
      [
        ...[keys.inboxChannel(id), Buffer.concat([token, payload]), MAX_INBOX_MESSAGES, MAX_INBOX_BYTES],
        this.#store.clock(),
      ],
    );
    if (Array.isArray(reply) && reply[0] === NO_QUOTA) {
      throw QuotaExceeded.ofBytes(reply[1], reply[2], reply[3], this.#store.clock());
    }
    const outcome = PUSH_OUTCOMES[String(reply)];
    if (outcome === undefined) throw unexpected('inbox-push', reply);
    return outcome;
  }

  /** Ends the client's side. The inbox still delivers the waiting messages. */
  async close(id: string): Promise<void> {
    const { keys } = this.#store;
    await this.#store.script(SCRIPTS.close, [keys.invocation(id)], [keys.inboxChannel(id)]);
  }

  /**
   * Delivers messages to one handler, each once and in order, until the handler is detached or no more messages can come. Waits out an absence
   * of Redis. When delivery fails for good, the inbox counts as closed, so that no inferlet waits for messages that cannot come.
   *
   * @param epoch of the handler's attempt; the handler closes when that attempt is over. A handler without an epoch serves any attempt.
   * @returns the function that detaches the handler.
   */
  attach(id: string, handler: InboxHandler, epoch?: number): () => void {
    const detached = new AbortController();
    this.#deliver(id, handler, epoch ?? '', detached.signal).catch(() => {
      if (!detached.signal.aborted) handler.closed();
    });
    return () => detached.abort();
  }

  async #deliver(id: string, handler: InboxHandler, epoch: number | '', detached: AbortSignal): Promise<void> {
    const wakeup = new Wakeup();
    const wake = () => wakeup.set();
    const stop = await this.#channels.listen(this.#store.keys.inboxChannel(id), { message: wake, resumed: wake });
    try {
      const handledTokens = new Set<string>();
      let lastHandled = NONE_HANDLED;
      while (!detached.aborted) {
        const batch = await this.#take(id, lastHandled, epoch, detached);
        if (batch === null) return;
        for (const entry of batch.messages) {
          if (detached.aborted) return;
          const token = entry.subarray(0, TOKEN_BYTES);
          const tokenText = token.toString('latin1');
          if (!handledTokens.has(tokenText)) await handler.message(decode(entry.subarray(TOKEN_BYTES)));
          // A message whose handler was detached meanwhile does not count as handled.
          if (detached.aborted) return;
          remember(handledTokens, tokenText);
          lastHandled = Buffer.from(token);
          handler.handled?.(lastHandled);
        }
        if (batch.isLast) {
          handler.closed();
          return;
        }
        if (batch.messages.length === 0) await wakeup.wait(IDLE_TAKE_MS, detached);
      }
    } finally {
      stop();
    }
  }

  async #take(
    id: string,
    lastHandled: Buffer,
    epoch: number | '',
    detached: AbortSignal,
  ): Promise<{ isLast: boolean; messages: Buffer[] } | null> {
    const { keys } = this.#store;
    while (!detached.aborted) {
      try {
        const reply = await this.#store.scriptBuffers(
          SCRIPTS.take,
          [keys.invocation(id), keys.inbox(id)],
          [lastHandled, TAKE_COUNT, epoch],
        );
        const [last, ...messages] = reply;
        return { isLast: Number(last) === 1, messages: messages.filter(Buffer.isBuffer) };
      } catch (error) {
        // A connection that its owner closed does not come back.
        const isClosed = this.#store.redis.status === 'end';
        if (isClosed || StoreError.from(error).code !== 'store-unavailable') throw error;
        await sleep(RETRY_MS, undefined, { signal: detached });
      }
    }
    return null;
  }
}

/** Remembers a token, and forgets the least recently handled one past `MAX_REMEMBERED`. */
function remember(tokens: Set<string>, token: string): void {
  tokens.delete(token);
  tokens.add(token);
  const [oldest] = tokens;
  if (tokens.size > MAX_REMEMBERED && oldest !== undefined) tokens.delete(oldest);
}

/** The name that calls with the same key and message share, so that the second gets the reply to the first. */
function callNameOf(id: string, idempotencyKey: string, payload: Buffer): string {
  return createHash('sha256')
    .update(JSON.stringify([id, idempotencyKey]))
    .update(payload)
    .digest('hex');
}

function encode(message: InboxMessage): Buffer {
  if ('text' in message) return Buffer.from(`t${message.text}`, 'utf8');
  return Buffer.concat([Buffer.from('b'), message.bytes]);
}

function decode(payload: Buffer): InboxMessage {
  const content = payload.subarray(1);
  return payload[0] === TEXT ? { text: content.toString('utf8') } : { bytes: new Uint8Array(content) };
}

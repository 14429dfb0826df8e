import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import type { Vital } from '../store/vital.ts';
import { endingArguments, errorData } from './ending.ts';
import { unexpected } from './replies.ts';
import { DEFAULT_RETENTION, type Retention } from './retention.ts';

/**
 * `cancelled`: the invocation was queued or waited for a person, and has ended. `requested`: its runtime was told; the terminal event follows.
 * `ended`: too late.
 */
export type CancelOutcome = 'cancelled' | 'requested' | 'ended' | 'unknown';

const CANCEL = loadScript(new URL('./endings.lua', import.meta.url), 'cancel');
const TELL_CANCEL = loadScript(new URL('./endings.lua', import.meta.url), 'tell');

/** Pause before another read of the stored cancels. */
const RETRY_MS = 500;

/** Carries cancels from any process to the runtime that owns the invocation. */
export class Control {
  readonly #store: Store;
  readonly #vital: Vital;
  readonly #retention: Retention;

  /** @param vital connections of a runtime, used to listen for cancels. */
  constructor(store: Store, vital: Vital, retention: Retention = DEFAULT_RETENTION) {
    this.#store = store;
    this.#vital = vital;
    this.#retention = retention;
  }

  /**
   * Requests a cancel. A queued or waiting invocation ends at once. Its job goes with it, unless a runtime already
   * holds the job: `Scheduler.cancel` tells that runtime.
   */
  async requestCancel(id: string, reason: string): Promise<CancelOutcome> {
    const { keys, args } = endingArguments(this.#store, this.#retention, id);
    const scriptKeys = [...keys, this.#store.keys.reply(randomUUID())];
    const reply = await this.#store.script(CANCEL, scriptKeys, [...args, reason, errorData('cancelled', reason)]);
    const [outcome] = Array.isArray(reply) ? reply : [];
    if (outcome === 'requested' || outcome === 'cancelled' || outcome === 'ended' || outcome === 'unknown')
      return outcome;
    throw unexpected('cancel', reply);
  }

  /**
   * Listens for cancels of one runtime's invocations. After an interruption, the listener gets the cancels requested meanwhile. It may get
   * the same cancel twice.
   *
   * @returns the function that stops listening.
   */
  async onCancel(runtimeId: string, listener: (id: string, reason: string) => void): Promise<() => void> {
    const { store, channels } = this.#vital;
    const { keys } = store;
    let latestRead = 0;
    /** Reads the stored cancels until a read succeeds. A later call of `catchUp` ends an earlier one. */
    const catchUp = async () => {
      const readNumber = ++latestRead;
      while (readNumber === latestRead && store.redis.status !== 'end') {
        const cancels = await store.call((redis) => redis.hgetall(keys.cancels(runtimeId))).catch(() => null);
        if (readNumber !== latestRead) return;
        if (cancels === null) await sleep(RETRY_MS, undefined, { ref: false });
        else {
          for (const [id, reason] of Object.entries(cancels)) listener(id, reason);
          return;
        }
      }
    };
    const stop = await channels.listen(keys.cancelChannel(runtimeId), {
      message: (payload) => {
        const text = payload.toString('utf8');
        const separator = text.indexOf('\0');
        listener(text.slice(0, separator), text.slice(separator + 1));
      },
      resumed: () => void catchUp(),
    });
    void catchUp();
    return () => {
      latestRead++;
      stop();
    };
  }

  /** Forgets the cancel of a job that its runtime gave up before the job began. (The end of a running invocation removes its cancel by itself.) */
  async forgetCancel(runtimeId: string, id: string): Promise<void> {
    await this.#store.call((redis) => redis.hdel(this.#store.keys.cancels(runtimeId), id));
  }

  /** Tells a runtime of a cancel for a job that the runtime holds and has not begun. */
  async tellCancel(runtimeId: string, id: string, reason: string): Promise<void> {
    const { keys } = this.#store;
    const args = [keys.cancelChannel(runtimeId), id, reason, this.#retention.eventsMs];
    await this.#store.script(TELL_CANCEL, [keys.cancels(runtimeId)], args);
  }
}

import { define } from './phase.ts';

type Listener = ((event: AbortEvent) => void) | { handleEvent(event: AbortEvent): void };

interface AbortEvent {
  readonly type: 'abort';
  readonly target: Signal;
  readonly currentTarget: Signal;
}

/** Legacy `code` values of the DOMExceptions that this prelude makes; every other name gets 0. */
const CODES: Readonly<Record<string, number>> = { AbortError: 20, TimeoutError: 23 };

class HostDOMException extends Error {
  readonly code: number;

  constructor(message = '', name = 'Error') {
    super(message);
    // Not enumerable, like the standard's `name`: copies of the object leave it out.
    Object.defineProperty(this, 'name', { value: name, configurable: true });
    this.code = CODES[name] ?? 0;
  }
}
Object.defineProperty(HostDOMException, 'name', { value: 'DOMException' });

/** Argument that the constructor requires: guests do not have it, so that only this module can make signals. */
const KEY = Symbol('AbortSignal');

/** Aborts a signal. `Signal` sets this function, because `Controller` cannot call the private method. */
let abort: (signal: Signal, reason: unknown) => void;

/** `AbortSignal` of the DOM standard, without the rest of EventTarget. */
class Signal {
  onabort: ((event: AbortEvent) => void) | null = null;
  #aborted = false;
  #reason: unknown;
  /** Listeners in order; true for a listener that is called only once. */
  readonly #listeners = new Map<Listener, boolean>();
  /** Signals of `any` that abort when this one does. */
  readonly #followers = new Set<Signal>();

  constructor(key?: symbol) {
    if (key !== KEY) throw new TypeError('Illegal constructor: use AbortController');
  }

  static abort(reason?: unknown): Signal {
    const signal = new Signal(KEY);
    abort(signal, reason);
    return signal;
  }

  static timeout(milliseconds: number): Signal {
    if (!(milliseconds >= 0)) throw new TypeError('the time must be a number, 0 or more');
    const signal = new Signal(KEY);
    setTimeout(() => abort(signal, new HostDOMException('The operation timed out.', 'TimeoutError')), milliseconds);
    return signal;
  }

  static any(signals: Iterable<Signal>): Signal {
    const signal = new Signal(KEY);
    const sources = [...signals];
    const first = sources.find(({ aborted }) => aborted);
    if (first) abort(signal, first.reason);
    else for (const source of sources) source.#followers.add(signal);
    return signal;
  }

  static {
    abort = (signal, reason) => signal.#abort(reason);
  }

  get aborted(): boolean {
    return this.#aborted;
  }

  get reason(): unknown {
    return this.#reason;
  }

  throwIfAborted(): void {
    if (this.#aborted) throw this.#reason;
  }

  addEventListener(
    type: string,
    listener: Listener | null,
    options?: boolean | { once?: boolean; signal?: Signal },
  ): void {
    if (type !== 'abort' || listener === null || this.#listeners.has(listener)) return;
    const { once = false, signal = undefined } = typeof options === 'object' ? options : {};
    if (signal?.aborted) return;
    this.#listeners.set(listener, once);
    signal?.addEventListener('abort', () => this.removeEventListener('abort', listener), { once: true });
  }

  removeEventListener(type: string, listener: Listener | null): void {
    if (type === 'abort' && listener !== null) this.#listeners.delete(listener);
  }

  #abort(reason: unknown = new HostDOMException('This operation was aborted', 'AbortError')): void {
    if (this.#aborted) return;
    this.#aborted = true;
    this.#reason = reason;
    const event: AbortEvent = { type: 'abort', target: this, currentTarget: this };
    if (this.onabort) call(this.onabort, event);
    for (const [listener, once] of [...this.#listeners]) {
      if (!this.#listeners.has(listener)) continue;
      if (once) this.#listeners.delete(listener);
      call(listener, event);
    }
    for (const follower of this.#followers) follower.#abort(reason);
    this.#followers.clear();
  }
}
Object.defineProperty(Signal, 'name', { value: 'AbortSignal' });

function call(listener: Listener, event: AbortEvent): void {
  try {
    if (typeof listener === 'function') listener.call(event.target, event);
    else listener.handleEvent(event);
  } catch (error) {
    console.error('Uncaught in a listener of an abort:', error);
  }
}

class Controller {
  readonly signal = new Signal(KEY);

  abort(reason?: unknown): void {
    abort(this.signal, reason);
  }
}
Object.defineProperty(Controller, 'name', { value: 'AbortController' });

define('DOMException', HostDOMException);
define('AbortSignal', Signal);
define('AbortController', Controller);

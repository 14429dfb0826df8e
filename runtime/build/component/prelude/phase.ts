/**
 * A module is evaluated once, when the component is built; every instance starts from that snapshot. Only code inside `run` can call the
 * host. Code that needs the host checks `isRunning`, or registers work for the start of `run` with `onStart`.
 */
let running = false;
const starters: (() => void)[] = [];

export const isRunning = (): boolean => running;

export function onStart(starter: () => void): void {
  starters.push(starter);
}

/** Begins the phase in which the guest can call the host. `wrap` calls it at the beginning of every `run`. */
export function start(): void {
  if (running) return;
  running = true;
  for (const starter of starters) starter();
}

/** Throws an error with advice while the module loads. */
export function requireRunning(what: string): void {
  if (!running) throw new Error(`${what} cannot be used while the module loads (at build time): call it inside run()`);
}

/** Defines a global variable. Like the standard's globals, it is hidden from enumeration. */
export function define(name: string, value: unknown): void {
  Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
}

/** Stands between the message of a thrown error and its stack; see `runtime/lifecycle/verdict.ts`. */
const STACK_MARK = '\0stack\0';

/** Memory that is enough for most runs. */
const ROOM_BYTES = 1 << 20;

/**
 * Makes the component's `run` from the user's. A result that is not a string becomes JSON, and an error becomes an Error with a readable
 * message. Other values would trap in the engine without an explanation.
 */
export function wrap(run: unknown): (input: string) => Promise<string> {
  if (typeof run !== 'function') throw new TypeError('the entry module must export a function named run');
  // Allocate and free memory, which enlarges the snapshot's memory. The pool can reuse an instance only if no run grew its memory.
  new Uint8Array(ROOM_BYTES).fill(0);
  return async function inferlet(input: string): Promise<string> {
    start();
    try {
      return textOf(await run(input));
    } catch (thrown) {
      const stack = thrown instanceof Error && typeof thrown.stack === 'string' ? STACK_MARK + thrown.stack : '';
      throw new Error((messageOf(thrown) + stack).toWellFormed());
    }
  };
}

function textOf(result: unknown): string {
  const text = typeof result === 'string' ? result : JSON.stringify(result ?? null);
  if (text === undefined) throw new TypeError(`run must return JSON or a string; it returned a ${typeof result}`);
  return text.toWellFormed();
}

/** The message of a thrown value; for an error of the host, its case and text. */
function messageOf(thrown: unknown): string {
  if (!(thrown instanceof Error))
    return typeof thrown === 'string' ? thrown : `thrown: ${JSON.stringify(thrown) ?? String(thrown)}`;
  const { payload } = thrown as { payload?: unknown };
  if (typeof payload === 'string') return payload;
  if (payload && typeof payload === 'object' && 'tag' in payload) {
    return 'val' in payload && payload.val ? `${String(payload.tag)}: ${String(payload.val)}` : String(payload.tag);
  }
  if (!thrown.message) return thrown.name;
  return thrown.name === 'Error' ? thrown.message : `${thrown.name}: ${thrown.message}`;
}

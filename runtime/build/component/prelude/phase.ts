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

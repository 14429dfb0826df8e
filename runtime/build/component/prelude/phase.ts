/**
 * A module is evaluated once, when the component is built; every instance starts from that snapshot. Only inside `run` can the host be
 * called. What needs the host asks here, and says what shall happen when `run` starts.
 */
let running = false;
const starters: (() => void)[] = [];

export const isRunning = (): boolean => running;

export function onStart(starter: () => void): void {
  starters.push(starter);
}

/** Called first thing in `run`. */
export function start(): void {
  if (running) return;
  running = true;
  for (const starter of starters) starter();
}

/** Throws when the module is being loaded, with what to do about it. */
export function requireRunning(what: string): void {
  if (!running) throw new Error(`${what} cannot be used while the module loads (at build time): call it inside run()`);
}

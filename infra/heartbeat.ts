import { writeSync } from 'node:fs';

/** Set by the supervisor for children that it watches: the milliseconds between two beats on the lifeline, which is their standard input. */
export const HEARTBEAT_VARIABLE = 'PIE_HEARTBEAT_MS';

const LIFELINE_FD = 0;
const BEAT = Uint8Array.of(0x2e);

/**
 * Writes a byte to the lifeline as often as the supervisor wants, for as long as the event loop of this process turns. No text that this process or its own
 * children print can stand for a beat. Without a supervisor that watches it does nothing.
 */
export function beatToSupervisor(): void {
  const everyMs = Number(process.env[HEARTBEAT_VARIABLE]);
  if (!(everyMs > 0)) return;
  setInterval(() => {
    try {
      writeSync(LIFELINE_FD, BEAT);
    } catch {
      // The supervisor stands still and has not read the earlier ones (EAGAIN), or it is gone, which the lifeline answers.
    }
  }, everyMs).unref();
}

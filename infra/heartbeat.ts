import { writeSync } from 'node:fs';

/** The supervisor sets this for watched children: milliseconds between two beats on the lifeline, which is their standard input. */
export const HEARTBEAT_VARIABLE = 'PIE_HEARTBEAT_MS';

const LIFELINE_FD = 0;
const BEAT = Uint8Array.of(0x2e);

/**
 * Writes a byte to the lifeline at the supervisor's interval while the event loop of this process turns. Output of this process or its
 * children cannot pass for a beat. Does nothing when no supervisor watches this process.
 */
export function beatToSupervisor(): void {
  const everyMs = Number(process.env[HEARTBEAT_VARIABLE]);
  if (!(everyMs > 0)) return;
  setInterval(() => {
    try {
      writeSync(LIFELINE_FD, BEAT);
    } catch {
      // EAGAIN: the supervisor is suspended and has not read earlier beats. Else the supervisor is gone; the lifeline handles that.
    }
  }, everyMs).unref();
}

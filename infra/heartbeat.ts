import { writeSync } from 'node:fs';

/** Variable that the supervisor sets for watched children: milliseconds between two beats on the lifeline, their standard input. */
export const HEARTBEAT_VARIABLE = 'PIE_HEARTBEAT_MS';

const LIFELINE_FD = 0;
const BEAT = Uint8Array.of(0x2e);

/**
 * Writes a byte to the lifeline at the supervisor's interval while the event loop of this process turns. Output of this process or its
 * children goes elsewhere, so it cannot pass for a beat. Does nothing when no supervisor watches this process.
 */
export function beatToSupervisor(): void {
  const everyMs = Number(process.env[HEARTBEAT_VARIABLE]);
  if (!(everyMs > 0)) return;
  setInterval(() => {
    try {
      writeSync(LIFELINE_FD, BEAT);
    } catch {
      // After EAGAIN, the supervisor is suspended and has not read earlier beats. After other errors it is gone, and `lifeline.ts` ends the process.
    }
  }, everyMs).unref();
}

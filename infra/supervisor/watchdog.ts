import type { Socket } from 'node:net';
import { mainThreadTimes } from './thread-times.ts';
import { beginWatch, type Look, look, type SilenceFigures, silenceFigures, type WatchLimits } from './watch-policy.ts';

/**
 * Watches the event loop of a process that beats on a socket (`infra/heartbeat.ts`). Calls `onSilent` once, with the reason
 * and the figures that decided.
 *
 * @returns the function that ends the watch.
 */
export function watch(
  pid: number,
  beats: Socket,
  limits: WatchLimits,
  onSilent: (why: string, figures: SilenceFigures) => void,
): () => void {
  let hasBeaten = false;
  const beat = () => {
    hasBeaten = true;
  };
  const takeLook = (): Look => {
    // Reading the times costs tens of microseconds, and only the times of a silent process count.
    const now = { atMs: performance.now(), hasBeaten, thread: hasBeaten ? null : mainThreadTimes(pid) };
    hasBeaten = false;
    return now;
  };
  beats.on('data', beat);
  let silence = beginWatch(takeLook());
  const timer = setInterval(() => {
    const { silence: next, verdict } = look(silence, takeLook(), limits);
    silence = next;
    if (verdict === 'alive') return;
    end();
    const why =
      verdict === 'computing'
        ? `its event loop did not turn for ${seconds(next.computingMs)} s of processor time`
        : `its event loop stood still for ${seconds(next.stillMs)} s`;
    onSilent(why, silenceFigures(next, limits));
  }, limits.everyMs);
  const end = () => {
    clearInterval(timer);
    beats.off('data', beat);
  };
  return end;
}

const seconds = (ms: number): string => (ms / 1000).toFixed(1);

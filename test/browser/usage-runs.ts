import type { PastRun } from '#gateway/testing/past-runs.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** Example runs of the last 24 hours, which are larger by day than by night, and of the last 30 days. Some fail. One hour and one day have no run. */
export function usageRuns(now: number): readonly PastRun[] {
  const run = (name: string, at: number, size: number, failed = false): PastRun => ({
    function: name,
    at,
    failed,
    usage: {
      inputTokens: 40 * size,
      outputTokens: 90 * size + 7,
      cachedTokens: 25 * size,
      gpuMs: 310 * size,
      cpuMs: 12 * size,
    },
  });
  const hours = Array.from({ length: 24 }, (_, hoursAgo) => hoursAgo)
    .filter((hoursAgo) => hoursAgo !== 3)
    .map((hoursAgo) => {
      const at = now - hoursAgo * HOUR_MS;
      const daily = Math.round(5 + 5 * Math.sin((2 * Math.PI * (new Date(at).getUTCHours() - 8)) / 24));
      return run(hoursAgo % 4 === 0 ? 'chat' : 'story', at, 2 + daily + (hoursAgo % 3), hoursAgo % 9 === 5);
    });
  const days = Array.from({ length: 30 }, (_, index) => index + 1)
    .filter((daysAgo) => daysAgo !== 11)
    .flatMap((daysAgo) => {
      const count = 4 + (daysAgo % 5) - (daysAgo % 7 < 2 ? 2 : 0);
      return Array.from({ length: count }, (_, index) =>
        run('story', now - daysAgo * DAY_MS, 8 + (daysAgo % 4), index === 0 && daysAgo % 8 === 3),
      );
    });
  return [...hours, ...days];
}

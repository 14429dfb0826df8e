import type { PastRun } from '#gateway/testing/past-runs.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** Example runs of the last day, larger by day than by night, and of the last month. Some failed; one hour and one day have no run. */
export function usageRuns(now: number): readonly PastRun[] {
  const run = (name: string, at: number, size: number, failed = false): PastRun => ({
    ...{ function: name, at, failed },
    usage: {
      inputTokens: 40 * size,
      outputTokens: 90 * size + 7,
      cachedTokens: 25 * size,
      gpuMs: 310 * size,
      cpuMs: 12 * size,
    },
  });
  const hours = Array.from({ length: 24 }, (_, hoursAgo) => hoursAgo)
    .filter((back) => back !== 3)
    .map((back) => {
      const at = now - back * HOUR_MS;
      const size = 2 + Math.round(5 + 5 * Math.sin((2 * Math.PI * (new Date(at).getUTCHours() - 8)) / 24)) + (back % 3);
      return run(back % 4 === 0 ? 'chat' : 'story', at, size, back % 9 === 5);
    });
  const days = Array.from({ length: 30 }, (_, index) => index + 1)
    .filter((back) => back !== 11)
    .flatMap((back) => {
      const count = 4 + (back % 5) - (back % 7 < 2 ? 2 : 0);
      return Array.from({ length: count }, (_, index) =>
        run('story', now - back * DAY_MS, 8 + (back % 4), index === 0 && back % 8 === 3),
      );
    });
  return [...hours, ...days];
}

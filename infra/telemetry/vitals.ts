import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import type { MetricFamily } from './family.ts';

/** Variable that the supervisor sets to the number of restarts of this process. */
export const RESTARTS_VARIABLE = 'PIE_RESTARTS';

/** Vital signs of a process. Plain data, so that a GPU host can send them with its counters. */
export interface Vitals {
  readonly uptimeSeconds: number;
  readonly residentBytes: number;
  readonly heapBytes: number;
  readonly cpuSeconds: number;
  /** Longest delay of a timer in the last seconds. */
  readonly loopDelayMaxSeconds: number;
  /** 99th percentile of the delays of timers in the last seconds. */
  readonly loopDelayP99Seconds: number;
  readonly restarts: number;
}

/** Interval of the timer that measures the event loop's delay. */
const RESOLUTION_MS = 20;
/** Shortest span of a delay measurement; readings that come sooner share a span. */
const SPAN_MS = 4000;

/** Starts measuring this process. Returns a function that reads its vital signs. */
export function watchVitals(): () => Vitals {
  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  delay.enable();
  let spanStartMs = performance.now();
  let previousDelay = { max: 0, p99: 0 };
  const restarts = Math.max(0, Math.trunc(Number(process.env[RESTARTS_VARIABLE] ?? 0)) || 0);
  return () => {
    const currentDelay = { max: lateness(delay.max), p99: lateness(delay.percentile(99)) };
    const now = performance.now();
    if (now - spanStartMs >= SPAN_MS) {
      spanStartMs = now;
      previousDelay = currentDelay;
      delay.reset();
    }
    const { user, system } = process.cpuUsage();
    const { rss, heapUsed } = process.memoryUsage();
    return {
      uptimeSeconds: process.uptime(),
      residentBytes: rss,
      heapBytes: heapUsed,
      cpuSeconds: (user + system) / 1e6,
      loopDelayMaxSeconds: Math.max(previousDelay.max, currentDelay.max),
      loopDelayP99Seconds: Math.max(previousDelay.p99, currentDelay.p99),
      restarts,
    };
  };
}

/** Converts a sample in ns to seconds and subtracts the timer's own interval. */
function lateness(sample: number): number {
  return Number.isFinite(sample) ? Math.max(0, sample / 1e9 - RESOLUTION_MS / 1000) : 0;
}

/** Vital signs as metrics. */
export function vitalFamilies(vitals: Vitals): MetricFamily[] {
  const family = (kind: 'counter' | 'gauge', name: string, unit: string, description: string, value: number) =>
    ({ name, unit, description, kind, points: [{ labels: {}, value }] }) satisfies MetricFamily;
  return [
    family('gauge', 'process.uptime', 's', 'Time since the process began.', vitals.uptimeSeconds),
    family('gauge', 'process.memory.usage', 'By', 'Resident memory of the process.', vitals.residentBytes),
    family('gauge', 'v8js.memory.heap.used', 'By', 'JavaScript heap in use.', vitals.heapBytes),
    family('counter', 'process.cpu.time', 's', 'CPU time of the process.', vitals.cpuSeconds),
    family('gauge', 'nodejs.eventloop.delay.max', 's', 'Longest delay of a timer lately.', vitals.loopDelayMaxSeconds),
    family('gauge', 'nodejs.eventloop.delay.p99', 's', 'Delay of timers lately, p99.', vitals.loopDelayP99Seconds),
    family(
      'counter',
      'pie.process.restarts',
      '{restart}',
      'Times that the supervisor started it again.',
      vitals.restarts,
    ),
  ];
}

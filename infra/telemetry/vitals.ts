import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import type { MetricFamily } from './family.ts';

/** Set by the supervisor: how often it has started this process again. */
export const RESTARTS_VARIABLE = 'PIE_RESTARTS';

/** How a process is. Plain data, so that a GPU host's travels with its counters. */
export interface Vitals {
  readonly uptimeSeconds: number;
  readonly residentBytes: number;
  readonly heapBytes: number;
  readonly cpuSeconds: number;
  /** How late timers were in the last seconds, at most and in one of a hundred cases. */
  readonly loopDelayMaxSeconds: number;
  readonly loopDelayP99Seconds: number;
  readonly restarts: number;
}

/** Resolution of the delay's measurement: a timer of the system at this interval. */
const RESOLUTION_MS = 20;
/** The delay is of at least so long; readings that come sooner see the same span. */
const SPAN_MS = 4000;

/** Watches this process. Returns what reads how it is. */
export function watchVitals(): () => Vitals {
  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  delay.enable();
  let since = performance.now();
  let last = { max: 0, p99: 0 };
  const restarts = Math.max(0, Math.trunc(Number(process.env[RESTARTS_VARIABLE] ?? 0)) || 0);
  return () => {
    const seen = { max: lateness(delay.max), p99: lateness(delay.percentile(99)) };
    const now = performance.now();
    if (now - since >= SPAN_MS) {
      since = now;
      last = seen;
      delay.reset();
    }
    const { user, system } = process.cpuUsage();
    const { rss, heapUsed } = process.memoryUsage();
    return {
      uptimeSeconds: process.uptime(),
      residentBytes: rss,
      heapBytes: heapUsed,
      cpuSeconds: (user + system) / 1e6,
      loopDelayMaxSeconds: Math.max(last.max, seen.max),
      loopDelayP99Seconds: Math.max(last.p99, seen.p99),
      restarts,
    };
  };
}

/** Of a sample in nanoseconds, what is beyond the timer's own interval; in seconds. */
function lateness(sample: number): number {
  return Number.isFinite(sample) ? Math.max(0, sample / 1e9 - RESOLUTION_MS / 1000) : 0;
}

/** How a process is, as metrics. */
export function vitalFamilies(vitals: Vitals): MetricFamily[] {
  const one = (kind: 'counter' | 'gauge', name: string, unit: string, description: string, value: number) =>
    ({ name, unit, description, kind, points: [{ labels: {}, value }] }) satisfies MetricFamily;
  return [
    one('gauge', 'process.uptime', 's', 'Time since the process began.', vitals.uptimeSeconds),
    one('gauge', 'process.memory.usage', 'By', 'Resident memory of the process.', vitals.residentBytes),
    one('gauge', 'v8js.memory.heap.used', 'By', 'JavaScript heap in use.', vitals.heapBytes),
    one('counter', 'process.cpu.time', 's', 'CPU time of the process.', vitals.cpuSeconds),
    one('gauge', 'nodejs.eventloop.delay.max', 's', 'Longest delay of a timer lately.', vitals.loopDelayMaxSeconds),
    one('gauge', 'nodejs.eventloop.delay.p99', 's', 'Delay of timers lately, p99.', vitals.loopDelayP99Seconds),
    one('counter', 'pie.process.restarts', '{restart}', 'Times that the supervisor started it again.', vitals.restarts),
  ];
}

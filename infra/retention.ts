import { z } from 'zod';

/** Retention of invocations' data; same members as the scheduler's `Retention`. Except for logs, times count from the invocation's end. */
export interface RetentionConfig {
  readonly recordMs: number;
  readonly eventsMs: number;
  readonly resultsMs: number;
  readonly filesMs: number;
  /** Counts from the last line of a function's log. */
  readonly logMs: number;
  readonly logLines: number;
  readonly idempotencyMs: number;
}

const UNITS = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;
const SHORTEST_MS = 1000;
const LONGEST_MS = 366 * UNITS.d;

/** `30s`, `10m`, `2h`, `7d` in milliseconds. */
const time = z
  .string()
  .regex(/^[1-9]\d{0,7}[smhd]$/, 'must be a time such as "30m", "12h" or "7d"')
  .transform((text) => Number(text.slice(0, -1)) * UNITS[text.slice(-1) as keyof typeof UNITS])
  .refine((ms) => ms >= SHORTEST_MS && ms <= LONGEST_MS, 'must be between "1s" and "366d"');

/** `[retention]` of pie.toml. */
export const retentionSchema = z
  .strictObject({
    records: time.prefault('7d'),
    events: time.prefault('1d'),
    results: time.optional(),
    files: time.prefault('1d'),
    logs: time.prefault('7d'),
    log_lines: z.int().min(10).max(100_000).default(2000),
    idempotency: time.prefault('1d'),
  })
  .transform(
    ({ records, events, results = events, files, logs, log_lines, idempotency }): RetentionConfig => ({
      recordMs: records,
      eventsMs: events,
      resultsMs: results,
      filesMs: files,
      logMs: logs,
      logLines: log_lines,
      idempotencyMs: idempotency,
    }),
  )
  .superRefine(({ recordMs, eventsMs, resultsMs, filesMs, idempotencyMs }, context) => {
    const refuse = (field: string, message: string) => context.addIssue({ code: 'custom', path: [field], message });
    if (eventsMs > recordMs) refuse('events', 'cannot be kept for longer than records, by which they are found');
    if (filesMs > recordMs) refuse('files', 'cannot be kept for longer than records, by which they are found');
    if (resultsMs > recordMs) refuse('results', 'cannot be kept for longer than records, by which they are found');
    if (resultsMs < eventsMs)
      refuse('results', 'cannot be kept for a shorter time than events: the result is the last event');
    if (idempotencyMs > resultsMs)
      refuse('idempotency', 'cannot be kept for longer than results, which a repeated request gets');
  });

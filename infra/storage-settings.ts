import path from 'node:path';
import { z } from 'zod';
import { ConfigError } from './config-error.ts';

/** Storage that all machines share. */
export interface StorageSettings {
  /** Directory in which runtimes keep copies of the saved contexts and KV files that inferlets make durable; absent when there is none. */
  readonly sharedDirectory?: string;
  /** Names under which one tenant may have copies. */
  readonly tenantNames: number;
  /** Size of all copies of one tenant together. */
  readonly tenantMb: number;
}

export const storageSchema = z
  .strictObject({
    shared_directory: z
      .string()
      .refine((directory) => path.isAbsolute(directory), { error: 'must be an absolute path, such as /mnt/pie' })
      .optional(),
    tenant_names: z.int().min(0).max(4096).default(256),
    tenant_mb: z.int().min(0).max(16_777_216).default(4096),
  })
  .prefault({});

/** @throws ConfigError for a directory in the home, which belongs to one machine */
export function storageSettings(file: z.output<typeof storageSchema>, home: string): StorageSettings {
  const bounds = { tenantNames: file.tenant_names, tenantMb: file.tenant_mb };
  if (file.shared_directory === undefined) return bounds;
  const sharedDirectory = path.resolve(file.shared_directory);
  const fromHome = path.relative(home, sharedDirectory);
  if (!fromHome.startsWith('..') && !path.isAbsolute(fromHome)) {
    throw new ConfigError(
      `shared_directory below [storage] is in the home ${home}, which belongs to one machine. Name a directory that all machines mount.`,
    );
  }
  return { sharedDirectory, ...bounds };
}

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

/** Name of the process that holds the tenants' vector indexes. */
export const INDEX_HOST = 'index-host';

export interface IndexSettings {
  /** Unix socket on which the process serves the runtime of its machine. */
  readonly socket: string;
  readonly directory: string;
  /** Memory of the open indexes together. */
  readonly memoryMb: number;
  /** Indexes that one tenant may have. */
  readonly tenantIndexes: number;
  /** Entries of all indexes of one tenant together. */
  readonly tenantEntries: number;
  /** Size of all indexes of one tenant together. */
  readonly tenantMb: number;
}

export const indexSchema = z
  .strictObject({
    memory_mb: z.int().min(64).max(1_048_576).default(1024),
    tenant_indexes: z.int().min(0).max(10_000).default(64),
    tenant_entries: z.int().min(0).max(10_000_000).default(250_000),
    tenant_mb: z.int().min(0).max(1_048_576).default(512),
  })
  .prefault({});

export function indexSettings(file: z.output<typeof indexSchema>, home: string, runDirectory: string): IndexSettings {
  return {
    socket: path.join(runDirectory, 'index-host.sock'),
    directory: path.join(home, 'indexes'),
    memoryMb: file.memory_mb,
    tenantIndexes: file.tenant_indexes,
    tenantEntries: file.tenant_entries,
    tenantMb: file.tenant_mb,
  };
}

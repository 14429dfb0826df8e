import path from 'node:path';
import { z } from 'zod';

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

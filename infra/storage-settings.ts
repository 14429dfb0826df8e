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

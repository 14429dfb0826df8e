/**
 * The records that a backup contains: objects that operators and tenants made, and counters. A backup leaves out
 * invocations, their queues, logs and files, leases, metrics and data that the platform recreates. Keys are without the
 * platform's prefix, see `scheduler/keys.ts`.
 */
const KEPT = [
  /^(functions|tenant|tenant-keys|schedules|webhook-secret):[^:]+$/,
  /^function:[^:]+:[^:]+(:removed|:history:[^:]+|:conduct:[^:]+)?$/,
  /^(deployed|removals|tenants|store-sweeps|scheduled-tenants|master-key|drained|shared-folder|audit|guarded-audit)$/,
  /^blob:[0-9a-f]{64}(:users)?$/,
  /^key:[0-9a-f]{64}$/,
  /^(audit|guarded-audit):[^:]+$/,
  /^secrets:[^:]+(:values)?$/,
  // A restore brings back no invocations, files or logs, so a backup leaves out the counters of them.
  /^account:[^:]+:(?!(open|redis|redis-ends|latency|grants)$).+$/s,
  /^store:[^:]+:(values|names|expiries|usage)$/,
  // Message queues. Their names may contain any characters.
  /^line:[^:]+:.+:(messages|state)$/s,
  /^lines:[^:]+:(usage|expiries)$/,
  /^machines:(removed|joined)$/,
  /^name-owners:[^:]+:.+$/s,
  /^durable-names:[^:]+$/,
];

/** True for a record that a backup has. Pure. */
export function isKept(key: string): boolean {
  return KEPT.some((pattern) => pattern.test(key));
}

/** True for a record that only older backups contain. Such a backup can be restored, and the restore leaves the record out. Pure. */
export function wasKept(key: string): boolean {
  return /^account:[^:]+:(redis|redis-ends|latency)$/.test(key);
}

/** The SHA-256 that the bytes of a component must have, by its key; undefined for other keys. */
export function componentHash(key: string): string | undefined {
  return /^blob:([0-9a-f]{64})$/.exec(key)?.[1];
}

/** True for the key of a record with sealed values. */
export function holdsSealed(key: string): boolean {
  return /^secrets:[^:]+:values$/.test(key) || key.startsWith('webhook-secret:');
}

/** True for the key of a record with function versions, whose environments are sealed. */
export function holdsVersions(key: string): boolean {
  return /^function:[^:]+:[^:]+(:removed)?$/.test(key);
}

/** Databases of vector indexes, by tenant. A backup leaves out the graphs, which are rebuilt from the databases. */
const INDEX_FILE = /^indexes\/[0-9a-f]{32}\/[\w.-]+\/records\.db$/;

const FILES = [
  // Persistent exports and KV files of a GPU host's model, by tenant.
  /^kv\/[^/\0]+\/[^/\0]+\/[0-9a-f]{40}\/[a-z]+-[0-9a-f]{40}\.kv$/,
  INDEX_FILE,
];

/** True for a file of the home that a backup has, by its path relative to the home, with slashes. Pure. */
export function isKeptFile(path: string): boolean {
  const hasPlainParts = !path.split('/').some((part) => /^\.*$/.test(part));
  return FILES.some((pattern) => pattern.test(path)) && hasPlainParts;
}

/** True for the database of a vector index, by its path as for {@link isKeptFile}. Pure. */
export function isIndexFile(path: string): boolean {
  return INDEX_FILE.test(path);
}

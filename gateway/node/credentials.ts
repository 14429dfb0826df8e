import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { PLATFORM_ACTOR } from '#scheduler/tenants/audit.ts';
import { MAX_KEYS } from '#scheduler/tenants/rules.ts';
import { SCOPES } from '../app/control.ts';
import { type Credentials, parseCredentials } from './credentials-file.ts';

export const DEFAULT_TENANT = 'default';
/** Name that each machine's key has in the tenant. */
const KEY_NAME = 'credentials.json';
/** Maximum keys of that name. A machine that leaves for good, such as a pod with a new home at each start, leaves its key behind. */
const MAX_MACHINE_KEYS = MAX_KEYS / 2;
/** A key that was made or used within this time may belong to a machine that runs. */
const RECENT_MS = 24 * 3_600_000;

/**
 * Ensures that `$PIE_HOME/credentials.json` (mode 0600) holds this gateway's address and a working key. Keeps a key that works, with its
 * scopes, even while its tenant is suspended. Makes a new key of the tenant `default` on the first start, and when the old key has expired or is
 * unknown to the store.
 */
export async function ensureCredentials(
  home: string,
  url: string,
  { tenants, apiKeys, store }: Pick<Scheduler, 'tenants' | 'apiKeys' | 'store'>,
): Promise<Credentials> {
  const file = path.join(home, 'credentials.json');
  const oldCredentials = await readCredentials(file);
  await tenants.ensure(DEFAULT_TENANT);
  const authentication = oldCredentials === null ? null : await apiKeys.authenticate(oldCredentials.apiKey);
  const knownCredentials =
    authentication?.kind === 'valid' || authentication?.kind === 'suspended' ? oldCredentials : null;
  const apiKey = knownCredentials?.apiKey ?? (await newKey(apiKeys, store.clock()));
  const credentials = { url, apiKey };
  if (knownCredentials === null || knownCredentials.url !== url)
    await writePrivately(file, `${JSON.stringify(credentials, null, 2)}\n`);
  return credentials;
}

async function newKey(apiKeys: Scheduler['apiKeys'], now: number): Promise<string> {
  await makeRoom(apiKeys, now);
  const outcome = await apiKeys.create(DEFAULT_TENANT, { name: KEY_NAME, scopes: SCOPES }, PLATFORM_ACTOR);
  if (outcome.kind !== 'created') {
    throw new Error(
      `The tenant "${DEFAULT_TENANT}" has the maximum number of keys; remove some with \`pie keys remove\`.`,
    );
  }
  return outcome.apiKey;
}

/** Makes room for a new key within `MAX_KEYS` and `MAX_MACHINE_KEYS`: removes the machine keys that have been unused longest, but no recent ones. */
async function makeRoom(apiKeys: Scheduler['apiKeys'], now: number): Promise<void> {
  const allKeys = await apiKeys.list(DEFAULT_TENANT);
  const machineKeys = allKeys
    .filter(({ name }) => name === KEY_NAME)
    .map(({ id, createdAt, lastUsedAt }) => ({ id, at: Math.max(createdAt, lastUsedAt ?? 0) }))
    .sort((a, b) => a.at - b.at);
  const unusedKeys = machineKeys.filter(({ at }) => now - at > RECENT_MS);
  const excess = Math.max(0, machineKeys.length + 1 - MAX_MACHINE_KEYS, allKeys.length + 1 - MAX_KEYS);
  for (const { id } of unusedKeys.slice(0, excess)) await apiKeys.remove(DEFAULT_TENANT, id, { actor: PLATFORM_ACTOR });
}

/** The credentials in a file, or null when the file is missing or invalid. */
async function readCredentials(file: string): Promise<Credentials | null> {
  try {
    return parseCredentials(await readFile(file, 'utf8'));
  } catch (error) {
    if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}

/** Writes a file that other users cannot read at any moment, and of which no reader sees a part. */
async function writePrivately(file: string, text: string): Promise<void> {
  await mkdir(path.dirname(file), { recursive: true });
  const draft = `${file}.${process.pid}.tmp`;
  try {
    await writeFile(draft, text, { mode: 0o600, flag: 'wx' });
    await rename(draft, file);
  } finally {
    await rm(draft, { force: true });
  }
}

import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { z } from 'zod';
import { SCOPES } from '../app/control.ts';
import type { Keys } from './keys.ts';

export const DEFAULT_TENANT = 'default';

const schema = z.object({ url: z.string(), apiKey: z.string() });

/** What `credentials.json` holds: how the command on this machine reaches the gateway. */
export type Credentials = z.output<typeof schema>;

/**
 * Sees to it that `$PIE_HOME/credentials.json` (mode 0600) holds this gateway's address and a key of the tenant `default` that works. A
 * key that works is kept; a new one, with every scope, is made on the first start and when the store has lost the old one.
 */
export async function ensureCredentials(home: string, url: string, keys: Keys): Promise<Credentials> {
  const file = path.join(home, 'credentials.json');
  const old = await readCredentials(file);
  await keys.ensureTenant(DEFAULT_TENANT);
  const works = old !== null && (await keys.authenticate(old.apiKey)) !== null;
  const apiKey = works ? old.apiKey : (await keys.create(DEFAULT_TENANT, SCOPES)).apiKey;
  const credentials = { url, apiKey };
  if (!works || old.url !== url) await writePrivately(file, `${JSON.stringify(credentials, null, 2)}\n`);
  return credentials;
}

/** The credentials in a file, or null when it is missing or unreadable as such. */
export async function readCredentials(file: string): Promise<Credentials | null> {
  try {
    const parsed = schema.safeParse(JSON.parse(await readFile(file, 'utf8')));
    return parsed.success ? parsed.data : null;
  } catch (error) {
    if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}

/** Never readable by others, not even for a moment, and never half written. */
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

import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { z } from 'zod';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { PLATFORM_ACTOR } from '#scheduler/tenants/audit.ts';
import { SCOPES } from '../app/control.ts';

export const DEFAULT_TENANT = 'default';
/** Name of the key in its tenant. */
const KEY_NAME = 'credentials.json';

const schema = z.object({ url: z.string(), apiKey: z.string() });

/** Content of `credentials.json`: the gateway's address and key for the command on this machine. */
export type Credentials = z.output<typeof schema>;

/**
 * Ensures that `$PIE_HOME/credentials.json` (mode 0600) holds this gateway's address and a working key of the tenant `default`. Keeps a
 * working key and its scopes (a key that was made before keys had names gets every scope). Makes a new key on the first start, and when the
 * store has lost the old one.
 */
export async function ensureCredentials(
  home: string,
  url: string,
  { tenants, apiKeys }: Pick<Scheduler, 'tenants' | 'apiKeys'>,
): Promise<Credentials> {
  const file = path.join(home, 'credentials.json');
  const old = await readCredentials(file);
  await tenants.ensure(DEFAULT_TENANT);
  const known = old === null ? null : await apiKeys.authenticate(old.apiKey);
  const works = known?.kind === 'valid' || known?.kind === 'suspended' ? old : null;
  if (works !== null && known?.kind === 'valid' && known.holder.tenant === DEFAULT_TENANT) {
    await apiKeys.adopt(works.apiKey, KEY_NAME, SCOPES, PLATFORM_ACTOR);
  }
  const apiKey = works?.apiKey ?? (await newKey(apiKeys));
  const credentials = { url, apiKey };
  if (works === null || works.url !== url) await writePrivately(file, `${JSON.stringify(credentials, null, 2)}\n`);
  return credentials;
}

async function newKey(apiKeys: Scheduler['apiKeys']): Promise<string> {
  const outcome = await apiKeys.create(DEFAULT_TENANT, { name: KEY_NAME, scopes: SCOPES }, PLATFORM_ACTOR);
  if (outcome.kind !== 'created') {
    throw new Error(`The tenant "${DEFAULT_TENANT}" has as many keys as may be; remove some with \`pie keys remove\`.`);
  }
  return outcome.apiKey;
}

/** The credentials in a file, or null when the file is missing or invalid. */
export async function readCredentials(file: string): Promise<Credentials | null> {
  try {
    const parsed = schema.safeParse(JSON.parse(await readFile(file, 'utf8')));
    return parsed.success ? parsed.data : null;
  } catch (error) {
    if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}

/** Other users can never read the file, not even for a moment, and no reader sees a partial file. */
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

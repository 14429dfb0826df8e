import { hkdfSync } from 'node:crypto';
import type { MasterKeys } from '#scheduler/secrets/master-keys.ts';

/** Derives the secret of the dashboard's sessions from the master key, so that all gateways share this secret and it survives restarts. */
export async function sessionSecret(masterKeys: MasterKeys): Promise<Uint8Array> {
  const { key } = await masterKeys.first();
  return new Uint8Array(hkdfSync('sha256', key, '', 'pie dashboard', 32));
}

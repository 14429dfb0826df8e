import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import type { MasterKey, MasterKeys } from './master-keys.ts';

const ALGORITHM = 'aes-256-gcm';
/** Length that NIST SP 800-38D recommends. */
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** The owner of a value; a value sealed for one owner does not open for another. */
export interface Owner {
  readonly tenant: string;
  readonly name: string;
}

/** Seals a value for storage: `<id of the master key>.<nonce, text, tag in base64url>`. */
export function seal({ id, key }: MasterKey, owner: Owner, value: string): string {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES }).setAAD(additionalData(owner));
  const text = Buffer.concat([cipher.update(value, 'utf8'), cipher.final()]);
  return `${id}.${Buffer.concat([nonce, text, cipher.getAuthTag()]).toString('base64url')}`;
}

/** Opens a sealed value. Throws when its key is unknown or the value belongs to another owner. */
export async function unseal(keys: MasterKeys, owner: Owner, sealed: string): Promise<string> {
  const at = sealed.indexOf('.');
  const id = sealed.slice(0, Math.max(0, at));
  const bytes = Buffer.from(sealed.slice(at + 1), 'base64url');
  const key = await keys.byId(id);
  if (key === null) throw new Error(`it is sealed under the master key ${id}, which is not known here`);
  if (bytes.length < NONCE_BYTES + TAG_BYTES) throw new Error('the stored value is too short');
  const decipher = createDecipheriv(ALGORITHM, key.key, bytes.subarray(0, NONCE_BYTES), { authTagLength: TAG_BYTES })
    .setAAD(additionalData(owner))
    .setAuthTag(bytes.subarray(-TAG_BYTES));
  const text = decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES));
  return Buffer.concat([text, decipher.final()]).toString('utf8');
}

/** Neither name contains a NUL, so the fields are unambiguous. */
function additionalData({ tenant, name }: Owner): Buffer {
  return Buffer.from(`pie-secret\0${tenant}\0${name}`);
}

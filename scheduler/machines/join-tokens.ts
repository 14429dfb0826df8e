import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';
import { z } from 'zod';
import { type MasterKeys, seal, unseal } from '../secrets/master-keys.ts';
import type { Store } from '../store/store.ts';
import { ROLES } from './types.ts';

const entry = z.object({
  key: z.base64(),
  /** Roles that the machine may have. */
  roles: z.array(z.enum(ROLES)).readonly(),
  /** Id of the API key that made the token, for the audit log. */
  by: z.string(),
  /** Tenant of that API key. */
  tenant: z.string(),
});

/** Rights that an operator gave a token. */
export type JoinPermission = Readonly<Omit<z.output<typeof entry>, 'key'>>;

/**
 * Tokens that operators have made and that no machine has used yet; `RedisUsers.grant` uses a token up. Redis deletes a token when it expires. Tokens
 * are sealed under the master key: a machine that may write to Redis, but lacks the master key, can neither read a token nor make or change one.
 */
export class JoinTokens {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /** Makes a token. Returns its text, which the platform does not store. */
  async create(masterKeys: MasterKeys, ttlMs: number, permission: JoinPermission): Promise<string> {
    const { id, key, text } = newJoinToken();
    const newEntry: z.output<typeof entry> = { ...permission, key: key.toString('base64') };
    const sealed = seal(await masterKeys.first(), ownerOf(id), JSON.stringify(newEntry));
    await this.#store.call((redis) => redis.set(this.#store.keys.joinToken(id), sealed, 'PX', ttlMs));
    return text;
  }

  /**
   * Key and permission of an unused token; null for the id of no such token, and for an entry that cannot be unsealed.
   * @throws when the master keys cannot be read
   */
  async find(masterKeys: MasterKeys, id: string): Promise<(JoinPermission & { readonly key: Buffer }) | null> {
    const sealed = await this.#store.call((redis) => redis.get(this.#store.keys.joinToken(id)));
    if (sealed === null) return null;
    // The text before the first dot is the id of the master key. This look-up is outside the `try`, because the token is not at fault when the
    // master keys cannot be read.
    const masterKeyId = sealed.slice(0, Math.max(0, sealed.indexOf('.')));
    if ((await masterKeys.byId(masterKeyId)) === null) return null;
    try {
      const { key, ...permission } = entry.parse(JSON.parse(await unseal(masterKeys, ownerOf(id), sealed)));
      return { ...permission, key: Buffer.from(key, 'base64') };
    } catch {
      return null;
    }
  }
}

/** The owner that `seal` binds a token to; no secret of a tenant has such an owner. */
const ownerOf = (id: string) => ({ tenant: '', name: `join ${id}` });

const SECRET_BYTES = 32;
const ID_BYTES = 9;
const NONCE_BYTES = 12;
/** Start of a nonce that states the newest version that the sender speaks; the version follows. Other nonces are random bytes. */
const NEWEST_MARK = Buffer.from('pie>');
const NEWEST_BYTES = 2;
const TAG_BYTES = 16;
const CIPHER = 'aes-256-gcm';
/** The id and the secret, in base64url: 12 characters for 9 bytes, 43 for 32. */
const TOKEN = /^pie-join\.([A-Za-z0-9_-]{12})\.([A-Za-z0-9_-]{43})$/;

/** A token that lets one machine join. The machine sends the token's id to the gateway; the key never travels. */
export interface JoinToken {
  readonly id: string;
  /** Seals the messages of both sides. */
  readonly key: Buffer;
}

/** Creates a token, with its text for the operator. */
export function newJoinToken(): JoinToken & { readonly text: string } {
  const secret = randomBytes(SECRET_BYTES);
  const id = randomBytes(ID_BYTES).toString('base64url');
  return { id, key: keyOf(secret), text: `pie-join.${id}.${secret.toString('base64url')}` };
}

/** Reads the text of a token; null for anything else. */
export function parseJoinToken(text: string): JoinToken | null {
  const [, id, secret] = TOKEN.exec(text.trim()) ?? [];
  return id === undefined || secret === undefined ? null : { id, key: keyOf(Buffer.from(secret, 'base64url')) };
}

/** Data that a message is bound to. */
export interface JoinContext {
  /** Keeps a side from taking its own message for one of the other side. */
  readonly direction: 'request' | 'answer';
  /** The version that both sides speak. */
  readonly version: number;
}

/**
 * Encrypts a message under a token's key. The gateway may speak plain HTTP, and the answer holds the master key: an attacker on the path who
 * lacks the token learns nothing from the messages, and both sides notice each change.
 * @param newest newest version that the sender speaks. It goes into the nonce: all releases can read a nonce, and decryption fails when the nonce
 *   was changed.
 */
export function sealJoin(key: Buffer, context: JoinContext, message: unknown, newest?: number): string {
  const nonce = randomBytes(NONCE_BYTES);
  if (newest !== undefined) {
    NEWEST_MARK.copy(nonce);
    nonce.writeUInt16BE(newest, NEWEST_MARK.length);
  }
  const cipher = createCipheriv(CIPHER, key, nonce).setAAD(additionalData(context));
  const sealed = Buffer.concat([cipher.update(JSON.stringify(message), 'utf8'), cipher.final()]);
  return Buffer.concat([nonce, sealed, cipher.getAuthTag()]).toString('base64url');
}

/** Decrypts a message; null when it was not sealed under this key in this context. */
export function openJoin(key: Buffer, context: JoinContext, sealed: string): unknown {
  const bytes = Buffer.from(sealed, 'base64url');
  if (bytes.length < NONCE_BYTES + TAG_BYTES) return null;
  const decipher = createDecipheriv(CIPHER, key, bytes.subarray(0, NONCE_BYTES)).setAAD(additionalData(context));
  decipher.setAuthTag(bytes.subarray(-TAG_BYTES));
  try {
    const text = Buffer.concat([decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES)), decipher.final()]);
    return JSON.parse(text.toString('utf8')) as unknown;
  } catch {
    return null; // Another key, or changed bytes.
  }
}

/**
 * Newest version that the sender of an opened message speaks; null when the message states none. The gateway first states its versions in
 * plain text, where an attacker on the path can lower them. The version returned here is protected by the message's encryption, so a comparison
 * with it shows that they were lowered (as in TLS 1.3, RFC 8446, section 4.1.3).
 */
export function newestSpoken(sealed: string): number | null {
  const nonce = Buffer.from(sealed, 'base64url').subarray(0, NONCE_BYTES);
  const isStated = nonce.subarray(0, NEWEST_MARK.length).equals(NEWEST_MARK);
  return isStated && nonce.length >= NEWEST_MARK.length + NEWEST_BYTES ? nonce.readUInt16BE(NEWEST_MARK.length) : null;
}

const additionalData = ({ direction, version }: JoinContext): Buffer => Buffer.from(`${direction} ${version}`);

const keyOf = (secret: Buffer): Buffer => Buffer.from(hkdfSync('sha256', secret, '', 'pie join', SECRET_BYTES));

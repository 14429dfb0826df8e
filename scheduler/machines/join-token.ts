import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';
import { SILENT_JOIN_VERSION } from './join-versions.ts';

const SECRET_BYTES = 32;
const ID_BYTES = 9;
const NONCE_BYTES = 12;
/** In a nonce, precedes the newest version that the sender speaks. A sender that states none has random bytes there. */
const NEWEST_MARK = Buffer.from('pie>');
const NEWEST_BYTES = 2;
const TAG_BYTES = 16;
const CIPHER = 'aes-256-gcm';
/** The id and the secret, in base64url: 12 characters for 9 bytes, 43 for 32. */
const TOKEN = /^pie-join\.([A-Za-z0-9_-]{12})\.([A-Za-z0-9_-]{43})$/;

/** A token that lets one machine join. Its id names it to the gateway; its key never travels. */
export interface JoinToken {
  readonly id: string;
  /** Seals the messages of both sides. */
  readonly key: Buffer;
}

/** A new token, and its text for the operator. */
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

/** The direction of a message, so that neither side takes its own message for the other's, and the version that both sides speak. */
export interface JoinContext {
  readonly direction: 'request' | 'answer';
  readonly version: number;
}

/**
 * Encrypts a message under a token's key. The gateway may speak plain HTTP, and the answer holds the master key: an
 * attacker on the way who lacks the token learns nothing from the messages, and both sides notice each change.
 * @param newest newest version that the sender speaks. It goes into the nonce: all releases can read a nonce, and the
 *   cipher reveals a changed one.
 */
export function sealJoin(key: Buffer, context: JoinContext, message: unknown, newest?: number): string {
  const nonce = randomBytes(NONCE_BYTES);
  // `copy` returns the length of the mark: the version follows it.
  if (newest !== undefined) nonce.writeUInt16BE(newest, NEWEST_MARK.copy(nonce));
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
 * Newest version that the sender of an opened message speaks; null from a release that states none. A gateway first
 * states its versions in plain text, and an attacker on the path can lower them. This version, which the message
 * protects, shows that they were lowered (compare TLS 1.3, RFC 8446, section 4.1.3).
 */
export function newestSpoken(sealed: string): number | null {
  const nonce = Buffer.from(sealed, 'base64url').subarray(0, NONCE_BYTES);
  const isStated = nonce.subarray(0, NEWEST_MARK.length).equals(NEWEST_MARK);
  return isStated && nonce.length >= NEWEST_MARK.length + NEWEST_BYTES ? nonce.readUInt16BE(NEWEST_MARK.length) : null;
}

const additionalData = ({ direction, version }: JoinContext): Buffer =>
  Buffer.from(version === SILENT_JOIN_VERSION ? direction : `${direction} ${version}`);

const keyOf = (secret: Buffer): Buffer => Buffer.from(hkdfSync('sha256', secret, '', 'pie join', SECRET_BYTES));

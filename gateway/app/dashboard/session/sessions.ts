import type { CreatedKey } from '../../schemas/tenants.ts';

/** A browser's sign-in. */
export interface Session {
  /** The gateway authenticates the key with every request, so removing the key ends the session. */
  readonly apiKey: string;
  /** Random; names the session in form tokens. */
  readonly id: string;
  /** Milliseconds since the Unix epoch. */
  readonly expiresAt: number;
}

/** A key that a form has created, on its way to the page that shows it. */
export type NewKeyText = Readonly<Pick<CreatedKey, 'name' | 'id' | 'apiKey'>>;

export const SESSION_MS = 8 * 3_600_000;
/** Time in which the browser must follow the redirect to the page that shows a new key. */
export const NEW_KEY_MS = 60_000;
/** Minimum length of the server's secret, so that it cannot be guessed. */
const SECRET_BYTES = 32;

const ID_BYTES = 16;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/** Maximum characters of a cookie. A sealed session has about 140 characters, a sealed key at most about 480. */
const MAX_COOKIE_LENGTH = 1024;
type DeriveKey = Parameters<typeof crypto.subtle.deriveKey>;

const BASE64URL = { alphabet: 'base64url', omitPadding: true } as const;

interface Keys {
  readonly seal: CryptoKey;
  readonly forms: CryptoKey;
}

/**
 * Makes and reads session cookies: the API key, sealed with AES-GCM under the server's secret. The gateway stores nothing, so any gateway
 * with the same secret knows the session, and the cookie is worthless without the secret.
 *
 * @example
 * const sessions = new Sessions(secret);
 * const cookie = await sessions.seal(sessions.begin(apiKey, Date.now()));
 * await sessions.open(cookie, Date.now()); // the session, or null
 */
export class Sessions {
  readonly #givenSecret: Uint8Array | undefined;
  #keys: Keys | undefined;
  #randomSecret: Uint8Array | undefined;

  /** `secret` has at least 32 bytes; a shorter one throws `RangeError`. Without a secret, a random one is used, and sessions end with this object. */
  constructor(secret?: Uint8Array) {
    if (secret !== undefined && secret.length < SECRET_BYTES)
      throw new RangeError(`a session secret has at least ${SECRET_BYTES} bytes`);
    this.#givenSecret = secret;
  }

  begin(apiKey: string, now: number): Session {
    return { apiKey, id: randomBytes(ID_BYTES).toBase64(BASE64URL), expiresAt: now + SESSION_MS };
  }

  /** The value of the session's cookie. */
  seal({ apiKey, id, expiresAt }: Session): Promise<string> {
    return this.#encrypt([apiKey, id, expiresAt], '');
  }

  /** The session of a cookie; null when the cookie was sealed under another secret, was changed, or has expired. */
  async open(cookie: string, now: number): Promise<Session | null> {
    const content = (await this.#decrypt(cookie, '')) as [string, string, number] | null;
    if (content === null) return null;
    const [apiKey, id, expiresAt] = content;
    return expiresAt > now ? { apiKey, id, expiresAt } : null;
  }

  /** The value of the cookie that carries a new key over a redirect. Only the same session can open it, and it is not valid as a session cookie. */
  sealNewKey(session: Session, { name, id, apiKey }: NewKeyText, now: number): Promise<string> {
    return this.#encrypt([name, id, apiKey, now + NEW_KEY_MS], newKeyOf(session));
  }

  /** The new key of a cookie; null when `sealNewKey` did not seal it for this session, or it has expired. */
  async openNewKey(session: Session, cookie: string, now: number): Promise<NewKeyText | null> {
    const content = (await this.#decrypt(cookie, newKeyOf(session))) as [string, string, string, number] | null;
    if (content === null) return null;
    const [name, id, apiKey, expiresAt] = content;
    return expiresAt > now ? { name, id, apiKey } : null;
  }

  /** The token in every form of this session. Only a reader of the session's pages can know the token. */
  async formToken({ id }: Session): Promise<string> {
    const { forms } = await this.#deriveKeys();
    const mac = await crypto.subtle.sign('HMAC', forms, new TextEncoder().encode(id));
    return new Uint8Array(mac).toBase64(BASE64URL);
  }

  /** True when a form came from a page of this session. The comparison takes the same time for every wrong token. */
  async isFormToken({ id }: Session, token: string): Promise<boolean> {
    const mac = token.length > MAX_COOKIE_LENGTH ? null : bytesOf(token);
    if (mac === null) return false;
    const { forms } = await this.#deriveKeys();
    return crypto.subtle.verify('HMAC', forms, mac, new TextEncoder().encode(id));
  }

  /** Seals a JSON value. Only `#decrypt` with the same purpose opens the result. */
  async #encrypt(value: readonly unknown[], purpose: string): Promise<string> {
    const { seal } = await this.#deriveKeys();
    const nonce = randomBytes(NONCE_BYTES);
    const plaintext = new TextEncoder().encode(JSON.stringify(value));
    const ciphertext = new Uint8Array(await crypto.subtle.encrypt(cipher(nonce, purpose), seal, plaintext));
    const sealedBytes = new Uint8Array(nonce.length + ciphertext.length);
    sealedBytes.set(nonce);
    sealedBytes.set(ciphertext, nonce.length);
    return sealedBytes.toBase64(BASE64URL);
  }

  async #decrypt(cookie: string, purpose: string): Promise<unknown> {
    const sealedBytes = cookie.length > MAX_COOKIE_LENGTH ? null : bytesOf(cookie);
    if (sealedBytes === null || sealedBytes.length <= NONCE_BYTES + TAG_BYTES) return null;
    const { seal } = await this.#deriveKeys();
    const nonce = sealedBytes.slice(0, NONCE_BYTES);
    const plaintext = await crypto.subtle
      .decrypt(cipher(nonce, purpose), seal, sealedBytes.subarray(NONCE_BYTES))
      // A cookie that fails to open was changed, or sealed under another secret or for another purpose.
      .catch(() => null);
    return plaintext === null ? null : JSON.parse(new TextDecoder().decode(plaintext));
  }

  /** Caches the keys rather than a promise: in workerd a request must not wait for another request's promise. */
  async #deriveKeys(): Promise<Keys> {
    if (this.#keys !== undefined) return this.#keys;
    // Draw the secret here and not in the constructor: workerd has no randomness before the first request.
    this.#randomSecret ??= randomBytes(SECRET_BYTES);
    const secret = new Uint8Array(this.#givenSecret ?? this.#randomSecret);
    const master = await crypto.subtle.importKey('raw', secret, 'HKDF', false, ['deriveKey']);
    const derive = (purpose: string, algorithm: DeriveKey[2], usages: DeriveKey[4]) => {
      const info = new TextEncoder().encode(`pie dashboard ${purpose}`);
      const from = { name: 'HKDF', hash: 'SHA-256', salt: new Uint8Array(), info };
      return crypto.subtle.deriveKey(from, master, algorithm, false, usages);
    };
    this.#keys = {
      seal: await derive('session', { name: 'AES-GCM', length: 256 }, ['encrypt', 'decrypt']),
      forms: await derive('forms', { name: 'HMAC', hash: 'SHA-256', length: 256 }, ['sign', 'verify']),
    };
    return this.#keys;
  }
}

function newKeyOf({ id }: Session): string {
  return `new key ${id}`;
}

function cipher(iv: Uint8Array<ArrayBuffer>, purpose: string) {
  return { name: 'AES-GCM', iv, additionalData: new TextEncoder().encode(purpose) };
}

function randomBytes(count: number): Uint8Array<ArrayBuffer> {
  return crypto.getRandomValues(new Uint8Array(count));
}

function bytesOf(base64url: string): Uint8Array<ArrayBuffer> | null {
  try {
    return Uint8Array.fromBase64(base64url, { alphabet: 'base64url' });
  } catch {
    return null;
  }
}

/**
 * True when a page of this site sent the form. Headers that a page cannot forge decide: `Sec-Fetch-Site` if the browser sends it (over https, and to
 * localhost), otherwise `Origin`, which must name this host. A request with neither header is refused: every browser sends one of them.
 */
export function isSameOrigin(request: Request): boolean {
  const site = request.headers.get('sec-fetch-site');
  if (site !== null) return site === 'same-origin';
  const origin = request.headers.get('origin');
  // Compare only the host: behind a proxy that terminates TLS the scheme differs.
  return origin !== null && URL.canParse(origin) && new URL(origin).host === new URL(request.url).host;
}

interface SignInLimits {
  /** Attempts that an address may make at once. */
  readonly burst: number;
  /** Time until one more attempt is allowed. */
  readonly refillMs: number;
  /** Maximum remembered addresses. Beyond it, the address whose last attempt is the oldest is forgotten. */
  readonly maxAddresses: number;
}

const DEFAULT_LIMITS: SignInLimits = { burst: 10, refillMs: 3000, maxAddresses: 10_000 };

interface Bucket {
  /** Attempts that were left at `updatedAt`; not a whole number while one is being refilled. */
  tokens: number;
  updatedAt: number;
}

/** A token bucket per address: bounds sign-in attempts with unknown keys. */
export class SignInAttempts {
  readonly #options: SignInLimits;
  /** In order of last use, oldest first. */
  readonly #buckets = new Map<string, Bucket>();

  constructor(options: SignInLimits = DEFAULT_LIMITS) {
    this.#options = options;
  }

  /**
   * Takes one attempt at `now`, milliseconds of a clock that never steps back. Returns 0 when the attempt is allowed, else the milliseconds until
   * the next allowed one.
   */
  take(address: string, now: number): number {
    const { burst, refillMs, maxAddresses } = this.#options;
    const old = this.#buckets.get(address);
    const tokens = old === undefined ? burst : Math.min(burst, old.tokens + (now - old.updatedAt) / refillMs);
    const isAllowed = tokens >= 1;
    this.#buckets.delete(address);
    this.#buckets.set(address, { tokens: isAllowed ? tokens - 1 : tokens, updatedAt: now });
    if (this.#buckets.size > maxAddresses) {
      const [oldest] = this.#buckets.keys();
      if (oldest !== undefined) this.#buckets.delete(oldest);
    }
    return isAllowed ? 0 : Math.ceil((1 - tokens) * refillMs);
  }
}

/** Maximum remembered sessions. Beyond it, the session that expires first is forgotten. */
const MAX_REMEMBERED = 10_000;

/** Sessions that signed out before their expiry. This gateway refuses copies of their cookies. */
export class SignedOut {
  /** Expiry of each session, ms since the Unix epoch; oldest sign-out first. */
  readonly #expiries = new Map<string, number>();
  readonly #maxRemembered: number;

  constructor(maxRemembered = MAX_REMEMBERED) {
    this.#maxRemembered = maxRemembered;
  }

  add(id: string, expiresAt: number, now: number): void {
    this.#expiries.set(id, expiresAt);
    if (this.#expiries.size <= this.#maxRemembered) return;
    for (const [other, expiry] of this.#expiries) if (expiry <= now) this.#expiries.delete(other);
    if (this.#expiries.size <= this.#maxRemembered) return;
    const [[firstToExpire] = []] = [...this.#expiries].sort(([, a], [, b]) => a - b);
    if (firstToExpire !== undefined) this.#expiries.delete(firstToExpire);
  }

  has(id: string): boolean {
    return this.#expiries.has(id);
  }
}

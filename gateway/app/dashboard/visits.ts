import type { Context } from 'hono';
import { deleteCookie, getCookie, setCookie } from 'hono/cookie';
import type { AppEnv, AppSettings } from '../context.ts';
import type { ControlPlane, Principal } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { MAX_KEY_LENGTH } from '../http/authenticate.ts';
import type { Visit } from './page.ts';
import {
  isSameOrigin,
  NEW_KEY_MS,
  type NewKeyText,
  SESSION_MS,
  type Session,
  Sessions,
  SignedOut,
  SignInAttempts,
} from './session/sessions.ts';

const COOKIE = 'pie_session';
const PATH = '/dashboard';
const NEW_KEY_COOKIE = 'pie_new_key';
const MAX_FORM_BYTES = 16 * 1024;

/** Opens sessions, signs users in and out, and reads the forms of their pages. */
export class Visits {
  readonly #control: ControlPlane;
  readonly #sessions: Sessions;
  readonly #attempts = new SignInAttempts();
  readonly #signedOut = new SignedOut();
  readonly #addressOf: AppSettings['clientAddress'];

  constructor(control: ControlPlane, settings: AppSettings) {
    this.#control = control;
    this.#sessions = new Sessions(settings.sessionSecret);
    this.#addressOf = settings.clientAddress;
  }

  /** The visit of a request, or null without a valid session. */
  async of(c: Context<AppEnv>): Promise<Visit | null> {
    const cookie = getCookie(c, COOKIE);
    const session = cookie === undefined ? null : await this.#sessions.open(cookie, Date.now());
    return session === null ? null : this.renew(c, session, c.req.raw.signal);
  }

  /** The session's current visit. Null when the session has expired or was signed out, or when its key was removed. */
  async renew(c: Context<AppEnv>, session: Session, signal: AbortSignal): Promise<Visit | null> {
    const now = Date.now();
    if (session.expiresAt <= now || this.#signedOut.has(session.id)) return null;
    const principal = await this.#principalOf(session.apiKey);
    if (principal === null) return null;
    return {
      control: this.#control,
      call: { principal, requestId: c.get('requestId'), traceparent: c.get('traceparent'), signal },
      session,
      formToken: await this.#sessions.formToken(session),
      url: new URL(c.req.url),
      now,
    };
  }

  /**
   * Signs in with the key of a form; false for an unknown key. Throws `too-many-requests` after too many unknown keys from the same
   * address. A valid key is always accepted, whatever the number of failed attempts.
   */
  async signIn(c: Context<AppEnv>, form: URLSearchParams): Promise<boolean> {
    const key = form.get('key')?.trim() ?? '';
    const isKnown = key !== '' && key.length <= MAX_KEY_LENGTH && (await this.#principalOf(key)) !== null;
    if (!isKnown) {
      this.#countFailure(this.#addressOf(c));
      return false;
    }
    const session = this.#sessions.begin(key, Date.now());
    setCookie(c, COOKIE, await this.#sessions.seal(session), {
      ...this.#cookieOptions(c),
      httpOnly: true,
      maxAge: SESSION_MS / 1000,
    });
    return true;
  }

  /** Deletes the cookie. With `session`, this gateway also refuses copies of the cookie from now on. */
  signOut(c: Context<AppEnv>, session?: Session): void {
    if (session !== undefined) this.#signedOut.add(session.id, session.expiresAt, Date.now());
    deleteCookie(c, COOKIE, this.#cookieOptions(c));
  }

  /** Keeps a new key in a sealed cookie for the page to which the form redirects. The reload of that page then creates no other key. */
  async keepNewKey(c: Context<AppEnv>, { session, now }: Visit, key: NewKeyText): Promise<void> {
    const maxAge = NEW_KEY_MS / 1000;
    const options = { ...this.#newKeyOptions(c), httpOnly: true, maxAge };
    setCookie(c, NEW_KEY_COOKIE, await this.#sessions.sealNewKey(session, key, now), options);
  }

  /** Takes the new key for the page to show out of its cookie, if any, and deletes the cookie, so that no later page shows the key. */
  async takeNewKey(c: Context<AppEnv>, { session, now }: Visit): Promise<NewKeyText | null> {
    const cookie = getCookie(c, NEW_KEY_COOKIE);
    if (cookie === undefined || c.req.method !== 'GET') return null;
    deleteCookie(c, NEW_KEY_COOKIE, this.#newKeyOptions(c));
    return this.#sessions.openNewKey(session, cookie, now);
  }

  /** Reads a form. A page of this site must have sent it. Throws `forbidden`, `body-too-large`, `unsupported-media-type`. */
  async form(c: Context<AppEnv>, limitBytes = MAX_FORM_BYTES): Promise<URLSearchParams> {
    if (!isSameOrigin(c.req.raw))
      throw new GatewayError('forbidden', 'The form was not sent by a page of this dashboard.', {
        hint: 'Open the dashboard and use the button there.',
      });
    const [type] = (c.req.header('content-type') ?? '').split(';', 1);
    if (type?.trim().toLowerCase() !== 'application/x-www-form-urlencoded')
      throw new GatewayError('unsupported-media-type', 'The form was not sent as application/x-www-form-urlencoded.', {
        hint: 'Open the dashboard and use the button there.',
      });
    return new URLSearchParams(new TextDecoder().decode(await c.get('body').read(limitBytes)));
  }

  /** Like `form`, for a signed-in user: the form must also carry the session's token. */
  async formOf(c: Context<AppEnv>, { session }: Visit, limitBytes?: number): Promise<URLSearchParams> {
    const form = await this.form(c, limitBytes);
    if (!(await this.#sessions.isFormToken(session, form.get('token') ?? '')))
      throw new GatewayError('forbidden', 'The form does not belong to your session.', {
        hint: 'Go back, reload the page and try again.',
      });
    return form;
  }

  #countFailure(address: string): void {
    const waitMs = this.#attempts.take(address, performance.now());
    if (waitMs === 0) return;
    const seconds = Math.ceil(waitMs / 1000);
    throw new GatewayError('too-many-requests', 'Too many unknown keys were tried from this address.', {
      hint: `Try again in ${seconds} s.`,
      headers: { 'retry-after': String(seconds) },
    });
  }

  /** Null for a key that is unknown, removed or expired. */
  async #principalOf(apiKey: string): Promise<Principal | null> {
    try {
      return await this.#control.authenticate(apiKey);
    } catch (error) {
      if (error instanceof GatewayError && error.code === 'unauthorized') return null;
      throw error;
    }
  }

  #newKeyOptions(c: Context<AppEnv>) {
    return { ...this.#cookieOptions(c), path: `${PATH}/administration` };
  }

  #cookieOptions(c: Context<AppEnv>) {
    // A proxy may terminate TLS. A client that forges the header only makes its own cookie unusable over plain http.
    const secure = new URL(c.req.url).protocol === 'https:' || c.req.header('x-forwarded-proto') === 'https';
    return { path: PATH, sameSite: 'Strict', secure } as const;
  }
}

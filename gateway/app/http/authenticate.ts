import type { MiddlewareHandler } from 'hono';
import type { AppEnv, AppSettings } from '../context.ts';
import type { ControlPlane } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';

/** Maximum characters of a key in a request; the platform's own keys have 36. */
export const MAX_KEY_LENGTH = 256;

/**
 * Requires a bearer API key (RFC 6750), and room for a request of its tenant. Sets the request's `principal` and `recheck`.
 *
 * @example
 * app.use('/v1/*', authenticate(control, settings));
 */
export function authenticate(control: ControlPlane, { admit }: Pick<AppSettings, 'admit'>): MiddlewareHandler<AppEnv> {
  return async function authenticate(c, next) {
    const header = c.req.header('authorization');
    if (header === undefined) throw refused('The request has no API key.');
    const key = /^Bearer +([^\s]+)$/i.exec(header)?.[1];
    if (key === undefined || key.length > MAX_KEY_LENGTH)
      throw refused('The Authorization header is not `Bearer` and a key.');
    const principal = await control.authenticate(key);
    if (principal === null) throw refused('The API key is not known.');
    c.set('principal', principal);
    admit(c, principal);
    c.set('recheck', async () => {
      if ((await control.authenticate(key)) === null)
        throw refused('The API key was removed.', 'Use another key; `pie keys create` makes one.');
    });
    await next();
  };
}

function refused(message: string, hint?: string): GatewayError {
  return new GatewayError('unauthorized', message, { hint, headers: { 'www-authenticate': 'Bearer realm="pie"' } });
}

import type { MiddlewareHandler } from 'hono';
import type { AppEnv, AppSettings } from '../context.ts';
import type { ControlPlane } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';

/** Maximum characters of a key in a request; the platform's own keys have 36. */
export const MAX_KEY_LENGTH = 256;

/**
 * Requires an API key, as a bearer key (RFC 6750) or in the header `x-api-key` of Anthropic's clients, and room for a request of its tenant. Sets the
 * request's `principal` and `recheck`.
 *
 * @example
 * app.use('/v1/*', authenticate(control, settings));
 */
export function authenticate(control: ControlPlane, { admit }: Pick<AppSettings, 'admit'>): MiddlewareHandler<AppEnv> {
  return async function authenticate(c, next) {
    const key = keyIn(c.req.header('authorization'), c.req.header('x-api-key'));
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

/** The key of a request. `authorization` takes precedence: with both headers, the other key may be for another service. */
function keyIn(authorization: string | undefined, apiKey: string | undefined): string {
  const header = authorization ?? apiKey;
  if (header === undefined) throw refused('The request has no API key.');
  const key = (authorization === undefined ? /^([^\s]+)$/ : /^Bearer +([^\s]+)$/i).exec(header)?.[1];
  if (key !== undefined && key.length <= MAX_KEY_LENGTH) return key;
  const fault =
    authorization === undefined ? 'x-api-key header is not a key' : 'Authorization header is not `Bearer` and a key';
  throw refused(`The ${fault}.`);
}

function refused(message: string, hint?: string): GatewayError {
  return new GatewayError('unauthorized', message, { hint, headers: { 'www-authenticate': 'Bearer realm="pie"' } });
}

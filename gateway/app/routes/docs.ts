import type { Context } from 'hono';
import { manifestJsonSchema } from '#scheduler/functions/manifest-schema.ts';
import { reference } from '#wit/generated/reference.ts';
import type { AppEnv, AppSettings } from '../context.ts';
import {
  type ApiDocument,
  apiPage,
  errorIndex,
  errorPage,
  escapeHtml,
  GUIDE_IMAGE,
  GUIDE_NAME,
  inferletPage,
} from '../docs/pages.ts';
import { isErrorCode } from '../errors/codes.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { bytesAnswer, htmlAnswer, textAnswer } from '../http/answer.ts';
import { DEFAULT_POLICY } from '../http/common-headers.ts';
import type { App } from './define.ts';

/** Placeholder for a request's origin in a text that is made for all requests. No host has this name (RFC 2606). */
const ANY_ORIGIN = 'http://origin.invalid';

/** `/openapi.json` and the documentation pages. */
export function docsRoutes(app: App, settings: AppSettings): void {
  app.openAPIRegistry.registerComponent('securitySchemes', 'apiKey', {
    type: 'http',
    scheme: 'bearer',
    description: 'An API key, `pie_…`',
  });
  app.openAPIRegistry.registerComponent('securitySchemes', 'xApiKey', {
    type: 'apiKey',
    in: 'header',
    name: 'x-api-key',
    description: "The same key in the header of Anthropic's clients",
  });
  const describe = (origin: string) =>
    app.getOpenAPI31Document({
      openapi: '3.1.0',
      info: {
        title: 'Pie API',
        version: settings.version,
        description:
          'Deploy inferlets, programs that drive LLM inference themselves, and invoke them. Events of an invocation come as `id` (`<epoch>-<number>`), `event` (`start`, `message`, `log`, `metric`, `gap`, `question`, `result` or `error`) and `data` (JSON); a stream never ends without `result` or `error`.',
      },
      servers: [{ url: origin }],
    });
  // Make each of these texts once: it takes many milliseconds, and clients without a key may request the text as often as they like.
  const description = forEachOrigin((origin) => JSON.stringify(describe(origin)), JSON.stringify);
  const page = forEachOrigin((origin) => apiPage(describe(origin) as ApiDocument, origin), escapeHtml);
  let schema: string | undefined;
  app.get('/openapi.json', (c) => textAnswer(c, description(c), 200, { 'content-type': 'application/json' }));
  app.get('/docs', (c) => htmlAnswer(c, page(c)));
  // Editors read the schema from any origin, without a key.
  app.get('/pie.schema.json', (c) => {
    schema ??= JSON.stringify(manifestJsonSchema());
    return textAnswer(c, schema, 200, {
      'content-type': 'application/schema+json',
      'access-control-allow-origin': '*',
    });
  });
  app.get('/docs/inferlet', (c) => htmlAnswer(c, inferletPage(reference)));
  app.get('/docs/guides', async (c) => htmlAnswer(c, await settings.guides.index()));
  app.get('/docs/guides/:name', async (c) => {
    const name = c.req.param('name');
    const html = GUIDE_NAME.test(name) ? await settings.guides.page(name) : null;
    if (html === null)
      throw new GatewayError('not-found', `There is no guide "${name}".`, { hint: '/docs/guides lists them all.' });
    return htmlAnswer(c, html, 200, { 'content-security-policy': `${DEFAULT_POLICY}; img-src 'self'` });
  });
  app.get('/docs/images/:name{.+}', async (c) => {
    const name = c.req.param('name');
    const image = GUIDE_IMAGE.test(name) ? await settings.guides.image(name) : null;
    if (image === null) throw new GatewayError('not-found', `There is no image "${name}".`);
    const type = name.endsWith('.svg') ? 'image/svg+xml' : 'image/png';
    return bytesAnswer(c, image, 200, { 'content-type': type, 'cache-control': 'max-age=3600' });
  });
  app.get('/docs/errors', (c) => htmlAnswer(c, errorIndex()));
  app.get('/docs/errors/:code', (c) => {
    const code = c.req.param('code');
    if (!isErrorCode(code))
      throw new GatewayError('not-found', `There is no error code "${code}".`, {
        hint: '/docs/errors lists them all.',
      });
    return htmlAnswer(c, errorPage(code));
  });
}

/** Makes a text once, at its first use. Each answer then inserts the origin of its own request, encoded for the format of the text. */
function forEachOrigin(
  make: (origin: string) => string,
  encode: (origin: string) => string,
): (c: Context<AppEnv>) => string {
  let parts: readonly string[] | undefined;
  return (c) => {
    parts ??= make(ANY_ORIGIN).split(encode(ANY_ORIGIN));
    return parts.join(encode(new URL(c.req.url).origin));
  };
}

import { createRoute, z } from '@hono/zod-openapi';
import { callOf } from '../context.ts';
import type { ControlPlane } from '../control.ts';
import { type App, define, json, problems, SECURITY } from './define.ts';

const SecretSchema = z
  .object({
    secret: z
      .string()
      .openapi({ description: '`whsec_` and the key in base64', example: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw' }),
  })
  .openapi('WebhookSecret');

const DESCRIPTION =
  'A webhook carries `webhook-id`, `webhook-timestamp` and `webhook-signature`: `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`, as in Standard Webhooks. The libraries of Standard Webhooks verify the signature with this secret.';

/** The secret that signs a tenant's webhooks. */
export function webhookRoutes(app: App, control: ControlPlane): void {
  const route = (method: 'get' | 'post', operationId: string, summary: string, description: string) =>
    createRoute({
      method,
      path: '/v1/webhooks/secret',
      operationId,
      tags: ['Webhooks'],
      summary,
      description,
      security: SECURITY,
      responses: { 200: json(SecretSchema, 'The secret'), ...problems() },
    });

  define(app, route('get', 'getWebhookSecret', 'The secret that signs webhooks', DESCRIPTION), async (c) =>
    c.json({ secret: await control.operations.webhookSecret(callOf(c, 'admin'), false) }),
  );
  define(
    app,
    route(
      'post',
      'rotateWebhookSecret',
      'A new secret that signs webhooks',
      `All later attempts are signed with the new secret, including repeated ones. ${DESCRIPTION}`,
    ),
    async (c) => c.json({ secret: await control.operations.webhookSecret(callOf(c, 'admin'), true) }),
  );
}

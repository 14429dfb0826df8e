import { createRoute, z } from '@hono/zod-openapi';
import { MAX_SECRET_BYTES } from '#scheduler/secrets/rules.ts';
import { callOf } from '../context.ts';
import type { ControlPlane } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { jsonAnswer } from '../http/answer.ts';
import { jsonBody, readChecked } from '../http/bodies.ts';
import { SecretSchema } from '../schemas/tenants.ts';
import { type App, BODY_CODES, define, json, problems, SECURITY } from './define.ts';

/** JSON may escape a byte as six characters. */
const MAX_BODY_BYTES = MAX_SECRET_BYTES * 6 + 1024;

const nameParam = z.object({
  name: z.string().min(1).max(128).openapi({
    description: 'Name of the secret: a capital letter, then capital letters, digits and `_`',
    example: 'OPENAI_KEY',
  }),
});
const ValueSchema = z.strictObject({
  value: z.string().meta({ description: `Text of at most ${MAX_SECRET_BYTES} bytes` }),
});

/** Secrets of the caller's tenant. */
export function secretRoutes(app: App, control: ControlPlane): void {
  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/secrets',
      operationId: 'listSecrets',
      tags: ['Secrets'],
      summary: 'List secrets',
      description: 'Sorted by name, without values. No request returns a value.',
      security: SECURITY,
      responses: { 200: json(z.object({ secrets: z.array(SecretSchema) }), 'The secrets'), ...problems() },
    }),
    async (c) => jsonAnswer(c, { secrets: await control.secrets.list(callOf(c, 'deploy')) }),
  );

  define(
    app,
    createRoute({
      method: 'put',
      path: '/v1/secrets/{name}',
      operationId: 'setSecret',
      tags: ['Secrets'],
      summary: 'Store a secret',
      description:
        'A new revision, sealed before it is stored. Functions keep the revision that they were deployed with: deploy them again to use this one.',
      security: SECURITY,
      request: { params: nameParam, body: jsonBody(ValueSchema) },
      responses: {
        200: json(SecretSchema, 'The secret'),
        ...problems('invalid-secret', 'conflict', ...BODY_CODES),
      },
    }),
    async (c) => {
      const call = callOf(c, 'deploy');
      const { value } = await readChecked(c.get('body'), ValueSchema, MAX_BODY_BYTES);
      return c.json(await control.secrets.set(call, c.req.valid('param').name, value));
    },
  );

  define(
    app,
    createRoute({
      method: 'delete',
      path: '/v1/secrets/{name}',
      operationId: 'removeSecret',
      tags: ['Secrets'],
      summary: 'Remove a secret',
      description: 'Refused while a served version uses it. Older versions keep their value.',
      security: SECURITY,
      request: { params: nameParam },
      responses: { 204: { description: 'Removed' }, ...problems('unknown-secret', 'conflict') },
    }),
    async (c) => {
      const { name } = c.req.valid('param');
      if (!(await control.secrets.remove(callOf(c, 'deploy'), name))) {
        throw new GatewayError('unknown-secret', `There is no secret "${name}".`);
      }
      return c.body(null, 204);
    },
  );
}

import { createRoute, z } from '@hono/zod-openapi';
import { callOf } from '../context.ts';
import type { ControlPlane } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { jsonBody, readChecked } from '../http/bodies.ts';
import { JoinedSchema, JoinTokenRequestSchema, JoinTokenSchema } from '../schemas/platform.ts';
import { type App, BODY_CODES, define, json, problems, SECURITY } from './define.ts';

/** Maximum characters of a sealed request. */
const MAX_SEALED = 4096;

const VersionSchema = z.int().min(0).max(65_535);

const JoinVersionsSchema = z
  .object({ versions: z.object({ oldest: VersionSchema, newest: VersionSchema }) })
  .openapi('JoinVersions');

const JoinRequestSchema = z.strictObject({
  version: VersionSchema.meta({ description: 'Version of the exchange' }),
  token: z
    .string()
    .regex(/^[A-Za-z0-9_-]{12}$/, 'is not a valid token id')
    .meta({ description: 'Id of the token: the part between the dots' }),
  sealed: z
    .string()
    .max(MAX_SEALED)
    .regex(/^[A-Za-z0-9_-]+$/, 'is not base64url')
    .meta({ description: 'Name, roles and certificate fingerprint of the machine, encrypted under the token' }),
});

/** Routes that create and use tokens for joining machines. Machines cannot join through a gateway in workerd. */
export function joiningRoutes(app: App, control: ControlPlane): void {
  define(
    app,
    createRoute({
      method: 'post',
      path: '/v1/machines/tokens',
      operationId: 'createJoinToken',
      tags: ['Platform'],
      summary: 'Make a token with which one machine may join',
      description:
        'Operators only. `pie join` uses it once. Refused (`conflict`) where the platform’s Redis is private to one machine, or this gateway’s Redis user may not create users.',
      security: SECURITY,
      request: { body: jsonBody(JoinTokenRequestSchema) },
      responses: {
        201: json(JoinTokenSchema, 'The token'),
        ...problems('conflict', ...BODY_CODES),
      },
    }),
    async (c) => {
      const call = callOf(c, 'operator');
      const request = await readChecked(c.get('body'), JoinTokenRequestSchema);
      return c.json(await control.operations.createJoinToken(call, request), 201);
    },
  );

  define(
    app,
    createRoute({
      method: 'get',
      path: '/join',
      operationId: 'joinVersions',
      tags: ['Platform'],
      summary: 'Read which versions of the join exchange the gateway speaks',
      description: 'For `pie join`, which uses the newest version that both sides support. Needs no API key.',
      responses: { 200: json(JoinVersionsSchema, 'The versions'), ...problems('not-found') },
    }),
    async (c) => c.json({ versions: joiningOf(control).versions }),
  );

  define(
    app,
    createRoute({
      method: 'post',
      path: '/join',
      operationId: 'join',
      tags: ['Platform'],
      summary: 'Join as a machine',
      description:
        'For `pie join`. Needs no API key: the token is the permission. Both messages are encrypted under the token, which is never sent, so plain HTTP reveals nothing.',
      request: { body: jsonBody(JoinRequestSchema) },
      responses: {
        200: json(JoinedSchema, 'The machine has joined'),
        ...problems('join-refused', 'conflict', 'not-found', ...BODY_CODES),
      },
    }),
    async (c) => {
      const { token, sealed, version } = await readChecked(c.get('body'), JoinRequestSchema);
      return c.json({ sealed: await joiningOf(control).join(token, sealed, version) });
    },
  );
}

function joiningOf({ joining }: ControlPlane): NonNullable<ControlPlane['joining']> {
  if (joining !== undefined) return joining;
  throw new GatewayError('not-found', 'Machines cannot join through this gateway.', {
    hint: 'Give `pie join` the address of a gateway that runs under `pie up`.',
  });
}

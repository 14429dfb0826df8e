import { createRoute, z } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { KEY_ID, MAX_GRACE_MS } from '#scheduler/tenants/rules.ts';
import { type AppEnv, callOf } from '../context.ts';
import type { ControlPlane } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { jsonAnswer } from '../http/answer.ts';
import { jsonBody, readChecked } from '../http/bodies.ts';
import { ApiKeySchema, CreatedKeySchema, NewKeySchema, tenantName } from '../schemas/tenants.ts';
import { type App, BODY_CODES, define, json, problems, SECURITY } from './define.ts';

const DEFAULT_GRACE_MS = 3_600_000;

const idSchema = z
  .string()
  .regex(KEY_ID, 'is not a valid key id')
  .openapi({ description: 'Id of the key', example: 'key_3f9ac41e07b2' });

const RotationSchema = z.strictObject({ graceMs: z.int().min(0).max(MAX_GRACE_MS).default(DEFAULT_GRACE_MS) });

const HEADERS = { 'cache-control': 'no-store' };

/** Routes for the API keys of any tenant, and under a shorter path for those of the caller's own tenant. */
export function keyRoutes(app: App, control: ControlPlane): void {
  for (const isOwnTenant of [false, true]) {
    const base = isOwnTenant ? '/v1/keys' : '/v1/tenants/{tenant}/keys';
    const whose = isOwnTenant ? 'your own tenant' : 'a tenant';
    const suffix = isOwnTenant ? 'OwnKey' : 'Key';
    const params = z.object(isOwnTenant ? {} : { tenant: tenantName.openapi({ description: 'Tenant of the keys' }) });
    const keyParams = params.extend({ id: idSchema });
    const tenantOf = (c: Context<AppEnv>) => (isOwnTenant ? callOf(c).principal.tenant : (c.req.param('tenant') ?? ''));

    define(
      app,
      createRoute({
        method: 'get',
        path: base,
        operationId: `list${suffix}s`,
        tags: ['Keys'],
        summary: `List the API keys of ${whose}`,
        description: 'Oldest first, including keys that expired within the last week.',
        security: SECURITY,
        request: { params },
        responses: {
          200: json(z.object({ keys: z.array(ApiKeySchema) }), 'The keys without their secret parts'),
          ...problems('unknown-tenant', 'invalid-input'),
        },
      }),
      async (c) => jsonAnswer(c, { keys: await control.tenants.keys(callOf(c, 'admin'), tenantOf(c)) }),
    );

    define(
      app,
      createRoute({
        method: 'post',
        path: base,
        operationId: `create${suffix}`,
        tags: ['Keys'],
        summary: `Create an API key of ${whose}`,
        description:
          'The new key gets at most the scopes of the key that creates it. Only this response contains the key itself.',
        security: SECURITY,
        request: { params, body: jsonBody(NewKeySchema) },
        responses: {
          201: json(CreatedKeySchema, 'The key'),
          ...problems('unknown-tenant', 'conflict', ...BODY_CODES),
        },
      }),
      async (c) => {
        const call = callOf(c, 'admin');
        const newKey = await readChecked(c.get('body'), NewKeySchema);
        return c.json(await control.tenants.createKey(call, tenantOf(c), newKey), 201, HEADERS);
      },
    );

    define(
      app,
      createRoute({
        method: 'post',
        path: `${base}/{id}/rotate`,
        operationId: `rotate${suffix}`,
        tags: ['Keys'],
        summary: `Replace an API key of ${whose}`,
        description:
          'Makes a key with the same name, scopes and expiry; the old one works for `graceMs` longer (an hour unless said otherwise).',
        security: SECURITY,
        request: { params: keyParams, body: jsonBody(RotationSchema) },
        responses: {
          201: json(CreatedKeySchema, 'The new key'),
          ...problems('unknown-key', 'conflict', ...BODY_CODES),
        },
      }),
      async (c) => {
        const call = callOf(c, 'admin');
        const id = c.req.param('id') ?? '';
        const { graceMs } = await readChecked(c.get('body'), RotationSchema);
        const key = await control.tenants.rotateKey(call, tenantOf(c), id, graceMs);
        if (key === null) throw unknownKey(id);
        return c.json(key, 201, HEADERS);
      },
    );

    define(
      app,
      createRoute({
        method: 'delete',
        path: `${base}/{id}`,
        operationId: `remove${suffix}`,
        tags: ['Keys'],
        summary: `Remove an API key of ${whose}`,
        description:
          'All gateways refuse requests with the key within 2 s. Its open event streams end at a heartbeat, within 17 s. Requests that wait for an outcome may still get it, and invocations continue. The last admin key of a tenant cannot be removed.',
        security: SECURITY,
        request: { params: keyParams },
        responses: { 204: { description: 'Removed' }, ...problems('unknown-key', 'conflict', 'invalid-input') },
      }),
      async (c) => {
        const id = c.req.param('id') ?? '';
        if (!(await control.tenants.removeKey(callOf(c, 'admin'), tenantOf(c), id))) throw unknownKey(id);
        return c.body(null, 204);
      },
    );
  }
}

function unknownKey(id: string): GatewayError {
  return new GatewayError('unknown-key', `The tenant has no key "${id}" that works.`);
}

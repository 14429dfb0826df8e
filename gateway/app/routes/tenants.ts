import { createRoute, z } from '@hono/zod-openapi';
import { callOf } from '../context.ts';
import type { ControlPlane } from '../control.ts';
import { unknownTenant } from '../errors/gateway-error.ts';
import { jsonAnswer } from '../http/answer.ts';
import { jsonBody, readChecked } from '../http/bodies.ts';
import {
  AuditEntrySchema,
  AuditQuerySchema,
  NewTenantSchema,
  TenantChangeSchema,
  TenantSchema,
  tenantName,
} from '../schemas/tenants.ts';
import { type App, BODY_CODES, define, json, problems, SECURITY } from './define.ts';

const tenantParam = z.object({
  tenant: tenantName.openapi({ description: 'Name of the tenant', example: 'acme' }),
});

/** Tenants and the audit log. */
export function tenantRoutes(app: App, control: ControlPlane): void {
  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/tenants',
      operationId: 'listTenants',
      tags: ['Tenants'],
      summary: 'List tenants',
      description: 'Sorted by name. A key with the scope `operator` gets all tenants, a key with `admin` its own.',
      security: SECURITY,
      responses: { 200: json(z.object({ tenants: z.array(TenantSchema) }), 'The tenants'), ...problems() },
    }),
    async (c) => jsonAnswer(c, { tenants: await control.tenants.list(callOf(c, 'admin')) }),
  );

  define(
    app,
    createRoute({
      method: 'post',
      path: '/v1/tenants',
      operationId: 'createTenant',
      tags: ['Tenants'],
      summary: 'Create a tenant',
      description: 'Operators only. `POST /v1/tenants/{tenant}/keys` creates its first key.',
      security: SECURITY,
      request: { body: jsonBody(NewTenantSchema) },
      responses: {
        201: json(TenantSchema, 'The tenant'),
        ...problems('conflict', ...BODY_CODES),
      },
    }),
    async (c) => {
      const call = callOf(c, 'operator');
      const { name, ...change } = await readChecked(c.get('body'), NewTenantSchema);
      const tenant = await control.tenants.create(call, name, change);
      return c.json(tenant, 201, { location: `/v1/tenants/${name}` });
    },
  );

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/tenants/{tenant}',
      operationId: 'getTenant',
      tags: ['Tenants'],
      summary: 'Inspect a tenant',
      security: SECURITY,
      request: { params: tenantParam },
      responses: { 200: json(TenantSchema, 'The tenant'), ...problems('unknown-tenant', 'invalid-input') },
    }),
    async (c) => {
      const { tenant: name } = c.req.valid('param');
      const tenant = await control.tenants.get(callOf(c, 'admin'), name);
      if (tenant === null) throw unknownTenant(name);
      return c.json(tenant);
    },
  );

  define(
    app,
    createRoute({
      method: 'patch',
      path: '/v1/tenants/{tenant}',
      operationId: 'changeTenant',
      tags: ['Tenants'],
      summary: 'Change the weight or latency targets of a tenant, suspend or resume it',
      description:
        'Operators only. The change takes effect everywhere within 2 s. Open event streams of a suspended tenant end at a heartbeat, within 17 s; its requests that wait for an outcome may still get it, and its running invocations continue.',
      security: SECURITY,
      request: { params: tenantParam, body: jsonBody(TenantChangeSchema) },
      responses: {
        200: json(TenantSchema, 'The tenant'),
        ...problems('unknown-tenant', 'conflict', ...BODY_CODES),
      },
    }),
    async (c) => {
      const call = callOf(c, 'operator');
      const { tenant: name } = c.req.valid('param');
      const tenant = await control.tenants.change(call, name, await readChecked(c.get('body'), TenantChangeSchema));
      if (tenant === null) throw unknownTenant(name);
      return c.json(tenant);
    },
  );

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/audit',
      operationId: 'readAudit',
      tags: ['Tenants'],
      summary: 'Read the log of administrative changes',
      description:
        'Newest first. Without `tenant`, an operator’s key reads the entries of all tenants, any other key those of its own. About 2,000 entries of each tenant are kept, and about 2,000 more for acts on the tenant itself, its keys, quotas and webhook secret, and on GPU hosts and machines that its keys changed. Acts of operators on invocations of another tenant are entries, too (`invocation.read`, `.list`, `.cancel`, `.message`, `.answer`, `.put-file`, `.read-file`, `.delete-events`). A request that reads an invocation adds one `invocation.read`; a live page adds one a minute. All lists that are read with one key add one `invocation.list` a minute.',
      security: SECURITY,
      request: { query: AuditQuerySchema },
      responses: {
        200: json(z.object({ entries: z.array(AuditEntrySchema) }), 'The changes'),
        ...problems('invalid-input'),
      },
    }),
    async (c) => {
      const entries = await control.tenants.audit(callOf(c, 'admin'), c.req.valid('query'));
      return jsonAnswer(c, { entries });
    },
  );
}

import { createRoute, z } from '@hono/zod-openapi';
import { QUOTA_NAMES } from '#scheduler/quotas/names.ts';
import { callOf } from '../context.ts';
import type { ControlPlane } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { jsonAnswer, textAnswer } from '../http/answer.ts';
import { jsonBody, readChecked } from '../http/bodies.ts';
import {
  MinuteSchema,
  QuotaChangeSchema,
  QuotaQuerySchema,
  QuotaSchema,
  UsageQuerySchema,
  UsageRowSchema,
} from '../schemas/quotas.ts';
import { tenantName } from '../schemas/tenants.ts';
import { type App, BODY_CODES, define, json, problems, SECURITY } from './define.ts';
import { usageCsv } from './usage-csv.ts';

const changeQuery = z.object({
  tenant: tenantName.optional().openapi({ description: "The same as `tenant` in the body; the key's own by default" }),
});

const csv = {
  'text/csv': { schema: { type: 'string' as const, description: 'A header line, then one line for each row' } },
};

export function quotaRoutes(app: App, control: ControlPlane): void {
  minuteRoute(app, control);
  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/quotas',
      operationId: 'listQuotas',
      tags: ['Quotas'],
      summary: 'List limits and their use',
      description:
        'The limits of the tenant as a whole, each followed by those of its functions. A quota without a limit has no entry. The same numbers are in the headers `RateLimit-Policy` and `RateLimit` of invocations.',
      security: SECURITY,
      request: { query: QuotaQuerySchema },
      responses: {
        200: json(z.object({ tenant: z.string(), quotas: z.array(QuotaSchema) }), 'The limits'),
        ...problems('unknown-tenant', 'unknown-function', 'invalid-input'),
      },
    }),
    async (c) => {
      const call = callOf(c);
      const { tenant = call.principal.tenant, function: fn } = c.req.valid('query');
      return jsonAnswer(c, { tenant, quotas: await control.quotas.status(call, tenant, fn) });
    },
  );

  define(
    app,
    createRoute({
      method: 'put',
      path: '/v1/quotas',
      operationId: 'setQuota',
      tags: ['Quotas'],
      summary: 'Set a limit',
      description: `Operators only. A limit without \`expiresAt\` also removes an override, which is a limit that expires. Null restores the platform's default. Quotas: ${QUOTA_NAMES.map((name) => `\`${name}\``).join(', ')}.`,
      security: SECURITY,
      request: { query: changeQuery, body: jsonBody(QuotaChangeSchema) },
      responses: {
        200: json(
          z.object({ tenant: z.string(), quota: z.union([QuotaSchema, z.null()]) }),
          'The limit that binds from now on; null for none',
        ),
        ...problems('invalid-quota', 'unknown-tenant', 'unknown-function', ...BODY_CODES),
      },
    }),
    async (c) => {
      const call = callOf(c, 'operator');
      const { tenant: bodyTenant, quota, ...change } = await readChecked(c.get('body'), QuotaChangeSchema);
      const queryTenant = c.req.valid('query').tenant;
      if (queryTenant !== undefined && bodyTenant !== undefined && queryTenant !== bodyTenant) {
        throw new GatewayError(
          'invalid-input',
          `The address names the tenant "${queryTenant}", but the body names "${bodyTenant}".`,
          {
            field: 'tenant',
            hint: 'Name the tenant in one place only.',
          },
        );
      }
      const tenant = bodyTenant ?? queryTenant ?? call.principal.tenant;
      const name = QUOTA_NAMES.find((one) => one === quota);
      if (name === undefined) {
        throw new GatewayError('invalid-quota', `There is no quota "${quota}".`, {
          field: '/quota',
          hint: `The quotas are ${QUOTA_NAMES.join(', ')}.`,
        });
      }
      return c.json({ tenant, quota: await control.quotas.set(call, tenant, { quota: name, ...change }) });
    },
  );

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/usage',
      operationId: 'getUsage',
      tags: ['Quotas'],
      summary: 'Read usage by hour, day or month',
      description:
        'Spans without usage are left out. Hours are kept for 40 days, days for 400 days, months for 14 months. `Accept: text/csv` gives a table. An invocation counts from its start, not only once it has ended.',
      security: SECURITY,
      request: { query: UsageQuerySchema },
      responses: {
        200: {
          description: 'The rows, oldest first',
          content: { 'application/json': { schema: z.object({ usage: z.array(UsageRowSchema) }) }, ...csv },
        },
        ...problems('unknown-tenant', 'invalid-input'),
      },
    }),
    async (c) => {
      const call = callOf(c);
      const { tenant = call.principal.tenant, from, to, by, 'per-function': perFunction } = c.req.valid('query');
      const usage = await control.quotas.usage(call, { tenant, from, to, by, perFunction: perFunction === 'true' });
      if (!wantsCsv(c.req.header('accept'))) return jsonAnswer(c, { usage });
      return textAnswer(c, usageCsv(usage), 200, { 'content-type': 'text/csv; charset=utf-8; header=present' });
    },
  );
}

/** Minutes that the platform keeps. */
const MAX_MINUTES = 180;

const minutesQuery = z.object({
  tenant: tenantName.optional().openapi({ description: "Operators only; the key's own tenant by default" }),
  minutes: z.coerce
    .number()
    .int()
    .min(1)
    .max(MAX_MINUTES)
    .default(60)
    .openapi({ description: 'Number of minutes up to now' }),
});

function minuteRoute(app: App, control: ControlPlane): void {
  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/usage/minutes',
      operationId: 'getUsageMinutes',
      tags: ['Quotas'],
      summary: 'Read the last minutes: tokens, times to the first message, failures and refusals by code',
      description: 'Oldest first; minutes without activity are left out.',
      security: SECURITY,
      request: { query: minutesQuery },
      responses: {
        200: json(z.object({ minutes: z.array(MinuteSchema) }), 'The minutes'),
        ...problems('unknown-tenant', 'invalid-input'),
      },
    }),
    async (c) => {
      const call = callOf(c);
      const { tenant = call.principal.tenant, minutes } = c.req.valid('query');
      return jsonAnswer(c, { minutes: await control.quotas.minutes(call, tenant, minutes) });
    },
  );
}

function wantsCsv(accept: string | undefined): boolean {
  const types = accept?.split(',').map((type) => type.split(';', 1)[0]?.trim().toLowerCase()) ?? [];
  return types.includes('text/csv') && !types.includes('application/json');
}

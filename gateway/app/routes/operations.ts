import { createRoute, z } from '@hono/zod-openapi';
import { callOf } from '../context.ts';
import type { ControlPlane, InvocationStatus } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { jsonBody, readChecked } from '../http/checked-body.ts';
import { type App, define, json, problems, SECURITY } from './define.ts';
import { InvocationSchema } from './schemas.ts';
import { tenantName } from './tenants.ts';

const STATUSES: readonly InvocationStatus[] = ['queued', 'running', 'succeeded', 'failed', 'cancelled'];
const MAX_PAGE = 200;

const listQuery = z.object({
  function: z.string().min(1).max(64).optional().openapi({ description: 'Only of this function' }),
  status: z
    .string()
    .max(80)
    .optional()
    .openapi({
      description: `Only in these states, with commas between: ${STATUSES.join(', ')}`,
      example: 'queued,running',
    }),
  tenant: tenantName.optional().openapi({ description: "Another tenant than the key's: operators only" }),
  limit: z.coerce.number().int().min(1).max(MAX_PAGE).default(50).openapi({ description: 'How many, at most' }),
  cursor: z
    .string()
    .regex(/^\d{1,15}\.[A-Za-z0-9_-]{1,128}$/, 'is not a cursor')
    .optional()
    .openapi({ description: '`cursor` of the page before' }),
});

const ListedSchema = InvocationSchema.extend({
  tenant: z.string(),
  gpuHost: z
    .string()
    .optional()
    .openapi({ description: 'Of several GPU hosts the one that serves it, while it runs; told to operators' }),
}).openapi('ListedInvocation');

const ModelLoadSchema = z.object({
  model: z.string(),
  gpuHost: z.string().nullable().openapi({ description: 'On which GPU host' }),
  pages: z.int(),
  freePages: z.int(),
  cachedPages: z.int(),
  batchSize: z.number().nullable().openapi({ description: 'Mean sequences of a batch; null when there was none' }),
  utilisation: z.number().openapi({ description: 'Part of the time that the device computed' }),
  hitRate: z.number().nullable().openapi({ description: 'Part of the prompt tokens found in the prefix cache' }),
});

const HostedModelSchema = z.object({
  model: z.string(),
  backend: z.string(),
  precision: z.string().openapi({ description: 'Of the weights', example: 'bf16' }),
  kv: z.string().nullable().openapi({ description: "Of keys and values; null where it is the precision's own" }),
  device: z.string().openapi({ description: "The card's name, or CPU", example: 'NVIDIA H200' }),
  deviceIndex: z.int().nullable().openapi({ description: 'Which of several, as the driver counts them' }),
  memory: z
    .object({ takenBytes: z.int(), totalBytes: z.int() })
    .nullable()
    .openapi({ description: "Of the device's memory what the model takes, and all; null of a CPU" }),
  pages: z.int(),
  pageSize: z.int().openapi({ description: 'Slots of a page' }),
});

const RuntimeSchema = z.object({
  name: z.string(),
  alive: z.boolean(),
  slots: z.int(),
  isolation: z.enum(['namespaces', 'process']).nullable().openapi({
    description: 'What confines the processes that untrusted bytes are handed to; null of a runtime that does not say',
  }),
  isolationNotice: z.string().nullable().openapi({ description: 'What is missing there, and how to get it' }),
  limits: z
    .object({
      memory: z.enum(['cgroup', 'rlimit']).openapi({ description: 'What bounds the memory of a sandbox' }),
      demotion: z
        .enum(['cgroup', 'autogroup', 'none'])
        .openapi({ description: 'How the kernel makes a sandbox yield after it has computed much' }),
      notice: z
        .string()
        .nullable()
        .openapi({ description: 'Names the limits that the machine lacks, and says how to get them' }),
    })
    .nullable()
    .openapi({ description: 'How the kernel limits sandboxes' }),
  running: z.int(),
});

const GpuHostSchema = z
  .object({
    name: z.string(),
    connected: z.boolean().openapi({ description: 'Whether a runtime reaches it now' }),
    drained: z.boolean().openapi({ description: 'It takes no new invocations: an operator drains it' }),
    running: z.int().openapi({ description: 'Invocations that it serves, children included' }),
    models: z.array(HostedModelSchema).openapi({ description: 'Those that it had when it was last there' }),
  })
  .openapi('GpuHost');

const HOST_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

const hostParam = z.object({
  host: z
    .string()
    .regex(HOST_NAME, 'is no name of a GPU host')
    .openapi({ description: 'Name of the GPU host', example: 'gpu-host-2' }),
});

const HostChangeSchema = z
  .strictObject({
    drained: z.boolean().meta({ description: 'Whether it takes no new invocations' }),
    force: z
      .boolean()
      .optional()
      .meta({ description: 'Drains also the last one that is there: what comes waits in line then' }),
  })
  .refine(({ drained, force }) => drained || force !== true, {
    error: 'goes with `drained: true`',
    path: ['force'],
  });

const LoadSchema = z
  .object({
    runtimes: z.array(RuntimeSchema),
    gpuHosts: z.array(GpuHostSchema),
    models: z.array(ModelLoadSchema),
    waiting: z.int(),
    running: z.int(),
    tenants: z.array(z.object({ tenant: z.string(), waiting: z.int(), running: z.int(), weight: z.number() })),
  })
  .openapi('Load');

/** Invocations, load and GPU hosts. */
export function operationRoutes(app: App, control: ControlPlane): void {
  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/invocations',
      operationId: 'listInvocations',
      tags: ['Invocations'],
      summary: 'List invocations',
      description:
        'Newest first. Those that wait or run are always there; of the ended ones the last 1,000 of a function and 10,000 of a tenant, for a week. Outputs are left out. A page may have fewer than `limit` while `cursor` is not null.',
      security: SECURITY,
      request: { query: listQuery },
      responses: {
        200: json(
          z.object({
            invocations: z.array(ListedSchema),
            cursor: z.string().nullable(),
          }),
          'A page',
        ),
        ...problems('invalid-input', 'unknown-tenant'),
      },
    }),
    async (c) => {
      const { status, ...query } = c.req.valid('query');
      return c.json(await control.operations.invocations(callOf(c), { ...query, status: statusesOf(status) }));
    },
  );

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/load',
      operationId: 'getLoad',
      tags: ['Platform'],
      summary: 'Load of the platform',
      description: 'Runtimes, GPU hosts and what computes there, models, lines of tenants. Operators only.',
      security: SECURITY,
      responses: { 200: json(LoadSchema, 'The load'), ...problems() },
    }),
    async (c) => c.json(await control.operations.load(callOf(c, 'operator'))),
  );
  hostRoute(app, control);
}

function hostRoute(app: App, control: ControlPlane): void {
  define(
    app,
    createRoute({
      method: 'patch',
      path: '/v1/gpu-hosts/{host}',
      operationId: 'changeGpuHost',
      tags: ['Platform'],
      summary: 'Drain a GPU host, or take it back',
      description:
        'Operators only. A drained host gets no new invocations: those of its tenants go to the others, as if it were away. What runs there, and the children of that, end in peace; `running` says how many are left. It holds over restarts of everything until it is taken back. Refused (`conflict`) when no other host would be left that is there and not drained, unless it is forced. The answer comes when all runtimes have heard of it.',
      security: SECURITY,
      request: { params: hostParam, body: jsonBody(HostChangeSchema) },
      responses: {
        200: json(GpuHostSchema, 'The GPU host'),
        ...problems('unknown-gpu-host', 'conflict', 'invalid-input', 'malformed-json', 'body-too-large'),
      },
    }),
    async (c) => {
      const call = callOf(c, 'operator');
      const { host: name } = c.req.valid('param');
      const host = await control.operations.changeGpuHost(
        call,
        name,
        await readChecked(c.get('body'), HostChangeSchema),
      );
      if (host === null) throw new GatewayError('unknown-gpu-host', `There is no GPU host "${name}".`);
      return c.json(host);
    },
  );
}

function statusesOf(text: string | undefined): readonly InvocationStatus[] | undefined {
  if (text === undefined) return undefined;
  return text.split(',').map((word) => {
    const status = STATUSES.find((each) => each === word.trim());
    if (status !== undefined) return status;
    throw new GatewayError('invalid-input', `"${word}" is no state of an invocation.`, {
      field: 'status',
      hint: `The states are ${STATUSES.join(', ')}.`,
    });
  });
}

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
  function: z.string().min(1).max(64).optional().openapi({ description: 'Only this function' }),
  status: z
    .string()
    .max(80)
    .optional()
    .openapi({
      description: `Only these states, separated by commas: ${STATUSES.join(', ')}`,
      example: 'queued,running',
    }),
  tenant: tenantName.optional().openapi({ description: "Another tenant than the key's (operators only)" }),
  limit: z.coerce.number().int().min(1).max(MAX_PAGE).default(50).openapi({ description: 'Most entries to return' }),
  cursor: z
    .string()
    .regex(/^\d{1,15}\.[A-Za-z0-9_-]{1,128}$/, 'is not a cursor')
    .optional()
    .openapi({ description: '`cursor` of the previous page' }),
});

const ListedSchema = InvocationSchema.extend({
  tenant: z.string(),
  gpuHost: z
    .string()
    .optional()
    .openapi({ description: 'GPU host that serves it while it runs; only operators see it' }),
}).openapi('ListedInvocation');

const ModelLoadSchema = z.object({
  model: z.string(),
  gpuHost: z.string().nullable().openapi({ description: 'Name of its GPU host' }),
  pages: z.int(),
  freePages: z.int(),
  cachedPages: z.int(),
  batchSize: z.number().nullable().openapi({ description: 'Mean sequences of a batch; null when there was none' }),
  utilisation: z.number().openapi({ description: 'Share of time in which the device computed' }),
  hitRate: z.number().nullable().openapi({ description: 'Share of prompt tokens found in the prefix cache' }),
});

const HostedModelSchema = z.object({
  model: z.string(),
  backend: z.string(),
  precision: z.string().openapi({ description: 'Precision of the weights', example: 'bf16' }),
  kv: z
    .string()
    .nullable()
    .openapi({ description: 'Precision of keys and values; null when it equals that of the weights' }),
  device: z.string().openapi({ description: 'Name of the card, or CPU', example: 'NVIDIA H200' }),
  deviceIndex: z.int().nullable().openapi({ description: 'Number of the device in the driver’s order' }),
  memory: z
    .object({ takenBytes: z.int(), totalBytes: z.int() })
    .nullable()
    .openapi({ description: 'Device memory that the model uses, and the total; null for a CPU' }),
  pages: z.int(),
  pageSize: z.int().openapi({ description: 'Slots of a page' }),
});

const RuntimeSchema = z.object({
  name: z.string(),
  alive: z.boolean(),
  slots: z.int(),
  isolation: z.enum(['namespaces', 'process']).nullable().openapi({
    description: 'Confinement of the processes that handle untrusted bytes; null when the runtime does not report it',
  }),
  isolationNotice: z
    .string()
    .nullable()
    .openapi({ description: 'Missing parts of the confinement, and how to get them' }),
  limits: z
    .object({
      memory: z.enum(['cgroup', 'rlimit']).openapi({ description: 'Mechanism that bounds the memory of a sandbox' }),
      demotion: z
        .enum(['cgroup', 'autogroup', 'none'])
        .openapi({ description: 'Mechanism by which the kernel makes a sandbox yield after it has computed much' }),
      notice: z.string().nullable().openapi({ description: 'Limits that the machine lacks, and how to get them' }),
    })
    .nullable()
    .openapi({ description: 'How the kernel limits sandboxes' }),
  running: z.int(),
});

const GpuHostSchema = z
  .object({
    name: z.string(),
    connected: z.boolean().openapi({ description: 'True while a runtime reaches it' }),
    drained: z.boolean().openapi({ description: 'True while an operator drains it: it takes no new invocations' }),
    running: z.int().openapi({ description: 'Invocations that it serves, including children' }),
    models: z.array(HostedModelSchema).openapi({ description: 'Its models when a runtime last reached it' }),
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
    drained: z.boolean().meta({ description: 'True to give it no new invocations' }),
    force: z.boolean().optional().meta({ description: 'Drain even the last GPU host; new invocations then wait' }),
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
      summary: 'Inspect the load of the platform',
      description: 'Runtimes, GPU hosts with their models and devices, and queues of tenants. Operators only.',
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
      summary: 'Drain a GPU host, or use it again',
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

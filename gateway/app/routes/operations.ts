import { createRoute, z } from '@hono/zod-openapi';
import { MACHINE_NAME, PROCESS_NAME } from '#scheduler/machines/types.ts';
import { callOf } from '../context.ts';
import { type ControlPlane, type InvocationStatus, STATUSES } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { jsonAnswer } from '../http/answer.ts';
import { jsonBody, readChecked } from '../http/bodies.ts';
import { InvocationPageSchema, InvocationQuerySchema } from '../schemas/invocations.ts';
import {
  GpuHostChangeSchema,
  GpuHostSchema,
  LoadSchema,
  MachineChangeSchema,
  MachineSchema,
} from '../schemas/platform.ts';
import { type App, BODY_CODES, define, json, problems, SECURITY } from './define.ts';

const hostParam = z.object({
  host: z
    .string()
    .regex(PROCESS_NAME, 'is not a valid GPU host name')
    .openapi({ description: 'Name of the GPU host', example: 'gpu-host-2' }),
});

const machineParam = z.object({
  machine: z
    .string()
    .regex(MACHINE_NAME, 'is not a valid machine name')
    .openapi({ description: 'Name of the machine', example: 'east-1' }),
});

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
        'Newest first. The list has all waiting and running invocations, and of the ended ones the last 1,000 of a function and 10,000 of a tenant, for a week. Outputs are left out. A page may have fewer than `limit` entries although `cursor` is not null.',
      security: SECURITY,
      request: { query: InvocationQuerySchema },
      responses: {
        200: json(InvocationPageSchema, 'A page'),
        ...problems('invalid-input', 'unknown-tenant'),
      },
    }),
    async (c) => {
      const { status, ...query } = c.req.valid('query');
      return jsonAnswer(c, await control.operations.invocations(callOf(c), { ...query, status: statusesOf(status) }));
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
    async (c) => jsonAnswer(c, await control.operations.load(callOf(c, 'operator'))),
  );
  hostRoute(app, control);
  machineRoute(app, control);
}

function machineRoute(app: App, control: ControlPlane): void {
  define(
    app,
    createRoute({
      method: 'patch',
      path: '/v1/machines/{machine}',
      operationId: 'changeMachine',
      tags: ['Platform'],
      summary: 'Drain a machine, or use it again',
      description:
        'Operators only. The runtime and the GPU hosts of a drained machine get no new invocations; running ones and their children finish, and its gateway continues to serve. A drain outlasts restarts until it is undone. Refused (`conflict`) for a machine that joined and is stopped. Without `force`, also refused when no other available runtime of an undrained machine that reaches an undrained GPU host would be left. The answer comes when all runtimes have learnt of the change.',
      security: SECURITY,
      request: { params: machineParam, body: jsonBody(MachineChangeSchema) },
      responses: {
        200: json(MachineSchema, 'The machine'),
        ...problems('unknown-machine', 'conflict', ...BODY_CODES),
      },
    }),
    async (c) => {
      const call = callOf(c, 'operator');
      const { machine: name } = c.req.valid('param');
      const change = await readChecked(c.get('body'), MachineChangeSchema);
      const machine = await control.operations.changeMachine(call, name, change);
      if (machine === null) throw new GatewayError('unknown-machine', `There is no machine "${name}".`);
      return c.json(machine);
    },
  );

  define(
    app,
    createRoute({
      method: 'delete',
      path: '/v1/machines/{machine}',
      operationId: 'removeMachine',
      tags: ['Platform'],
      summary: 'Remove a machine',
      description:
        'Operators only. The machine’s supervisor stops all its processes, other machines end their links to it within seconds, and a later start with its certificate is refused.',
      security: SECURITY,
      request: { params: machineParam },
      responses: { 204: { description: 'Removed' }, ...problems('unknown-machine', 'invalid-input') },
    }),
    async (c) => {
      const { machine } = c.req.valid('param');
      if (!(await control.operations.removeMachine(callOf(c, 'operator'), machine)))
        throw new GatewayError('unknown-machine', `There is no machine "${machine}".`);
      return c.body(null, 204);
    },
  );
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
        'Operators only. A drained host gets no new invocations: those of its tenants go to the other hosts. Running invocations and their children finish; `running` counts them. A drain outlasts restarts until it is undone. Refused (`conflict`) when no other connected host would take invocations, unless `force` is set. The answer comes when all runtimes have learnt of the change.',
      security: SECURITY,
      request: { params: hostParam, body: jsonBody(GpuHostChangeSchema) },
      responses: {
        200: json(GpuHostSchema, 'The GPU host'),
        ...problems('unknown-gpu-host', 'conflict', ...BODY_CODES),
      },
    }),
    async (c) => {
      const call = callOf(c, 'operator');
      const { host: name } = c.req.valid('param');
      const host = await control.operations.changeGpuHost(
        call,
        name,
        await readChecked(c.get('body'), GpuHostChangeSchema),
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
    throw new GatewayError('invalid-input', `"${word}" is not an invocation status.`, {
      field: 'status',
      hint: `The states are ${STATUSES.join(', ')}.`,
    });
  });
}

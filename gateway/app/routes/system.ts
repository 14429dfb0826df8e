import { createRoute, z } from '@hono/zod-openapi';
import { type AppSettings, callOf } from '../context.ts';
import type { ControlPlane } from '../control.ts';
import { HealthSchema } from '../schemas/platform.ts';
import { type App, define, json, problems, SECURITY } from './define.ts';

export function systemRoutes(app: App, control: ControlPlane, settings: AppSettings): void {
  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/keys/self',
      operationId: 'describeKey',
      tags: ['Keys'],
      summary: 'Inspect the API key of this request',
      security: SECURITY,
      responses: {
        200: json(z.object({ tenant: z.string(), keyId: z.string(), scopes: z.array(z.string()) }), 'The key'),
        ...problems(),
      },
    }),
    (c) => c.json(callOf(c).principal),
  );

  define(
    app,
    createRoute({
      method: 'get',
      path: '/healthz',
      operationId: 'isAlive',
      tags: ['Health'],
      summary: 'Check that the gateway is alive',
      responses: { 200: json(z.object({ status: z.literal('ok'), version: z.string() }), 'Alive') },
    }),
    (c) => c.json({ status: 'ok', version: settings.version }),
  );

  define(
    app,
    createRoute({
      method: 'get',
      path: '/readyz',
      operationId: 'isReady',
      tags: ['Health'],
      summary: 'Check that the platform can run invocations',
      description:
        'The platform is ready when an invocation sent now would run: the store answers, a runtime that takes invocations of every tenant is alive (`runtimes`), and each runtime that takes invocations reaches a GPU host (`gpu-hosts`). Drained GPU hosts do not count; one that is lost still counts for 5 s, since it usually restarts. While the platform starts, its first functions must also be deployed (`functions`). The other bundled functions are deployed while it serves: `pendingFunctions` lists those that are missing, and why. The check assumes that every function needs a GPU host, since not all manifests name their models.',
      responses: {
        200: json(HealthSchema, 'Ready'),
        503: json(HealthSchema, 'Not ready; the checks name what is missing'),
      },
    }),
    async (c) => {
      const health = await control.health();
      const ready = health.ready && settings.draining?.aborted !== true;
      return c.json({ ...health, ready }, ready ? 200 : 503, { 'cache-control': 'no-store' });
    },
  );
}

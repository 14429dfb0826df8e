import { createRoute, z } from '@hono/zod-openapi';
import type { AppSettings } from '../context.ts';
import { callOf } from '../context.ts';
import type { ControlPlane } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { textAnswer } from '../http/answer.ts';
import { authenticate } from '../http/authenticate.ts';
import { type App, define, problems } from './define.ts';

/** `/metrics`, for Prometheus. */
export function metricsRoutes(app: App, control: ControlPlane, settings: AppSettings): void {
  const { metrics } = settings;
  if (metrics?.public !== true) app.use('/metrics', authenticate(control, settings));
  define(
    app,
    createRoute({
      method: 'get',
      path: '/metrics',
      operationId: 'readMetrics',
      tags: ['Health'],
      summary: 'Read the metrics of all processes, for Prometheus',
      description:
        'Needs a key with the scope `operator`, unless the operator made the page public (`[telemetry] metrics_public`).',
      responses: {
        200: {
          content: { 'text/plain': { schema: z.string() } },
          description: "Prometheus' text format, version 0.0.4",
        },
        ...problems('not-found'),
      },
    }),
    async (c) => {
      if (!metrics)
        throw new GatewayError('not-found', 'This gateway has no metrics.', {
          hint: 'Ask its origin, the Node gateway.',
        });
      if (!metrics.public) callOf(c, 'operator');
      const headers = { 'content-type': 'text/plain; version=0.0.4; charset=utf-8', 'cache-control': 'no-store' };
      return textAnswer(c, await metrics.text(), 200, headers);
    },
  );
}

import { OpenAPIHono, type z } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { HTTPException } from 'hono/http-exception';
import { methodNotAllowed } from 'hono/method-not-allowed';
import type { Logger } from '#scheduler/policies/logger.ts';
import { type AppEnv, type AppSettings, DEFAULT_LIMITS, faultOf, type Limits } from './context.ts';
import type { ControlPlane } from './control.ts';
import { dashboardRoutes } from './dashboard/routes.ts';
import { type Guides, guideIndex } from './docs/pages.ts';
import { GatewayError, problemHeaders, toProblem, wordedIssue } from './errors/gateway-error.ts';
import { textAnswer } from './http/answer.ts';
import { authenticate, rateLimit } from './http/authenticate.ts';
import { Bodies, boundedBodies, boundedStreams, webDecoders } from './http/bodies.ts';
import { commonHeaders, crossOrigin } from './http/common-headers.ts';
import type { RequestObserver } from './http/observer.ts';
import { OpenStreams } from './http/open-streams.ts';
import { anthropicError, isMessagesPath } from './openai/anthropic.ts';
import { ROUTES } from './openai/documents.ts';
import { openAiRoutes } from './openai/routes.ts';
import type { App } from './routes/define.ts';
import { docsRoutes } from './routes/docs.ts';
import { fileRoutes } from './routes/files.ts';
import { functionRoutes } from './routes/functions.ts';
import { invocationRoutes } from './routes/invocations.ts';
import { invokingRoutes } from './routes/invoking.ts';
import { joiningRoutes } from './routes/joining.ts';
import { keyRoutes } from './routes/keys.ts';
import { logRoutes } from './routes/logs.ts';
import { metricsRoutes } from './routes/metrics.ts';
import { operationRoutes } from './routes/operations.ts';
import { quotaRoutes } from './routes/quotas.ts';
import { releaseRoutes } from './routes/releases.ts';
import { scheduleRoutes } from './routes/schedules.ts';
import { secretRoutes } from './routes/secrets.ts';
import { systemRoutes } from './routes/system.ts';
import { tenantRoutes } from './routes/tenants.ts';
import { webhookRoutes } from './routes/webhooks.ts';

export interface AppOptions extends Partial<Omit<AppSettings, 'limits' | 'log'>> {
  readonly log: Logger;
  readonly limits?: Partial<Limits>;
  /** Measures and traces requests. */
  readonly observer?: RequestObserver;
}

/** Short enough that common proxies keep the connection of a quiet stream open. */
const DEFAULT_HEARTBEAT_MS = 15_000;
const NO_GUIDES: Guides = { page: async () => null, index: async () => guideIndex([]), image: async () => null };
/** See `AppSettings.firstFrameMs`. */
const DEFAULT_FIRST_FRAME_MS = 10_000;
/** Routes whose answers may stay open: each of their requests takes a slot of `AppSettings.streams`. */
const OPEN_PATHS = [
  '/v1/functions/:reference/invocations',
  '/v1/invocations/:id/events',
  '/v1/functions/:name/logs',
  '/v1/logs',
  ...Object.values(ROUTES).map(({ path }) => path),
];

/** Routes for programs. Pages of other origins may not call the dashboard, which has sessions. */
const CROSS_ORIGIN_PATHS = ['/v1/*', '/openapi.json', '/healthz', '/readyz'];

/**
 * The HTTP API over a control plane. It uses only web-standard APIs, so the same app runs on Node and in workerd.
 *
 * @example
 * export default createApp(control, { log, heartbeatMs: 250 });
 */
export function createApp(control: ControlPlane, options: AppOptions): App {
  const limits = { ...DEFAULT_LIMITS, ...options.limits };
  const settings: AppSettings = {
    limits,
    bodies: options.bodies ?? new Bodies(limits),
    decoders: options.decoders ?? webDecoders(),
    streams: options.streams ?? new OpenStreams(limits, 'streams'),
    heartbeatMs: options.heartbeatMs ?? DEFAULT_HEARTBEAT_MS,
    firstFrameMs: options.firstFrameMs ?? DEFAULT_FIRST_FRAME_MS,
    // A process without a drain phase takes no more work once it shuts down.
    draining: options.draining ?? options.shutdown,
    shutdown: options.shutdown,
    version: options.version ?? '0.0.0',
    sessionSecret: options.sessionSecret,
    clientAddress: options.clientAddress ?? (() => 'anyone'),
    admit: options.admit ?? (() => undefined),
    metrics: options.metrics,
    guides: options.guides ?? NO_GUIDES,
    corsOrigins: options.corsOrigins ?? [],
    log: options.log,
  };
  const app = new OpenAPIHono<AppEnv>({
    // An address with a slash at its end is the same as without it.
    strict: false,
    defaultHook: (result) => {
      if (!result.success) throw invalidParameter(result.target, result.error.issues[0]);
    },
  });

  app.onError(async (caught, c) => {
    const error = caught instanceof HTTPException ? fromHttpException(caught) : GatewayError.from(caught);
    if (error.code === 'internal') {
      settings.log.error(faultOf(c, error), 'a request failed');
    }
    await c.get('body').discard();
    return answer(c, error);
  });
  app.notFound((c) => answer(c, new GatewayError('not-found', `Nothing is at ${c.req.path}.`)));

  app.use(commonHeaders(options.observer));
  if (settings.corsOrigins.length > 0)
    for (const path of CROSS_ORIGIN_PATHS) app.use(path, crossOrigin(settings.corsOrigins));
  app.use(boundedBodies(settings.bodies, settings.decoders));
  app.use(
    methodNotAllowed({
      app,
      onMethodNotAllowed: (c, methods) =>
        answer(
          c,
          new GatewayError('method-not-allowed', `${c.req.path} does not take ${c.req.method}.`, {
            headers: { allow: methods.join(', ') },
          }),
        ),
    }),
  );
  app.use('/v1/*', rateLimit());
  app.use('/v1/*', authenticate(control, settings));
  for (const path of OPEN_PATHS) app.use(path, boundedStreams(settings.streams, settings.bodies));
  functionRoutes(app, control, settings);
  releaseRoutes(app, control);
  invokingRoutes(app, control, settings);
  operationRoutes(app, control);
  joiningRoutes(app, control);
  invocationRoutes(app, control, settings);
  fileRoutes(app, control, settings);
  logRoutes(app, control, settings);
  webhookRoutes(app, control);
  openAiRoutes(app, control, settings);
  tenantRoutes(app, control);
  keyRoutes(app, control);
  scheduleRoutes(app, control);
  secretRoutes(app, control);
  quotaRoutes(app, control);
  systemRoutes(app, control, settings);
  metricsRoutes(app, control, settings);
  docsRoutes(app, settings);
  dashboardRoutes(app, control, settings);
  return app;
}

/**
 * Answers with an error: a problem or, at addresses of Anthropic's API, an error in its form. `textAnswer` throws when a large error does not fit into the tenant's share of memory: the
 * answer is then a shorter error. An error that was shortened twice is too small for `textAnswer` to count, so the
 * recursion ends.
 */
function answer(c: Context<AppEnv>, error: GatewayError): Response {
  try {
    const requestId = c.get('requestId');
    if (isMessagesPath(c.req.path)) {
      const headers = { ...problemHeaders(error), 'content-type': 'application/json' };
      return textAnswer(c, JSON.stringify(anthropicError(error, requestId)), error.status, headers);
    }
    const problem = toProblem(error, requestId, new URL(c.req.url).origin);
    return textAnswer(c, JSON.stringify(problem), error.status, problemHeaders(error));
  } catch (caught) {
    return answer(c, shortened(error, GatewayError.from(caught)));
  }
}

/**
 * Makes a shorter error from `error`, which `textAnswer` has refused by throwing `refusal`. Leaves out the messages of the invocation. If `error` has
 * no messages, returns `refusal` with the invocation's id instead.
 */
function shortened(error: GatewayError, refusal: GatewayError): GatewayError {
  const { messages, invocation } = error.members;
  if (Array.isArray(messages) && messages.length > 0) {
    const members = { ...error.members, messages: [], messagesTruncated: true };
    return new GatewayError(error.code, error.message, { ...error, members });
  }
  return new GatewayError(refusal.code, refusal.message, {
    ...refusal,
    members: invocation === undefined ? {} : { invocation },
  });
}

/** Names of parameter locations in error messages. */
const PARAMETER_WORDS: Readonly<Record<string, string>> = { query: 'parameter', param: 'part of the address' };

function invalidParameter(target: string, issue: z.core.$ZodIssue | undefined): GatewayError {
  const field = issue?.path.map(String).join('/') ?? '';
  return new GatewayError(
    'invalid-input',
    `The ${PARAMETER_WORDS[target] ?? target} "${field}" is not valid: it ${wordedIssue(issue)}.`,
    {
      field,
      hint: '/docs shows the parameters of every route.',
    },
  );
}

/** Translates the exceptions that Hono's own helpers throw. */
function fromHttpException(exception: HTTPException): GatewayError {
  if (exception.status === 415) return new GatewayError('unsupported-media-type', 'The content type is not supported.');
  if (exception.status === 400) return new GatewayError('malformed-request', 'The request cannot be read.');
  return GatewayError.from(exception);
}

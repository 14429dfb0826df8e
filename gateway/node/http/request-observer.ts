import type { ServerResponse } from 'node:http';
import { type Meter, type Span, SpanKind, SpanStatusCode, type Tracer } from '@opentelemetry/api';
import { remoteContext, traceparentOf } from '#infra/telemetry/trace-context.ts';
import {
  type AnsweredRequest,
  type ArrivedRequest,
  childTraceparent,
  type ObservedRequest,
  type RequestObserver,
} from '../../app/http/observer.ts';

export interface Instruments {
  readonly meter: Meter;
  /** Absent when no exporter records traces. */
  readonly tracer: Tracer | undefined;
}

/** Bounds of the buckets, in seconds. The long ones are for streams, which last as long as their invocations. */
const DURATION_BOUNDS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 300];
/** Routes that monitors poll all the time: measured but not traced. */
const UNTRACED: ReadonlySet<string> = new Set(['/healthz', '/readyz', '/metrics']);
/** Known HTTP methods; any other counts as `_OTHER`, as OpenTelemetry requires. */
const METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);

/** Measures and traces the requests of a Node server until their responses have left. */
export function observeRequests({ meter, tracer }: Instruments): RequestObserver {
  const durations = meter.createHistogram('http.server.request.duration', {
    unit: 's',
    description: 'From a request to the end of its response.',
    advice: { explicitBucketBoundaries: DURATION_BOUNDS },
  });
  const rejections = meter.createCounter('pie.rejections', {
    unit: '{request}',
    description: 'Requests that were answered with an error, by its code.',
  });
  return {
    begin(request: ArrivedRequest): ObservedRequest {
      const startedAt = performance.now();
      const method = METHODS.has(request.method) ? request.method : '_OTHER';
      const span = tracer && !UNTRACED.has(request.path) ? beginSpan(tracer, method, request) : undefined;
      return {
        traceparent: span ? traceparentOf(span) : childTraceparent(request.traceparent),
        answered(answer) {
          const { route, status, tenant, code } = answer;
          if (code !== undefined) rejections.add(1, { code, tenant: tenant ?? '' });
          const finish = () => {
            const attributes = {
              'http.request.method': method,
              'http.route': route,
              'http.response.status_code': status,
              ...(code !== undefined && { 'error.type': code }),
            };
            durations.record((performance.now() - startedAt) / 1000, attributes);
            if (span) endSpan(span, method, answer);
          };
          onResponseEnd(request.environment, finish);
        },
      };
    },
  };
}

function beginSpan(tracer: Tracer, method: string, { path, traceparent }: ArrivedRequest): Span {
  const attributes = { 'http.request.method': method, 'url.path': path, 'url.scheme': 'http' };
  return tracer.startSpan(method, { kind: SpanKind.SERVER, attributes }, remoteContext(traceparent));
}

function endSpan(span: Span, method: string, { route, status, tenant, code }: AnsweredRequest): void {
  span.updateName(`${method} ${route}`);
  span.setAttributes({
    'http.route': route,
    'http.response.status_code': status,
    ...(tenant !== undefined && { 'pie.tenant': tenant }),
    ...(code !== undefined && { 'error.type': code }),
  });
  // A client's fault is not an error of the server.
  if (status >= 500) span.setStatus({ code: SpanStatusCode.ERROR });
  span.end();
}

/** Calls `finish` when Node closes the response, or at once without a Node response. */
function onResponseEnd(environment: unknown, finish: () => void): void {
  const outgoing = (environment as { outgoing?: ServerResponse } | undefined)?.outgoing;
  if (!outgoing || outgoing.closed) finish();
  else outgoing.once('close', finish);
}

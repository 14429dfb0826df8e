import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A span as a collector receives it. */
export interface CollectedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string;
  readonly name: string;
  readonly startMs: number;
  readonly endMs: number;
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly links: readonly { readonly traceId: string; readonly spanId: string }[];
  readonly hasFailed: boolean;
  /** `service.name` of the process that made the span. */
  readonly service: string;
}

/** A metric of one process as a collector receives it. */
export interface CollectedMetric {
  readonly name: string;
  readonly service: string;
  readonly kind: 'sum' | 'gauge' | 'histogram';
  /** Number of data points. */
  readonly points: number;
}

type KeyValue = { key: string; value: Record<string, unknown> };
type OtlpSpan = {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  name: string;
  startTimeUnixNano: string;
  endTimeUnixNano: string;
  attributes?: KeyValue[];
  links?: { traceId: string; spanId: string }[];
  status?: { code?: number };
};
type OtlpMetric = { name: string } & { [kind in CollectedMetric['kind']]?: { dataPoints: unknown[] } };
type Resource = { attributes: KeyValue[] };
interface TraceRequest {
  resourceSpans: { resource: Resource; scopeSpans: { spans: OtlpSpan[] }[] }[];
}
interface MetricRequest {
  resourceMetrics: { resource: Resource; scopeMetrics: { metrics: OtlpMetric[] }[] }[];
}

/** `STATUS_CODE_ERROR` of OTLP. */
const STATUS_ERROR = 2;

/** Receives spans and metrics by OTLP/HTTP as JSON, like the OpenTelemetry collector, and keeps all of them. */
export class Collector implements AsyncDisposable {
  readonly spans: CollectedSpan[] = [];
  readonly metrics: CollectedMetric[] = [];
  readonly #server = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request.setEncoding('utf8')) body += chunk;
    if (request.method !== 'POST' || request.headers['content-type'] !== 'application/json') {
      response.writeHead(415).end();
      return;
    }
    if (request.url === '/v1/traces') this.#takeSpans(JSON.parse(body) as TraceRequest);
    else if (request.url === '/v1/metrics') this.#takeMetrics(JSON.parse(body) as MetricRequest);
    else {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
  });

  static async start(): Promise<Collector> {
    const collector = new Collector();
    collector.#server.listen(0, '127.0.0.1');
    await once(collector.#server, 'listening');
    return collector;
  }

  /** Base URL, for `OTEL_EXPORTER_OTLP_ENDPOINT`. */
  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** The spans of a trace. */
  trace(traceId: string): CollectedSpan[] {
    return this.spans.filter((span) => span.traceId === traceId);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #takeSpans({ resourceSpans }: TraceRequest): void {
    for (const { resource, scopeSpans } of resourceSpans) {
      const service = String(valuesOf(resource.attributes)['service.name']);
      for (const span of scopeSpans.flatMap(({ spans }) => spans)) {
        const { traceId, spanId, parentSpanId = '', name, links = [], status } = span;
        this.spans.push({
          traceId,
          spanId,
          parentSpanId,
          name,
          service,
          startMs: Number(span.startTimeUnixNano) / 1e6,
          endMs: Number(span.endTimeUnixNano) / 1e6,
          attributes: valuesOf(span.attributes ?? []),
          links: links.map((link) => ({ traceId: link.traceId, spanId: link.spanId })),
          hasFailed: status?.code === STATUS_ERROR,
        });
      }
    }
  }

  #takeMetrics({ resourceMetrics }: MetricRequest): void {
    for (const { resource, scopeMetrics } of resourceMetrics) {
      const service = String(valuesOf(resource.attributes)['service.name']);
      for (const metric of scopeMetrics.flatMap(({ metrics }) => metrics)) {
        const kind = (['sum', 'gauge', 'histogram'] as const).find((known) => metric[known]);
        if (kind) this.metrics.push({ name: metric.name, service, kind, points: metric[kind]?.dataPoints.length ?? 0 });
      }
    }
  }
}

/** Attributes by name. OTLP encodes a value as an object whose only member names the type. */
function valuesOf(attributes: readonly KeyValue[]): Record<string, unknown> {
  return Object.fromEntries(
    attributes.map(({ key, value }) => {
      const [type, encoded] = Object.entries(value)[0] ?? [];
      return [key, type === 'intValue' ? Number(encoded) : encoded];
    }),
  );
}

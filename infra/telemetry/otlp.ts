import { type DiagLogger, DiagLogLevel, diag, type Tracer } from '@opentelemetry/api';
import { OTLPMetricExporter } from '@opentelemetry/exporter-metrics-otlp-http';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import type { Resource } from '@opentelemetry/resources';
import { type AggregationTemporality, InstrumentType, PeriodicExportingMetricReader } from '@opentelemetry/sdk-metrics';
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import type { Logger } from '../log.ts';
import type { MetricFamily } from './family.ts';
import { familyProducer, Meters, SCOPE, temporalityOf } from './meters.ts';
import { PUBLISH_INTERVAL_MS } from './settings.ts';

export interface OtlpOptions {
  /** Base URL of the receiver. */
  readonly endpoint: string;
  readonly resource: Resource;
  /** Recorded share of the traces that begin in this process, 0 to 1. */
  readonly sampleRatio: number;
  readonly families: () => readonly MetricFamily[];
  readonly log: Logger;
}

/** Instruments and spans that are exported. */
export interface Exported {
  readonly meters: Meters;
  readonly tracer: Tracer;
  /** Exports the remaining spans and metrics. */
  shutdown(): Promise<unknown>;
}

/** Maximum number of spans that wait for export; the span processor drops and counts further ones. */
const MAX_SPAN_QUEUE = 16_384;
const MAX_SPAN_BATCH = 1024;
const SPAN_DELAY_MS = 1000;
const EXPORT_TIMEOUT_MS = 5000;
/** Limits of one span: Pie sets few attributes; links name the other spans of a batch. */
const SPAN_LIMITS = {
  attributeCountLimit: 64,
  attributeValueLengthLimit: 1024,
  eventCountLimit: 32,
  linkCountLimit: 64,
};

/** Gauges stay delta, whatever `OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE` sets for counters. */
class MetricExporter extends OTLPMetricExporter {
  override selectAggregationTemporality(instrument: InstrumentType): AggregationTemporality {
    return instrument === InstrumentType.OBSERVABLE_GAUGE
      ? temporalityOf(instrument)
      : super.selectAggregationTemporality(instrument);
  }
}

/** Starts exporting by OTLP over HTTP. Import this module only with an endpoint: loading it takes 60 ms and 20 MB. */
export function openOtlp({ endpoint, resource, sampleRatio, families, log }: OtlpOptions): Exported {
  reportDiagnostics(log);
  const reader = new PeriodicExportingMetricReader({
    exporter: new MetricExporter({ url: `${endpoint}/v1/metrics`, timeoutMillis: EXPORT_TIMEOUT_MS }),
    exportIntervalMillis: PUBLISH_INTERVAL_MS,
    exportTimeoutMillis: EXPORT_TIMEOUT_MS,
    metricProducers: [familyProducer(families)],
  });
  const meters = new Meters(resource, families, [reader]);
  const processor = new BatchSpanProcessor({
    exporter: new OTLPTraceExporter({ url: `${endpoint}/v1/traces`, timeoutMillis: EXPORT_TIMEOUT_MS }),
    maxQueueSize: MAX_SPAN_QUEUE,
    maxExportBatchSize: MAX_SPAN_BATCH,
    scheduledDelayMillis: SPAN_DELAY_MS,
    exportTimeoutMillis: EXPORT_TIMEOUT_MS,
    selfObsMeterProvider: meters.provider,
  });
  const traces = new TracerProvider({
    resource,
    spanLimits: SPAN_LIMITS,
    // A client's sampling decision stands; the ratio applies only to traces that begin here.
    sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(sampleRatio) }),
    spanProcessors: [processor],
  });
  return {
    meters,
    tracer: traces.getTracer(SCOPE),
    shutdown: () => Promise.allSettled([traces.shutdown(), meters.provider.shutdown()]),
  };
}

/** Shortest interval between two equal messages: while a collector is away, every export fails. */
const SILENCE_MS = 60_000;
/** Maximum different messages remembered. */
const MAX_KNOWN = 256;

/** Logs export failures; the SDK does not report them by default. */
export function reportDiagnostics(log: Logger): void {
  diag.setLogger(diagnosticsLogger(log), { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true });
}

/** Logs warnings and errors, each at most once a minute. */
export function diagnosticsLogger(log: Logger, now: () => number = Date.now): DiagLogger {
  const saidAt = new Map<string, number>();
  const say = (message: string, ...details: unknown[]): void => {
    const why = [plain(message), ...details.map(textOf)].join(' ');
    const at = now();
    if (at - (saidAt.get(why) ?? Number.NEGATIVE_INFINITY) < SILENCE_MS) return;
    if (saidAt.size >= MAX_KNOWN) saidAt.clear();
    saidAt.set(why, at);
    log.warn({ why }, 'telemetry could not be exported');
  };
  const silent = () => undefined;
  return { error: say, warn: say, info: silent, debug: silent, verbose: silent };
}

/** The SDK passes some errors as JSON text that includes the stack; this extracts the message. */
function plain(message: string): string {
  try {
    return String((JSON.parse(message) as { message: unknown }).message);
  } catch {
    return message;
  }
}

function textOf(detail: unknown): string {
  return detail instanceof Error ? detail.message : String(detail);
}

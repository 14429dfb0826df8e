/** Export settings from `[telemetry]` of `pie.toml` and from OpenTelemetry's variables, which win. */
export interface TelemetrySettings {
  /** Base URL of an OTLP/HTTP receiver; without it the platform traces and exports nothing. */
  readonly otlpEndpoint?: string;
  /** Share of traces that are recorded when the client has not decided, 0 to 1. */
  readonly sampleRatio: number;
  /** `service.namespace` of all exported data. */
  readonly serviceNamespace: string;
  /** `service.name` of every process; by default `pie-gateway`, `pie-runtime`, `pie-gpu-host` and `pie-index-host`. */
  readonly serviceName?: string;
  /** True when `/metrics` needs no key; else a client needs a key with the scope `operator`. */
  readonly metricsPublic: boolean;
}

/** Interval of metric exports, and of publishing metrics to the gateway. */
export const PUBLISH_INTERVAL_MS = 5000;

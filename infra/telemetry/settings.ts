/** What is exported where: `[telemetry]` of `pie.toml` and OpenTelemetry's own variables, which win. */
export interface TelemetrySettings {
  /** Base URL of an OTLP/HTTP receiver; without it nothing is traced and nothing exported. */
  readonly otlpEndpoint?: string;
  /** Share of traces that are recorded when the client has not decided, 0 to 1. */
  readonly sampleRatio: number;
  /** `service.namespace` of everything exported. */
  readonly serviceNamespace: string;
  /** `service.name` of every process; `pie-gateway`, `pie-runtime` and `pie-gpu-host` without it. */
  readonly serviceName?: string;
  /** Whether anybody may read `/metrics`; else a key with the scope `operator` is needed. */
  readonly metricsPublic: boolean;
}

/** How often metrics are exported, and processes hand theirs to the gateway. */
export const PUBLISH_INTERVAL_MS = 5000;

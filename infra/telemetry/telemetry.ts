import type { Meter, Tracer } from '@opentelemetry/api';
import { resourceFromAttributes } from '@opentelemetry/resources';
import type { Logger } from '../log.ts';
import type { MetricFamily } from './family.ts';
import { Meters } from './meters.ts';
import type { TelemetrySettings } from './settings.ts';
import { type Vitals, vitalFamilies, watchVitals } from './vitals.ts';

export interface TelemetryOptions {
  readonly settings: TelemetrySettings;
  /** The room (top-level folder) of the process: `service.name` is `pie-<room>` by default. */
  readonly room: 'gateway' | 'runtime' | 'gpu-host' | 'index-host';
  /** Name of the process, such as `runtime-1`: `service.instance.id`, and the label `process` on `/metrics`. */
  readonly process: string;
  /** Metric families that the process computes at each collection, besides those of the meter's instruments. */
  readonly families?: () => readonly MetricFamily[];
  /** Gets warnings and errors of the export. */
  readonly log: Logger;
}

/** Metrics and traces of one process. The entry point opens it and passes its meter and tracer on. */
export interface Telemetry {
  /** Makes spans; undefined without an export endpoint, so that no code makes spans in vain. */
  readonly tracer: Tracer | undefined;
  readonly meter: Meter;
  /** Vital signs of this process. */
  readonly vitals: () => Vitals;
  /** All metrics of this process, for the gateway's `/metrics`. */
  collect(): Promise<MetricFamily[]>;
  /** Exports the remaining data within `deadlineMs`. Never throws, so an absent collector does not keep the process from ending. */
  close(deadlineMs?: number): Promise<void>;
}

const CLOSE_DEADLINE_MS = 1000;

/**
 * Starts measuring, and exporting when an endpoint is set.
 *
 * @example
 * const telemetry = await openTelemetry({ settings: config.telemetry, room: 'gateway', process: 'gateway', log });
 */
export async function openTelemetry(options: TelemetryOptions): Promise<Telemetry> {
  const { settings, room, process: name, log } = options;
  const { otlpEndpoint: endpoint, sampleRatio } = settings;
  const resource = resourceFromAttributes({
    'service.name': settings.serviceName ?? `pie-${room}`,
    'service.namespace': settings.serviceNamespace,
    'service.instance.id': name,
    'process.pid': process.pid,
  });
  const vitals = watchVitals();
  const families = () => [...vitalFamilies(vitals()), ...(options.families?.() ?? [])];
  if (endpoint === undefined) {
    const meters = new Meters(resource, families);
    return { tracer: undefined, meter: meters.meter, vitals, collect: () => meters.collect(), close: async () => {} };
  }
  const { openOtlp } = await import('./otlp.ts');
  const { meters, tracer, shutdown } = openOtlp({ endpoint, resource, sampleRatio, families, log });
  return {
    tracer,
    meter: meters.meter,
    vitals,
    collect: () => meters.collect(),
    close: async (deadlineMs = CLOSE_DEADLINE_MS) => {
      let timer: NodeJS.Timeout | undefined;
      const deadline = new Promise((resolve) => {
        timer = setTimeout(resolve, deadlineMs);
      });
      await Promise.race([shutdown(), deadline]).finally(() => clearTimeout(timer));
    },
  };
}

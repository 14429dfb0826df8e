import type { Meter } from '@opentelemetry/api';
import type { Logger } from '../log.ts';
import type { HistogramPoint, Labels, MetricFamily, NumberPoint } from './family.ts';
import { PUBLISH_INTERVAL_MS } from './settings.ts';

/** The metrics of one process. */
export interface ProcessFamilies {
  /** Such as `runtime-1`; becomes the label `process`. */
  readonly process: string;
  readonly families: readonly MetricFamily[];
}

/** Name suffixes by unit; units in braces name the counted thing and get no suffix. */
const UNIT_SUFFIXES: Readonly<Record<string, string>> = { s: 'seconds', ms: 'milliseconds', By: 'bytes', '1': 'ratio' };

/**
 * The families of all processes as one page in Prometheus' text format: each name once, with its help and type, and the series of every
 * process under it. When two families share a name and differ in kind, the page shows the first. Names follow OpenTelemetry's rules for
 * Prometheus: underscores for dots, the unit, and `_total` behind counters.
 */
export function prometheusText(processes: readonly ProcessFamilies[]): string {
  const merged = new Map<string, { readonly family: MetricFamily; readonly lines: string[] }>();
  for (const { process, families } of processes) {
    for (const family of families) {
      const name = prometheusName(family);
      const known = merged.get(name) ?? { family, lines: [] };
      merged.set(name, known);
      if (known.family.kind === family.kind) known.lines.push(...seriesLines(name, family, { process }));
    }
  }
  const measured = [...merged].filter(([, { lines }]) => lines.length > 0);
  const blocks = measured.map(
    ([name, { family, lines }]) =>
      `# HELP ${name} ${family.description.replace(/\\/g, '\\\\').replace(/\n/g, '\\n')}\n# TYPE ${name} ${family.kind}\n${lines.join('\n')}\n`,
  );
  return blocks.join('');
}

/** A metric's name in Prometheus. */
export function prometheusName({ name, unit, kind }: Pick<MetricFamily, 'name' | 'unit' | 'kind'>): string {
  const plain = name.replace(/[^A-Za-z0-9_]/g, '_');
  const suffix = UNIT_SUFFIXES[unit];
  const withUnit = suffix === undefined || plain.endsWith(`_${suffix}`) ? plain : `${plain}_${suffix}`;
  return kind === 'counter' && !withUnit.endsWith('_total') ? `${withUnit}_total` : withUnit;
}

function seriesLines(name: string, family: MetricFamily, extra: Labels): string[] {
  return family.kind === 'histogram'
    ? family.points.flatMap((point) => histogramLines(name, point, extra))
    : family.points.map((point) => numberLine(name, point, extra));
}

function numberLine(name: string, { labels, value }: NumberPoint, extra: Labels): string {
  return `${name}${labelText({ ...labels, ...extra })} ${numberText(value)}`;
}

function histogramLines(name: string, point: HistogramPoint, extra: Labels): string[] {
  const labels = { ...point.labels, ...extra };
  let cumulativeCount = 0;
  const buckets = point.counts.map((count, i) => {
    cumulativeCount += count;
    return `${name}_bucket${labelText({ ...labels, le: numberText(point.bounds[i] ?? Number.POSITIVE_INFINITY) })} ${cumulativeCount}`;
  });
  return [
    ...buckets,
    `${name}_sum${labelText(labels)} ${numberText(point.sum)}`,
    `${name}_count${labelText(labels)} ${point.count}`,
  ];
}

function labelText(labels: Labels): string {
  const parts = Object.entries(labels).map(
    ([name, value]) =>
      `${name.replace(/[^A-Za-z0-9_]/g, '_')}="${value.replace(/\\/g, '\\\\').replace(/"/g, '\\"').replace(/\n/g, '\\n')}"`,
  );
  return parts.length === 0 ? '' : `{${parts.join(',')}}`;
}

function numberText(value: number): string {
  if (value === Number.POSITIVE_INFINITY) return '+Inf';
  if (value === Number.NEGATIVE_INFINITY) return '-Inf';
  return String(value);
}

interface PublisherOptions {
  readonly meter: Meter;
  /** Metrics to publish: those of this process and of the processes that it reports for. */
  readonly snapshots: () => Promise<readonly ProcessFamilies[]>;
  /** Stores one process's metrics as JSON for the gateway. */
  readonly publish: (process: string, text: string) => Promise<void>;
  /** Sends a PING to Redis; the publisher records its round-trip time. */
  readonly ping: () => Promise<void>;
  /** Gets the first failure to publish, and another one only after a success in between. */
  readonly log: Logger;
}

const ROUND_TRIP_BOUNDS = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1];

/** Publishes metrics at once and then every five seconds, until the caller calls the returned function. */
export function publishMetrics(options: PublisherOptions): () => void {
  const roundTrip = options.meter.createHistogram('pie.redis.round_trip', {
    unit: 's',
    description: 'Time of a PING.',
    advice: { explicitBucketBoundaries: ROUND_TRIP_BOUNDS },
  });
  let isFailing = false;
  let isPublishing = false;
  const publishAll = async (): Promise<void> => {
    // The last round may still run, because Redis may be away for longer than the interval.
    if (isPublishing) return;
    isPublishing = true;
    try {
      const startMs = performance.now();
      await options.ping();
      roundTrip.record((performance.now() - startMs) / 1000);
      for (const { process, families } of await options.snapshots())
        await options.publish(process, JSON.stringify(families));
      isFailing = false;
    } catch (error) {
      if (!isFailing) options.log.warn({ error }, 'the metrics could not be published');
      isFailing = true;
    } finally {
      isPublishing = false;
    }
  };
  const timer = setInterval(() => void publishAll(), PUBLISH_INTERVAL_MS);
  timer.unref();
  void publishAll();
  return () => clearInterval(timer);
}

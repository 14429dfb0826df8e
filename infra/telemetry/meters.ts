import type { Attributes, Meter } from '@opentelemetry/api';
import { type Resource, resourceFromAttributes } from '@opentelemetry/resources';
import {
  AggregationTemporality,
  type CollectionResult,
  DataPointType,
  type IMetricReader,
  InstrumentType,
  MeterProvider,
  type MetricData,
  type MetricProducer,
  MetricReader,
} from '@opentelemetry/sdk-metrics';
import { boundedMeter, type HistogramPoint, type Labels, type MetricFamily } from './family.ts';

/** Scope name of all instruments and spans. */
export const SCOPE = 'pie';

/**
 * Delta for observable gauges, so that a gauge shows only the points of the current observation (none for a tenant without invocations).
 * All other instruments count from the start of the process.
 */
export function temporalityOf(instrument: InstrumentType): AggregationTemporality {
  return instrument === InstrumentType.OBSERVABLE_GAUGE
    ? AggregationTemporality.DELTA
    : AggregationTemporality.CUMULATIVE;
}

/** Collects only on request. */
class PullReader extends MetricReader {
  constructor() {
    super({ aggregationTemporalitySelector: temporalityOf });
  }

  protected override async onForceFlush(): Promise<void> {}
  protected override async onShutdown(): Promise<void> {}
}

/** The instruments of one process, and its other measurements as plain families. */
export class Meters {
  readonly meter: Meter;
  readonly provider: MeterProvider;
  readonly #reader = new PullReader();
  readonly #extraFamilies: () => readonly MetricFamily[];

  /** @param extraFamilies returns families that other code maintains; called at every collection */
  constructor(
    resource: Resource,
    extraFamilies: () => readonly MetricFamily[],
    exporting: readonly IMetricReader[] = [],
  ) {
    this.#extraFamilies = extraFamilies;
    this.provider = new MeterProvider({ resource, readers: [this.#reader, ...exporting] });
    this.meter = boundedMeter(this.provider.getMeter(SCOPE));
  }

  /** Current values of all instruments and extra families. */
  async collect(): Promise<MetricFamily[]> {
    const { resourceMetrics } = await this.#reader.collect();
    const sdkFamilies = resourceMetrics.scopeMetrics.flatMap(({ metrics }) => metrics.flatMap(toFamily));
    return [...sdkFamilies, ...this.#extraFamilies()];
  }
}

/** Metrics of the SDK as families, without exponential histograms, which Pie does not use. */
function toFamily(metric: MetricData): MetricFamily[] {
  const { name, description, unit } = metric.descriptor;
  const described = { name, description, unit };
  switch (metric.dataPointType) {
    case DataPointType.SUM:
    case DataPointType.GAUGE: {
      const isCounter = metric.dataPointType === DataPointType.SUM && metric.isMonotonic;
      const points = metric.dataPoints.map(({ attributes, value }) => ({ labels: labelsOf(attributes), value }));
      return [{ ...described, kind: isCounter ? 'counter' : 'gauge', points }];
    }
    case DataPointType.HISTOGRAM: {
      const points = metric.dataPoints.map(
        ({ attributes, value: { count, sum = 0, buckets } }): HistogramPoint => ({
          labels: labelsOf(attributes),
          count,
          sum,
          bounds: buckets.boundaries,
          counts: buckets.counts,
        }),
      );
      return [{ ...described, kind: 'histogram', points }];
    }
    default:
      return [];
  }
}

function labelsOf(attributes: Attributes): Labels {
  return Object.fromEntries(Object.entries(attributes).map(([name, value]) => [name, String(value)]));
}

/** Families for an exporter of the SDK. */
export function familyProducer(families: () => readonly MetricFamily[]): MetricProducer {
  const startedAt = hrTime(Date.now());
  return {
    async collect(): Promise<CollectionResult> {
      const endTime = hrTime(Date.now());
      const metrics = families().map((family) => toMetricData(family, startedAt, endTime));
      const resource = resourceFromAttributes({});
      return { resourceMetrics: { resource, scopeMetrics: [{ scope: { name: SCOPE }, metrics }] }, errors: [] };
    },
  };
}

type HrTime = [seconds: number, nanoseconds: number];

/** `ValueType.DOUBLE` of the API. */
const DOUBLE = 1;

function toMetricData(family: MetricFamily, startTime: HrTime, endTime: HrTime): MetricData {
  const { name, description, unit, kind } = family;
  const common = {
    descriptor: { name, description, unit, valueType: DOUBLE },
    aggregationTemporality: AggregationTemporality.CUMULATIVE,
  };
  const times = { startTime, endTime };
  if (family.kind === 'histogram') {
    const dataPoints = family.points.map(({ labels, count, sum, bounds, counts }) => ({
      ...times,
      attributes: labels,
      value: { count, sum, buckets: { boundaries: [...bounds], counts: [...counts] } },
    }));
    return { ...common, dataPointType: DataPointType.HISTOGRAM, dataPoints };
  }
  const dataPoints = family.points.map(({ labels, value }) => ({ ...times, attributes: labels, value }));
  return kind === 'counter'
    ? { ...common, dataPointType: DataPointType.SUM, isMonotonic: true, dataPoints }
    : { ...common, dataPointType: DataPointType.GAUGE, dataPoints };
}

function hrTime(milliseconds: number): HrTime {
  return [Math.floor(milliseconds / 1000), Math.round((milliseconds % 1000) * 1e6)];
}

import type { Attributes, Counter, Histogram, Meter, MetricOptions } from '@opentelemetry/api';
import { z } from 'zod';

const labels = z.record(z.string().max(100), z.string().max(1000));
const numberPoint = z.object({ labels, value: z.number() });
const histogramPoint = z.object({
  labels,
  count: z.number(),
  sum: z.number(),
  bounds: z.array(z.number()).readonly(),
  counts: z.array(z.number()).readonly(),
});
const described = {
  /** Follows OpenTelemetry's rules: dots between words, no unit. */
  name: z.string().regex(/^[a-z][a-z0-9_.]{0,99}$/),
  description: z.string(),
  /** UCUM: `s`, `By`, `1`, or `{thing}` for a count of things. */
  unit: z.string(),
};
const familySchema = z.discriminatedUnion('kind', [
  z.object({ ...described, kind: z.enum(['counter', 'gauge']), points: z.array(numberPoint).readonly() }),
  z.object({ ...described, kind: z.literal('histogram'), points: z.array(histogramPoint).readonly() }),
]);
const snapshotSchema = z.array(familySchema);

/** Label names and values of one series. */
export type Labels = Readonly<z.infer<typeof labels>>;
/** One series of a counter or a gauge. */
export type NumberPoint = Readonly<z.infer<typeof numberPoint>>;
/** One series of a histogram: `counts[i]` values in (`bounds[i - 1]`, `bounds[i]`]; the last count holds all larger values. */
export type HistogramPoint = Readonly<z.infer<typeof histogramPoint>>;
/** A metric with all its series, in one process at one time. Processes publish families to the gateway as JSON. */
export type MetricFamily = Readonly<z.infer<typeof familySchema>>;

/** Families from their JSON text; null when the text does not fit, such as text from another version of the platform. */
export function parseFamilies(text: string): MetricFamily[] | null {
  try {
    return snapshotSchema.parse(JSON.parse(text));
  } catch {
    return null;
  }
}

/** Maximum combinations of tenant and function that one metric of one process tells apart; later combinations count as `other`. */
export const MAX_OWNERS = 200;
/** Label value for tenants and functions beyond the bound. */
export const OTHER = 'other';

/** Labels with user-chosen values. All other labels have closed sets of values: models, codes, routes, states. */
const OPEN_LABELS: readonly string[] = ['tenant', 'function'];

/**
 * A meter whose counters and histograms have a bounded number of series: of the labels `tenant` and `function`, the first
 * {@link MAX_OWNERS} combinations of each metric are kept, and all later ones become `other`. So a metric has at most
 * (MAX_OWNERS + 1) × the combinations of its closed labels, however many tenants come and go.
 */
export function boundedMeter(meter: Meter, maxOwners: number = MAX_OWNERS): Meter {
  return Object.assign(Object.create(meter) as Meter, {
    createCounter: (name: string, options?: MetricOptions): Counter => {
      const counter = meter.createCounter(name, options);
      const bound = ownerBound(maxOwners);
      return { add: (value, attributes) => counter.add(value, bound(attributes)) };
    },
    createHistogram: (name: string, options?: MetricOptions): Histogram => {
      const histogram = meter.createHistogram(name, options);
      const bound = ownerBound(maxOwners);
      return { record: (value, attributes) => histogram.record(value, bound(attributes)) };
    },
  });
}

function ownerBound(maxOwners: number): (attributes: Attributes | undefined) => Attributes | undefined {
  const known = new Set<string>();
  return (attributes) => {
    if (!attributes || !OPEN_LABELS.some((label) => label in attributes)) return attributes;
    const owner = OPEN_LABELS.map((label) => attributes[label] ?? '').join('\n');
    if (known.has(owner)) return attributes;
    if (known.size < maxOwners) {
      known.add(owner);
      return attributes;
    }
    const bounded = { ...attributes };
    for (const label of OPEN_LABELS) if (label in bounded) bounded[label] = OTHER;
    return bounded;
  };
}

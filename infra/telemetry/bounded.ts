import type { Attributes, Counter, Histogram, Meter, MetricOptions } from '@opentelemetry/api';

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
